"""Records of a topic from a remembered place on, without a consumer group: who reads keeps the cursor.

For the few records that a sensor or a small asset looks at in its own process; what is many goes through the engine. Only
committed records are seen. Nothing is stored at the broker, so that reading again from the same cursor gives the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from de_resources.errors import PermanentError
from de_resources.kafka import START_IT
from de_resources.kafka.identity import topic_identity
from de_resources.local.endpoints import ServiceUnavailable

ANSWER_SECONDS = 10.0
_READER = {
    "group.id": "topic-reader",  # the client demands one; it is never joined
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "log_level": "0",
}


class TopicMissing(PermanentError):
    """The broker has no such topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"The broker has no topic `{topic}`. Create it with `de up`, which declares the platform's topics."
        )


class RecordsGone(PermanentError):
    """Records that were asked for by their offsets, and that the topic no longer holds."""

    def __init__(self, topic: str, positions: Collection[tuple[int, int]]) -> None:
        self.topic, self.positions = topic, sorted(positions)
        shown = ", ".join(f"{partition}@{offset}" for partition, offset in self.positions[:5])
        super().__init__(
            f"{len(positions)} record(s) of `{topic}` are not there any more ({shown}): the topic's retention has removed "
            "them, or it was made anew. Have their producer send them again."
        )


@dataclass(frozen=True)
class Record:
    """One record, and where and when (UTC) the broker has it."""

    partition: int
    offset: int
    append_time: datetime
    key: bytes | None
    value: bytes | None


@dataclass
class Batch:
    """What a read found: the records by partition and offset, and the offsets from which the next read goes on.

    `topic_id` is the broker's identity of the topic, which changes when it is deleted and made anew; `anew`: it was, or it
    ends before a remembered offset, and what it holds now was read from the beginning. `gone` counts, per partition, the
    offsets that were not read and are not there any more (ends of transactions take offsets, too).
    """

    topic_id: str
    records: list[Record] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    gone: dict[int, int] = field(default_factory=dict)
    anew: bool = False

    @property
    def cursor(self) -> str:
        """Where the next read goes on, as text."""
        return json.dumps({"topic": self.topic_id, "offsets": self.offsets})


def read_topic(
    client_config: Mapping[str, str], topic: str, cursor: str | None = None, *, limit: float = math.inf
) -> Batch:
    """Read from where the batch of this cursor ended to the present end of the topic, at most `limit` records.

    What the cursor does not know, such as a new partition or everything where there is none, is read from its beginning.
    Raises `TopicMissing`, and `ServiceUnavailable` when the broker does not answer.
    """
    seen = json.loads(cursor) if cursor else {"topic": None, "offsets": {}}
    offsets = {int(partition): int(offset) for partition, offset in seen["offsets"].items()}
    with _consumer(client_config) as consumer:
        spans = {p: _watermarks(consumer, TopicPartition(topic, p)) for p in _partitions(consumer, topic)}
        batch = Batch(topic_identity(client_config, topic, timeout=ANSWER_SECONDS))
        overtaken = any(offsets.get(partition, 0) > high for partition, (_, high) in spans.items())
        batch.anew = overtaken or seen["topic"] not in (None, batch.topic_id)
        for partition, (low, _) in spans.items():
            wanted = low if batch.anew else offsets.get(partition, low)
            batch.offsets[partition] = max(low, wanted)
            if wanted < low:
                batch.gone[partition] = low - wanted
        _read(consumer, topic, batch, {p: high for p, (_, high) in spans.items() if batch.offsets[p] < high}, limit)
    batch.records.sort(key=lambda record: (record.partition, record.offset))
    return batch


def records_at(
    client_config: Mapping[str, str], topic: str, positions: Collection[tuple[int, int]]
) -> Iterator[Record]:
    """The records at these (partition, offset), one by one. Raises `TopicMissing`, `RecordsGone`, `ServiceUnavailable`."""
    with _consumer(client_config) as consumer:
        known = set(_partitions(consumer, topic))
        for partition, offset in sorted(positions):
            message = _record(consumer, TopicPartition(topic, partition, offset)) if partition in known else None
            if message is None:
                raise RecordsGone(topic, [(partition, offset)])
            yield message


def _read(consumer: Consumer, topic: str, batch: Batch, ends: dict[int, int], limit: float) -> None:
    """Fill the batch until every partition has reached its end, or the limit is."""
    consumer.assign([TopicPartition(topic, partition, batch.offsets[partition]) for partition in ends])
    while ends and len(batch.records) < limit:
        message = _next(consumer)
        partition, offset = _place(message)
        if message.error() is not None:  # the end of what is committed
            batch.offsets[partition] = offset
            ends.pop(partition, None)
        elif partition in ends:
            batch.records.append(_as_record(message))
            batch.offsets[partition] = offset + 1
            if offset + 1 >= ends[partition]:
                del ends[partition]


def _record(consumer: Consumer, place: TopicPartition) -> Record | None:
    """The record at exactly this place; None where there is none."""
    low, high = _watermarks(consumer, place)
    if not low <= place.offset < high:
        return None
    consumer.assign([place])
    message = _next(consumer)
    found = message.error() is None and _place(message)[1] == place.offset
    return _as_record(message) if found else None


@contextmanager
def _consumer(client_config: Mapping[str, str]) -> Iterator[Consumer]:
    """A client that is closed in any case, and whose errors name the broker."""
    with closing(Consumer({**client_config, **_READER})) as consumer:
        try:
            yield consumer
        except KafkaException as error:
            reason = f"{error.args[0].str()}; {START_IT}"
            raise ServiceUnavailable("kafka", client_config["bootstrap.servers"], reason) from error


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    low, high = consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
    return low, high


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if found.error is not None or not found.partitions:
        raise TopicMissing(topic)
    return sorted(found.partitions)


def _next(consumer: Consumer) -> Message:
    """The next record, or the event that says that there is none."""
    message = consumer.poll(ANSWER_SECONDS)
    if message is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return message


def _place(message: Message) -> tuple[int, int]:
    return int(message.partition() or 0), int(message.offset() or 0)


def _as_record(message: Message) -> Record:
    partition, offset = _place(message)
    appended = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return Record(partition, offset, appended, _bytes(message.key()), _bytes(message.value()))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
