"""The next increment of a topic: up to its end, or up to a time in all of its partitions at once.

Partitions have no common end. Two that are read "to the end" are read to different times, so that the next increment holds
records that are older than some of this one. What depends on the order over partitions, as sessions do, is cut by the
broker's clock instead (`by_time`): then every increment is younger than all before it, and any cuts give the same result.

The cut lies a moment (`settle`) before the present, so that what a broker is taking right now, or another broker with a slow
clock, still gets a time behind it; and before anything that an open transaction has not decided about.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.checkpoints import Checkpoint
from de_resources.kafka.consumer import Increment
from de_resources.kafka.errors import AnotherTopic, PositionExpired

_INSTANT = timedelta(milliseconds=1)


def to_the_end(log: AppendLog, before: Checkpoint | None, *, at_most: int | None = None) -> Increment | None:
    """All that is committed and was not read yet, at most `at_most` offsets of each partition; None where that is nothing.

    Raises `TopicMissing`, `PositionExpired`, `AnotherTopic`.
    """
    topic_id, start = log.identity(), _start(log, before)
    ends = log.ends()
    if at_most is not None:
        ends = {partition: min(end, start[partition] + at_most) for partition, end in ends.items()}
    return Increment(before, start, Checkpoint(topic_id, ends)) if ends != start else None


def by_time(
    log: AppendLog, before: Checkpoint | None, now: datetime, *, settle: timedelta, at_most: int | None = None
) -> Increment | None:
    """What is older than `now - settle` in all partitions and was not read yet; None where the last one came as far.

    An increment without records says that time has passed. `at_most` bounds the offsets of each partition; only records of one
    and the same millisecond are never divided. Where the topic has lost its oldest records, the first increment
    begins where all partitions are complete.

    Raises `TopicMissing`, `PositionExpired`, `AnotherTopic`.
    """
    topic_id = log.identity()
    since = before.until if before else _complete_since(log)
    start = _start(log, before) if before or since is None else log.offsets_at(since)
    until = now - settle
    until -= timedelta(microseconds=until.microsecond % 1000)
    if since is not None and until <= since:
        return None
    if at_most is not None:
        until = _bounded(log, start, since, until, at_most)
    while True:
        end, decided = log.offsets_at(until), log.ends()
        undecided = [partition for partition in end if decided[partition] < end[partition]]
        times = [time for p in undecided if (time := log.time_at(p, decided[p])) is not None and time < until]
        if not times:
            break
        until = min(times)
    if since is not None and until <= since:
        return None
    end = {partition: max(start[partition], min(offset, decided[partition])) for partition, offset in end.items()}
    return Increment(before, start, Checkpoint(topic_id, end, until), since)


def _bounded(
    log: AppendLog, start: Mapping[int, int], since: datetime | None, until: datetime, at_most: int
) -> datetime:
    """The latest cut behind which no partition has more than `at_most` offsets, or a millisecond's records."""
    ends = log.ends()
    full = [partition for partition, end in ends.items() if end - start[partition] > at_most]
    times = [time for p in full if (time := log.time_at(p, start[p] + at_most)) is not None]
    cut = min([until, *times])
    return cut if since is None else max(cut, since + _INSTANT)


def _start(log: AppendLog, before: Checkpoint | None) -> dict[int, int]:
    """Where to go on, by partition; a new partition is read from its beginning."""
    begins = log.begins()
    if before is None:
        return begins
    ends = log.ends()
    if before.topic_id != log.identity():
        raise AnotherTopic(log.topic)
    for partition, position in before.offsets.items():
        if position > ends.get(partition, -1):
            raise AnotherTopic(log.topic)
        if position < begins[partition]:
            raise PositionExpired(log.topic, partition, position, begins[partition])
    return {**begins, **before.offsets}


def _complete_since(log: AppendLog) -> datetime | None:
    """The time from which no partition has lost a record; None where none was ever lost."""
    times = [log.time_at(partition, begin) for partition, begin in log.begins().items() if begin]
    return max((time for time in times if time is not None), default=None)
