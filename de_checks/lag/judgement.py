"""The verdict on one measurement of a reader, from those before it. Knows neither broker, database nor Dagster's storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from de_checks.freshness.clock import duration
from de_checks.per_key import Verdict
from de_resources.kafka.lag import PartitionLag, TopicLag
from de_resources.lag import Backlog, Outlook, Speed, Spread, outlook

MEASURED_AT, STARTED = "lag/measured_at", "lag/started"
POSITIONS, ENDS, TOPIC_ID, UNREAD = "lag/positions", "lag/ends", "lag/topic_id", "lag/offsets_max"

Earlier = Sequence[Mapping[str, Any]]
"""Metadata of earlier verdicts of the same check, newest first."""


def judge_topic(lag: TopicLag, at_most: timedelta, now: datetime, earlier: Earlier) -> Verdict:
    """Whether a reader of a topic is on time, and if not, whether it comes to what waits before that is removed.

    Within `at_most` it is on time, however the numbers move. Beyond, its speed since it was last level with the topic decides:
    a warning where it will be level again or nothing is ever removed, an error with the time left where records
    will be lost.
    """
    told = figures(lag, now)
    if wrong := _misplaced(lag, earlier):
        return Verdict(False, wrong, told)
    ages = [part.age(now) for part in lag.partitions]
    if not lag.has_started and not any(part.unread for part in lag.partitions):
        return Verdict(True, "It has not started, and there is nothing to read yet.", told)
    if lag.has_started and max(ages, default=0.0) <= at_most.total_seconds():
        return Verdict(True, _behind(told), told)
    ahead = [_outlook(part, lag, now, earlier) for part in lag.partitions if part.unread]
    lost = min((each.lost for each in ahead if each.lost is not None), default=None)
    told |= _told(ahead, lost)
    late = (
        "It has not started"
        if not lag.has_started
        else f"It promises to be at most {duration(at_most.total_seconds())} behind"
    )
    return Verdict(
        False,
        f"{_behind(told)} {late}{_future(ahead, lost)}.",
        told,
        dg.AssetCheckSeverity.ERROR if lost is not None and lag.has_started else dg.AssetCheckSeverity.WARN,
    )


def figures(lag: TopicLag, now: datetime) -> dict[str, Any]:
    """The measurement as metadata with the same keys every time; numbers are plotted by the UI."""
    offsets = Spread.of(part.unread for part in lag.partitions)
    seconds = Spread.of(part.age(now) for part in lag.partitions)
    ahead = max(((part.oldest - now).total_seconds() for part in lag.partitions if part.oldest), default=0.0)
    return {
        UNREAD: int(offsets.max),
        "lag/offsets_p95": int(offsets.p95),
        "lag/offsets_p90": int(offsets.p90),
        "lag/offsets_total": sum(part.unread for part in lag.partitions),
        "lag/seconds_max": seconds.max,
        "lag/seconds_p95": seconds.p95,
        "lag/seconds_p90": seconds.p90,
        STARTED: lag.has_started,
        POSITIONS: {str(p.partition): p.position for p in lag.partitions if p.position is not None},
        ENDS: {str(part.partition): part.end for part in lag.partitions},
        TOPIC_ID: lag.topic_id,
        MEASURED_AT: now.timestamp(),
        **({"lag/clock_ahead_seconds": ahead} if ahead > 0 else {}),
    }


def _misplaced(lag: TopicLag, earlier: Earlier) -> str | None:
    """What is wrong with the position itself: no waiting mends it."""
    if not lag.has_started:
        if any(told.get(STARTED) and told.get(TOPIC_ID) == lag.topic_id for told in earlier):
            return (
                f"It had read `{lag.topic}`, and its position is gone: a consumer group was deleted or has expired, or a "
                "checkpoint was removed. Its next run reads what the topic still holds from the beginning."
            )
        return None
    beyond = next((part for part in lag.partitions if part.is_beyond), None)
    if lag.is_anew or beyond is not None:
        where = (
            f": it is at {beyond.position} of partition {beyond.partition}, which ends at {beyond.end}"
            if beyond
            else ""
        )
        return (
            f"`{lag.topic}` was made again, and its position is about the topic that was{where}. Reading on would leave "
            "records out."
        )
    removed = sum(part.removed for part in lag.partitions)
    if removed:
        return f"{removed:,} offsets of `{lag.topic}` were removed before it came to them."
    return None


def _outlook(part: PartitionLag, lag: TopicLag, now: datetime, earlier: Earlier) -> Outlook:
    kept = lag.kept.total_seconds() if lag.kept else None
    if not lag.has_started:
        # Nobody reads: how fast others write changes nothing about what waits already.
        return outlook(Backlog(part.unread, part.age(now)), Speed(0, 0), kept)
    speed = _speed(part, lag.topic_id, now, earlier)
    if speed is None:
        return Outlook(None, 0.0 if kept is not None and part.age(now) >= kept else None)
    return outlook(Backlog(part.unread, part.age(now)), speed, kept)


def _speed(part: PartitionLag, topic_id: str, now: datetime, earlier: Earlier) -> Speed | None:
    """Of reader and writer since the reader was last level, or since the oldest measurement; None where nothing tells.

    A reader that is level is as slow as its topic, which says nothing about how fast it could be. A measurement from
    the future was made by a clock that was set back since.
    """
    since: Mapping[str, Any] | None = None
    for told in earlier:
        usable = (
            told.get(STARTED)
            and told.get(TOPIC_ID) == topic_id
            and told.get(MEASURED_AT, now.timestamp()) < now.timestamp()
        )
        if not usable:
            continue
        since = told
        if not told.get(UNREAD):
            break
    number = str(part.partition)
    if since is None or part.position is None or since[POSITIONS].get(number) is None:
        return None
    read, written = part.position - since[POSITIONS][number], part.end - since[ENDS][number]
    if read < 0 or written < 0:
        return None
    seconds = now.timestamp() - since[MEASURED_AT]
    return Speed(read / seconds, written / seconds)


def _told(ahead: Sequence[Outlook], lost: float | None) -> dict[str, Any]:
    levels = [each.caught_up for each in ahead]
    known = [level for level in levels if level is not None]
    return {
        **({"lag/lost_in_seconds": lost} if lost is not None else {}),
        **({"lag/caught_up_in_seconds": max(known)} if known and len(known) == len(levels) else {}),
    }


def _behind(told: Mapping[str, Any]) -> str:
    return (
        f"{told[UNREAD]:,} offsets and {duration(told['lag/seconds_max'])} behind in its worst partition, "
        f"{told['lag/offsets_total']:,} offsets in all."
    )


def _future(ahead: Sequence[Outlook], lost: float | None) -> str:
    if lost is not None:
        return f"; as fast as it reads now, the first records are removed unread in {duration(lost)}"
    levels = [each.caught_up for each in ahead]
    known = [level for level in levels if level is not None]
    if known and len(known) == len(levels):
        return f"; it is level again in {duration(max(known))}"
    return ""
