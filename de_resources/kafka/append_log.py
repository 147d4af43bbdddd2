"""A topic by its broker's clock: which offsets belong to a time, and which time belongs to an offset.

With `message.timestamp.type=LogAppendTime` the broker writes down when it took a record; with the default, `CreateTime`, the
record says what its producer claims. Only the first is nobody's to choose, and follows the order within a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from de_resources.kafka.errors import NotAppendTime
from de_resources.kafka.topic import SECONDS, Record, Topic, from_milliseconds, milliseconds

TIMESTAMP_TYPE = "message.timestamp.type"


class AppendLog(Topic):
    """A topic and its broker's clock. Raises what `Topic` raises."""

    def require_append_time(self) -> None:
        """Raises `NotAppendTime` unless the broker sets the records' times."""
        self.partitions()
        found = self.setting(TIMESTAMP_TYPE)
        if found != "LogAppendTime":
            raise NotAppendTime(self.topic, found)

    def offsets_at(self, time: datetime) -> dict[int, int]:
        """By partition, the offset of the first record that is not older than `time`; its end where there is none."""
        # Asked first: what is appended between the two questions has a later time, and would be found by the second one.
        ends = self._offsets(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        found = self._offsets(OffsetSpec.for_timestamp(milliseconds(time)), IsolationLevel.READ_UNCOMMITTED)
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    def newest_times(self) -> dict[int, datetime | None]:
        """By partition, when its newest record was taken; None where no record is kept. No record is read.

        Source: KIP-734, *Improve AdminClient.listOffsets to return timestamp and offset for the record with the largest
        timestamp*.
        """
        client, asked = self._admin(), OffsetSpec.max_timestamp()
        wanted = {TopicPartition(self.topic, partition): asked for partition in range(self.partitions())}
        with self._answered():
            found = client.list_offsets(wanted, request_timeout=SECONDS)
            told = {place.partition: future.result(SECONDS) for place, future in found.items()}
        return {p: from_milliseconds(each.timestamp) if each.offset >= 0 else None for p, each in told.items()}

    def kept_for(self) -> timedelta | None:
        """How long the broker keeps a record at least; None: for good."""
        said = int(self.setting("retention.ms"))
        return timedelta(milliseconds=said) if said >= 0 else None

    def time_at(self, partition: int, offset: int) -> datetime | None:
        """The time of the record at this offset, or of the next one that there is; None behind the last one."""
        # Also what no transaction has decided about yet: only its time is looked at.
        (record,) = self.nearest([(partition, offset)], IsolationLevel.READ_UNCOMMITTED)
        return record.append_time if record else None

    def records(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Record]:
        """The committed records between these offsets, each partition in its order; the end does not belong to them."""
        unread = {partition: offset for partition, offset in start.items() if offset < end[partition]}
        for item in self.read(unread) if unread else ():
            if isinstance(item, Record) and item.offset < end[item.partition]:
                yield item
