"""How far a topic has come: the newest change that it holds and whose it is, from the headers of the last records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from de_resources.capture.envelope import Position
from de_resources.capture.history import DatabaseId
from de_resources.errors import PermanentError
from de_resources.kafka.reader import TopicMissing

_ANSWER_SECONDS = 10.0
_FIRST_LOOK = 16


class ForeignRecord(PermanentError):
    """A topic of changes holds something that no capture wrote."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        super().__init__(
            f"The record at offset {offset} of `{topic}`, partition {partition}, was not written by a capture: it does not say "
            "its position. Let nobody else produce there, or capture into a topic of its own."
        )


@dataclass(frozen=True)
class Reached:
    """The newest position in the topic, and in which database's log it is.

    No position: the topic holds no change yet. No database: its newest record was written by a version that did not say.
    """

    position: Position | None = None
    database: DatabaseId | None = None


def reached(client_config: Mapping[str, str], topic: str) -> Reached:
    """Look at the end of every partition; committed records only. Raises `TopicMissing`, `ForeignRecord`."""
    consumer = Consumer(
        {
            **client_config,
            "group.id": "capture-position",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": "0",
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
        if found.error is not None or not found.partitions:
            raise TopicMissing(topic)
        lasts = [_last(consumer, topic, partition) for partition in found.partitions]
    finally:
        consumer.close()
    newest = max((last for last in lasts if last is not None), key=lambda last: last[0], default=None)
    return Reached(*newest) if newest else Reached()


def _last(consumer: Consumer, topic: str, partition: int) -> tuple[Position, DatabaseId | None] | None:
    """Of the last committed record. Ends of transactions take offsets too, so it is searched for backwards."""
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_SECONDS)
    look = _FIRST_LOOK
    while high > low:
        begin = max(low, high - look)
        message = _read_to_end(consumer, TopicPartition(topic, partition, begin))
        if message is not None:
            return _place(message)
        if begin == low:
            return None
        look *= 8
    return None


def _read_to_end(consumer: Consumer, begin: TopicPartition) -> Message | None:
    consumer.assign([begin])
    newest = None
    while True:
        message = consumer.poll(_ANSWER_SECONDS)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = message.error()
        if error is None:
            newest = message
        elif error.code() == KafkaError._PARTITION_EOF:
            return newest
        else:
            raise KafkaException(error)


def _place(message: Message) -> tuple[Position, DatabaseId | None]:
    headers = dict(message.headers() or [])
    try:
        position = Position(int(headers["commit_lsn"] or b""), int(headers["sequence"] or b""))
        return position, DatabaseId.of(headers)
    except (KeyError, ValueError):
        raise ForeignRecord(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)) from None
