"""Up to where a topic was replicated, and whether it is possible to go on from there without losing or doubling."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from de_resources.errors import PermanentError
from de_resources.replication.topic_layout import SECONDS, Side

Positions = Mapping[int, int]
"""The source's offset to go on from, by partition; partitions that were never replicated are absent."""

# A broker that has just started is still choosing who keeps the group's offsets.
_ELECTING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
_AFRESH = "To copy it afresh, delete and create the replica, and delete the consumer group `replicate.<source>`."


class PositionsLost(PermanentError):
    """A replica that holds records though nobody knows up to where it was filled."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        super().__init__(
            f"The partition {partition} of the replica `{topic}` holds records, but its broker remembers no position. Going "
            f"on would double them, so nothing was copied. {_AFRESH}"
        )


class SourceRecreated(PermanentError):
    """A source that ends before the position, or lacks a partition that was replicated: it is another topic now."""

    def __init__(self, topic: str, partition: int, position: int, end: int | None) -> None:
        self.topic, self.partition, self.position, self.end = topic, partition, position, end
        now = "does not exist any more" if end is None else f"ends at {end}"
        super().__init__(
            f"The partition {partition} of `{topic}` was replicated up to offset {position} and {now}: the topic was made "
            f"anew, or has fewer partitions than before. Nothing was copied. {_AFRESH}"
        )


class RecordsExpired(PermanentError):
    """Records that the source dropped before they were replicated."""

    def __init__(self, topic: str, partition: int, position: int, begin: int) -> None:
        self.topic, self.partition, self.position, self.begin = topic, partition, position, begin
        super().__init__(
            f"The partition {partition} of `{topic}` begins at offset {begin}, but was replicated only up to {position}: its "
            "retention removed what lies between. Nothing was copied, because the replica would have a gap. Replicate more "
            f"often than the retention. {_AFRESH}"
        )


def remembered(member: Consumer, topic: str) -> Positions:
    """The positions that the group has committed on the replica's topic."""
    places = [TopicPartition(topic, p) for p in member.list_topics(timeout=SECONDS).topics[topic].partitions]
    return {place.partition: place.offset for place in committed(member, places) if place.offset >= 0}


def committed(member: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """What the group has committed for these places, once the broker knows who keeps it."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return member.committed(places, timeout=SECONDS)
        except KafkaException as error:
            if error.args[0].code() not in _ELECTING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def starting_positions(source: Side, target: Side, known: Positions) -> dict[int, int]:
    """By partition of the source, the offset to read from: where the last run ended, or the oldest record.

    Raises `PositionsLost`, `SourceRecreated` or `RecordsExpired` where going on would lose or double records.
    """
    begins, ends = source.begins(), source.ends()
    for partition, position in sorted(known.items()):
        if position > ends.get(partition, -1):
            raise SourceRecreated(source.topic, partition, position, ends.get(partition))
        if position < begins[partition]:
            raise RecordsExpired(source.topic, partition, position, begins[partition])
    for partition, end in sorted(target.ends().items()):
        if end > 0 and partition in begins and partition not in known:
            raise PositionsLost(target.topic, partition)
    return {partition: known.get(partition, begin) for partition, begin in begins.items()}
