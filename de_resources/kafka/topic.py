"""A topic as a client sees it: its records by place, where each partition begins and ends, and which topic it is.

For what one process looks at itself; what is many goes through the engine (`de_resources.kafka.stream`). Nothing is contacted
before a method is called, and nothing is stored at the broker. A broker that does not answer is `ServiceUnavailable`.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from de_resources.kafka.errors import START_IT, TopicMissing, TopicSilent
from de_resources.local.endpoints import ServiceUnavailable

SECONDS = 15.0
METADATA_SECONDS = 10.0
Headers = Sequence[tuple[str, bytes | None]]
_FETCH, _FETCH_SECONDS = 1000, 0.1
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)
_CLIENT = {
    "group.id": "topic-reader",  # the client demands one; it is never joined: positions are given, and kept elsewhere
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its place. `timestamp` is in milliseconds; None where the source has none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: Headers | None = None

    @property
    def append_time(self) -> datetime:
        """`timestamp` as a time (UTC). Of a topic with `LogAppendTime` it says when the broker took the record."""
        return from_milliseconds(self.timestamp or 0)


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The end of a partition, and the offset to go on from later."""

    partition: int
    offset: int


@dataclass(frozen=True)
class Topic:
    """A topic with the configuration of a client that reaches its broker; the password in it never shows.

    Every method raises `ServiceUnavailable` where the broker does not answer, and `TopicMissing`.
    """

    config: Mapping[str, str] = field(repr=False)
    topic: str

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self.config["bootstrap.servers"]

    def partitions(self) -> int:
        """The number of partitions."""
        with self._answered():
            # Asking for all topics, and not for this one, never creates it.
            topics = self._admin().list_topics(timeout=METADATA_SECONDS).topics
        if self.topic not in topics:
            raise TopicMissing(self.topic, self.servers)
        return len(topics[self.topic].partitions)

    def identity(self) -> str:
        """The broker's identity of the topic, which changes when it is deleted and made again: an offset means nothing then."""
        self.partitions()
        # Held in a variable, here as below: a client that is collected cancels what it was asked.
        client = self._admin()
        with self._answered():
            described = client.describe_topics(TopicCollection([self.topic]))[self.topic]
            return str(described.result(timeout=SECONDS).topic_id)

    def setting(self, name: str) -> str:
        """A setting of the topic, as the broker applies it."""
        client, resource = self._admin(), ConfigResource(ResourceType.TOPIC, self.topic)
        with self._answered():
            answer = client.describe_configs([resource], request_timeout=SECONDS)[resource].result(SECONDS)
        return str(answer[name].value)

    def begins(self) -> dict[int, int]:
        """The offset of the oldest record that is kept, by partition."""
        return self._offsets(OffsetSpec.earliest())

    def ends(self) -> dict[int, int]:
        """The offset behind the newest committed record, by partition."""
        return self._offsets(OffsetSpec.latest())

    def read(self, position: Mapping[int, int]) -> Generator[Record | PartitionEnd, None, None]:
        """The committed records from these offsets to the present end, each partition in its order.

        The end of a partition that closes with a marker of a transaction is told, too, for it lies behind the last
        record. What is appended meanwhile may or may not be among the records. Raises `TopicSilent`.
        """
        ends = self.ends()
        unread = {p: ends[p] for p, offset in position.items() if offset < ends[p]}
        with self._client(IsolationLevel.READ_COMMITTED) as consumer:
            consumer.assign([TopicPartition(self.topic, p, position[p]) for p in unread])
            deadline = time.monotonic() + SECONDS
            while unread:
                # Waits for a full batch or the whole time, hence a short one.
                messages = consumer.consume(_FETCH, timeout=_FETCH_SECONDS)
                if messages:
                    deadline = time.monotonic() + SECONDS
                elif time.monotonic() > deadline:
                    raise TopicSilent(self.topic, sorted(unread), SECONDS)
                for item in map(_item, messages):
                    if item.partition in unread:
                        yield item
                        if isinstance(item, PartitionEnd) or item.offset + 1 >= unread[item.partition]:
                            del unread[item.partition]

    def nearest(
        self, places: Iterable[tuple[int, int]], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> Iterator[Record | None]:
        """For each (partition, offset) the record there, or the next one that there is; None behind the last one."""
        with self._client(isolation) as consumer:
            for partition, offset in places:
                consumer.assign([TopicPartition(self.topic, partition, offset)])
                message = consumer.poll(SECONDS)
                if message is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                item = _item(message)
                yield item if isinstance(item, Record) else None

    def _offsets(self, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> dict[int, int]:
        client, wanted = self._admin(), {TopicPartition(self.topic, p): spec for p in range(self.partitions())}
        with self._answered():
            found = client.list_offsets(wanted, isolation_level=isolation, request_timeout=SECONDS)
            return {place.partition: future.result(SECONDS).offset for place, future in found.items()}

    def _admin(self) -> AdminClient:
        return AdminClient({**self.config, "log_level": "0"})

    @contextmanager
    def _client(self, isolation: IsolationLevel) -> Iterator[Consumer]:
        config = {**self.config, **_CLIENT, "isolation.level": isolation.name.lower()}
        with self._answered(), closing(Consumer(config)) as consumer:
            yield consumer

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """The library's errors as the platform's."""
        try:
            yield
        except KafkaException as error:
            raise ServiceUnavailable("kafka", self.servers, f"{error.args[0].str()}; {START_IT}") from error
        except TimeoutError as error:
            raise ServiceUnavailable("kafka", self.servers, f"no answer within {SECONDS:g} s; {START_IT}") from error


def milliseconds(time: datetime) -> int:
    """The broker's number for a time, which has no smaller unit."""
    return (time - _EPOCH) // _MILLISECOND


def from_milliseconds(number: int) -> datetime:
    """The time (UTC) of the broker's number; exact, unlike a division."""
    return _EPOCH + number * _MILLISECOND


def _item(message: Message) -> Record | PartitionEnd:
    """What a consumer delivered; an error other than the end of a partition is raised."""
    error = message.error()
    partition, offset = int(message.partition() or 0), int(message.offset() or 0)
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        return PartitionEnd(partition, offset)
    kind, number = message.timestamp()
    timestamp = None if kind == TIMESTAMP_NOT_AVAILABLE else number
    # The client's types allow for a dict here, its code does not.
    headers = cast("Headers | None", message.headers())
    return Record(partition, offset, message.key(), message.value(), timestamp, headers)
