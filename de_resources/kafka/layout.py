"""The two sides of a topic replication: where they are, how they are read, and whether one can hold the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from de_resources.errors import PermanentError, TransientError
from de_resources.kafka.identity import topic_identity

SECONDS = 15.0
_FETCH, _FETCH_SECONDS = 1000, 0.1


class TopicMissing(PermanentError):
    """One side of a replication does not exist."""

    def __init__(self, topic: str, servers: str) -> None:
        self.topic, self.servers = topic, servers
        super().__init__(
            f"The topic `{topic}` does not exist on {servers}. Nothing was copied. Create it with as many partitions as the "
            "other side has: `de up kafka` creates the topics that the platform declares."
        )


class TopicTooSmall(PermanentError):
    """A replica that has fewer partitions than its source, so that partitions cannot be kept."""

    def __init__(self, source: str, partitions: int, target: str, fewer: int) -> None:
        self.source, self.partitions, self.target, self.fewer = source, partitions, target, fewer
        super().__init__(
            f"The topic `{target}` has {fewer} partition(s), its source `{source}` has {partitions}. Nothing was copied. "
            f"Give `{target}` {partitions} partitions."
        )


class TimestampsNotKept(PermanentError):
    """A replica whose broker would replace the records' timestamps by its own."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"The topic `{topic}` has `message.timestamp.type=LogAppendTime`, which replaces the source's timestamps. "
            "Nothing was copied. Set it to `CreateTime`."
        )


class SameTopic(PermanentError):
    """A topic that would be replicated into itself, without an end."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"The topic `{topic}` cannot be its own replica. Name another target topic or broker.")


class TopicSilent(TransientError):
    """A broker that stopped delivering before the end of a topic was reached."""

    soon = False

    def __init__(self, topic: str, partitions: list[int]) -> None:
        self.topic, self.partitions = topic, partitions
        super().__init__(
            f"The partitions {partitions} of `{topic}` delivered nothing for {SECONDS:g} s, though they hold more records. "
            "Look at the broker with `de status`, then run again."
        )


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its place. `timestamp` is in milliseconds; None where the source has none."""

    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int | None
    headers: Any


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The end of a partition, and the offset to go on from later."""

    partition: int
    offset: int


@dataclass(frozen=True)
class Topic:
    """A topic with the configuration of a client that reaches its broker; the password in it never shows."""

    config: Mapping[str, str] = field(repr=False)
    topic: str

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self.config["bootstrap.servers"]

    def partitions(self) -> int:
        """The number of partitions. Raises `TopicMissing`."""
        # Asking for all topics, and not for this one, never creates it.
        topics = self._admin().list_topics(timeout=SECONDS).topics
        if self.topic not in topics:
            raise TopicMissing(self.topic, self.servers)
        return len(topics[self.topic].partitions)

    def identity(self) -> str:
        """The broker's identity of the topic, which changes when it is deleted and made anew. Raises `TopicMissing`."""
        self.partitions()
        return topic_identity(self.config, self.topic, timeout=SECONDS)

    def setting(self, name: str) -> str:
        """A setting of the topic, as the broker applies it."""
        # Held in a variable, here as below: a client that is collected cancels what it was asked.
        client, resource = self._admin(), ConfigResource(ResourceType.TOPIC, self.topic)
        answer = client.describe_configs([resource], request_timeout=SECONDS)[resource].result(SECONDS)
        return str(answer[name].value)

    def begins(self) -> dict[int, int]:
        """The offset of the oldest record that is kept, by partition."""
        return self._offsets(OffsetSpec.earliest())

    def ends(self) -> dict[int, int]:
        """The offset behind the newest committed record, by partition."""
        return self._offsets(OffsetSpec.latest())

    def read(self, position: Mapping[int, int]) -> Iterator[Record | PartitionEnd]:
        """The committed records from these offsets to the present end, each partition in its order.

        The end of a partition that closes with a marker of a transaction is told, too, for it lies behind the last
        record. What is appended meanwhile may or may not be among the records. Raises `TopicSilent`.
        """
        ends = self.ends()
        unread = {p: ends[p] for p, offset in position.items() if offset < ends[p]}
        with closing(Consumer({**self.config, **_READER})) as consumer:
            consumer.assign([TopicPartition(self.topic, p, position[p]) for p in unread])
            deadline = time.monotonic() + SECONDS
            while unread:
                # Waits for a full batch or the whole time, hence a short one.
                messages = consumer.consume(_FETCH, timeout=_FETCH_SECONDS)
                if messages:
                    deadline = time.monotonic() + SECONDS
                elif time.monotonic() > deadline:
                    raise TopicSilent(self.topic, sorted(unread))
                for item in map(_item, messages):
                    if item.partition in unread:
                        yield item
                        if isinstance(item, PartitionEnd) or item.offset + 1 >= unread[item.partition]:
                            del unread[item.partition]

    def _offsets(self, spec: OffsetSpec) -> dict[int, int]:
        client, wanted = self._admin(), {TopicPartition(self.topic, p): spec for p in range(self.partitions())}
        committed = IsolationLevel.READ_COMMITTED
        found = client.list_offsets(wanted, isolation_level=committed, request_timeout=SECONDS)
        return {place.partition: future.result(SECONDS).offset for place, future in found.items()}

    def _admin(self) -> AdminClient:
        return AdminClient({**self.config, "log_level": "0"})


_READER = {
    # Nobody joins this group: positions are given, and kept elsewhere.
    "group.id": "replicate.reader",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": 0,
}


def require_replicable(source: Topic, target: Topic) -> int:
    """The number of the source's partitions, once it is clear that the target can hold them.

    Raises `SameTopic`, `TopicMissing`, `TopicTooSmall`, `TimestampsNotKept`.
    """
    if (source.servers, source.topic) == (target.servers, target.topic):
        raise SameTopic(source.topic)
    partitions, own = source.partitions(), target.partitions()
    if own < partitions:
        raise TopicTooSmall(source.topic, partitions, target.topic, own)
    if target.setting("message.timestamp.type") != "CreateTime":
        raise TimestampsNotKept(target.topic)
    return partitions


def _item(message: Message) -> Record | PartitionEnd:
    """What a consumer delivered; an error other than the end of a partition is raised."""
    error = message.error()
    partition, offset = int(message.partition() or 0), int(message.offset() or 0)
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        return PartitionEnd(partition, offset)
    kind, milliseconds = message.timestamp()
    timestamp = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds
    return Record(partition, offset, message.key(), message.value(), timestamp, message.headers())
