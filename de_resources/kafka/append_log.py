"""A topic by its broker's clock: which offsets belong to a time, and which time belongs to an offset.

With `message.timestamp.type=LogAppendTime` the broker writes down when it took a record; with the default, `CreateTime`, the
record says what its producer claims. Only the first is nobody's to choose, and follows the order within a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from de_resources.errors import PermanentError
from de_resources.kafka.layout import SECONDS, Record, Topic
from de_resources.kafka.reader import TopicMissing

TIMESTAMP_TYPE = "message.timestamp.type"
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)
# Also what no transaction has decided about yet: only its time is looked at.
_LOOKER = {
    "group.id": "append-log",  # the client demands one; it is never joined
    "enable.auto.commit": False,
    "isolation.level": "read_uncommitted",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": 0,
}


class NotAppendTime(PermanentError):
    """A topic whose records carry the time of their producers."""

    def __init__(self, topic: str, found: str) -> None:
        self.topic, self.found = topic, found
        super().__init__(
            f"The topic `{topic}` has `{TIMESTAMP_TYPE}={found}`: its records carry whatever time their producers set, and a "
            "key that is made of it would change with the producer's clock. Nothing was read. Set it to `LogAppendTime` "
            "(`kafka-configs --alter --topic`); records that came before keep their old times, so begin with a new topic."
        )


class AppendLog(Topic):
    """A topic and its broker's clock. Nothing is contacted before a method is called; every one raises `TopicMissing`."""

    def partitions(self) -> int:
        """The number of partitions."""
        topics = self._admin().list_topics(timeout=SECONDS).topics
        if self.topic not in topics:
            raise TopicMissing(self.topic)
        return len(topics[self.topic].partitions)

    def require_append_time(self) -> None:
        """Raises `NotAppendTime` unless the broker sets the records' times."""
        self.partitions()
        found = self.setting(TIMESTAMP_TYPE)
        if found != "LogAppendTime":
            raise NotAppendTime(self.topic, found)

    def offsets_at(self, time: datetime) -> dict[int, int]:
        """By partition, the offset of the first record that is not older than `time`; its end where there is none."""
        # Asked first: what is appended between the two questions has a later time, and would be found by the second one.
        ends = self._places(OffsetSpec.latest())
        found = self._places(OffsetSpec.for_timestamp(milliseconds(time)))
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    def time_at(self, partition: int, offset: int) -> datetime | None:
        """The time of the record at this offset, or of the next one that there is; None behind the last one."""
        with closing(Consumer({**self.config, **_LOOKER})) as consumer:
            consumer.assign([TopicPartition(self.topic, partition, offset)])
            message = consumer.poll(SECONDS)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            error = message.error()
            if error is None:
                return from_milliseconds(message.timestamp()[1])
            if error.code() == KafkaError._PARTITION_EOF:
                return None
            raise KafkaException(error)

    def records(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Record]:
        """The committed records between these offsets, each partition in its order; the end does not belong to them."""
        unread = {partition: offset for partition, offset in start.items() if offset < end[partition]}
        for item in self.read(unread) if unread else ():
            if isinstance(item, Record) and item.offset < end[item.partition]:
                yield item

    def _places(self, spec: OffsetSpec) -> dict[int, int]:
        client, wanted = self._admin(), {TopicPartition(self.topic, p): spec for p in range(self.partitions())}
        undecided = IsolationLevel.READ_UNCOMMITTED
        found = client.list_offsets(wanted, isolation_level=undecided, request_timeout=SECONDS)
        return {place.partition: future.result(SECONDS).offset for place, future in found.items()}


def milliseconds(time: datetime) -> int:
    """The broker's number for a time, which has no smaller unit."""
    return (time - _EPOCH) // _MILLISECOND


def from_milliseconds(number: int) -> datetime:
    """The time (UTC) of the broker's number; exact, unlike a division."""
    return _EPOCH + number * _MILLISECOND
