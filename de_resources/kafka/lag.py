"""How far a reader of a topic is behind, partition by partition: in offsets, and by the age of what it reads next.

Pattern: Lag Detector. Positions are given; whoever keeps them is asked before (`de_resources.kafka.keepers`), so that a
reader that goes on meanwhile looks late by a moment, and never ahead of its topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from de_resources.kafka.keepers import KeptPosition
from de_resources.kafka.topic import Record, Topic

_FOREVER = -1


@dataclass(frozen=True)
class PartitionLag:
    """One partition: what it holds, where the reader goes on (None: it never came here), and when that record was written."""

    partition: int
    begin: int
    end: int
    position: int | None
    oldest: datetime | None = None
    """Time of the first committed record that was not read; None where there is none."""

    @property
    def unread(self) -> int:
        """Offsets that the reader has before it; 0 where only ends of transactions are."""
        return self.end - max(self.begin, self.position or 0) if self.oldest is not None else 0

    @property
    def removed(self) -> int:
        """Offsets that were removed before the reader came to them."""
        return 0 if self.position is None else max(self.begin - self.position, 0)

    @property
    def is_beyond(self) -> bool:
        """Whether the reader is where the topic has not come: a negative lag."""
        return self.position is not None and self.position > self.end

    def age(self, now: datetime) -> float:
        """Seconds since what is read next was written; 0 where nothing waits, or where its clock is ahead of this one."""
        return max((now - self.oldest).total_seconds(), 0.0) if self.oldest else 0.0


@dataclass(frozen=True)
class TopicLag:
    """A reader and its topic. `kept`: how long the topic promises to keep each record; None: it removes none by its age."""

    topic: str
    topic_id: str
    partitions: tuple[PartitionLag, ...]
    has_started: bool
    is_anew: bool
    """The position is about a topic of this name that is no more."""
    kept: timedelta | None


def topic_lag(topic: Topic, kept: KeptPosition | None) -> TopicLag:
    """Measure a reader that is at this position; None: it never started.

    A few questions to the broker, and one record per partition that has something to read. Raises `TopicMissing`,
    `ServiceUnavailable`.
    """
    identity, begins, ends = topic.identity(), topic.begins(), topic.ends()
    is_anew = kept is not None and kept.topic_id not in (None, identity)
    positions = kept.offsets if kept else {}
    waits = {p: start for p, end in ends.items() if (start := max(positions.get(p, 0), begins[p])) < end}
    firsts = dict(zip(waits, topic.nearest(waits.items()), strict=True))
    found = tuple(
        PartitionLag(p, begins[p], end, positions.get(p), _time(firsts.get(p))) for p, end in sorted(ends.items())
    )
    return TopicLag(topic.topic, identity, found, kept is not None, is_anew, kept_for(topic))


def kept_for(topic: Topic) -> timedelta | None:
    """For how long the topic keeps every record, superseded ones included; None: for ever, or as it likes.

    Where it deletes by age, its retention; where it compacts, the time before which no record may be compacted away.
    """
    policies = topic.setting("cleanup.policy").split(",")
    limits = []
    if "delete" in policies and (retention := int(topic.setting("retention.ms"))) != _FOREVER:
        limits.append(retention)
    if "compact" in policies and (lag := int(topic.setting("min.compaction.lag.ms"))):
        limits.append(lag)
    return timedelta(milliseconds=min(limits)) if limits else None


def _time(record: Record | None) -> datetime | None:
    return record.append_time if record else None
