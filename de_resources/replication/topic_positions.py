"""Up to where a topic was replicated, and whether it is possible to go on from there without losing or doubling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from de_resources.errors import PermanentError
from de_resources.kafka.group import SECONDS, committed
from de_resources.kafka.topic import Topic


@dataclass(frozen=True)
class Positions:
    """The source's offset to go on from, by partition; partitions that were never replicated are absent.

    `source` is the identity of the topic whose offsets they are; None: they were committed by a version that kept none.
    """

    offsets: Mapping[int, int]
    source: str | None

    def committed_on(self, replica: str) -> list[TopicPartition]:
        """As offsets of a group on the replica's topic, each with the source's identity."""
        return [TopicPartition(replica, p, offset, metadata=self.source) for p, offset in self.offsets.items()]


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
    """A source that is another topic than the one that was replicated: by its identity, or because it ends too early."""

    def __init__(self, topic: str, why: str) -> None:
        self.topic, self.why = topic, why
        super().__init__(f"{why}: it was made again. Nothing was copied. {_AFRESH}")

    @classmethod
    def by_identity(cls, topic: str, known: str, found: str) -> SourceRecreated:
        """The broker says so."""
        return cls(topic, f"`{topic}` is another topic than the one that was replicated (id {found}, was {known})")

    @classmethod
    def by_end(cls, topic: str, partition: int, position: int, end: int | None) -> SourceRecreated:
        """It ends before the position, or lacks a partition that was replicated."""
        now = "does not exist any more" if end is None else f"ends at {end}"
        return cls(topic, f"The partition {partition} of `{topic}` was replicated up to offset {position} and {now}")


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
    """The positions that the group has committed on the replica's topic, all of them in one transaction."""
    places = [TopicPartition(topic, p) for p in member.list_topics(timeout=SECONDS).topics[topic].partitions]
    known = [place for place in committed(member, places) if place.offset >= 0]
    source = next((place.metadata for place in known if place.metadata), None)
    return Positions({place.partition: place.offset for place in known}, source)


def starting_positions(source: Topic, target: Topic, known: Positions) -> Positions:
    """By partition of the source, the offset to read from: where the last run ended, or the oldest record.

    They say which topic the source is, also where the last run did not. Raises `PositionsLost`, `SourceRecreated` or
    `RecordsExpired` where going on would lose or double records.
    """
    identity, begins, ends = source.identity(), source.begins(), source.ends()
    for partition, position in sorted(known.offsets.items()):
        if position > ends.get(partition, -1):
            raise SourceRecreated.by_end(source.topic, partition, position, ends.get(partition))
    if known.source not in (None, identity):
        raise SourceRecreated.by_identity(source.topic, str(known.source), identity)
    for partition, position in sorted(known.offsets.items()):
        if position < begins[partition]:
            raise RecordsExpired(source.topic, partition, position, begins[partition])
    for partition, end in sorted(target.ends().items()):
        if end > 0 and partition in begins and partition not in known.offsets:
            raise PositionsLost(target.topic, partition)
    return Positions({partition: known.offsets.get(partition, begin) for partition, begin in begins.items()}, identity)
