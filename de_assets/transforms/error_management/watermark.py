"""Late Data Detector, streaming flavour: how far a stream has come, as a watermark that outlives the process.

Every source (a partition of a topic) is tracked by the greatest event time that it has brought; the sources are combined by
MIN or MAX; the watermark is that minus the allowed lateness, and never goes back. A *batch* is what the broker took at one
moment (`arrived`), and is judged by the watermark before it. A batch is thus a property of the stream and not of the run
that happens to read it: reading a stream in one go, in pieces, or again after a crash gives the same watermarks.

The state of a watermark is a `SourceProgress` per source: what it had brought before the newest batch, and in it, since the
next run may find more of that batch.

Source: pattern *Late Data Detector*. The engine's own `withWatermark` drops late rows in silence, and believes any date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from de_resources.sql.identifiers import identifier

BATCH = "batch"
WATERMARK = "watermark"


class Across(StrEnum):
    """Which source the watermark follows: the slowest, so that nothing is late for being behind others, or the fastest."""

    MIN = "min"
    MAX = "max"


class Future(StrEnum):
    """What an event that is dated in the future means for the watermark: its latest possible time, or nothing."""

    CAPPED = "capped"
    IGNORED = "ignored"


@dataclass(frozen=True)
class Stream:
    """The columns of a record: where it stands (`source`, `position`), when the broker took it, when it happened."""

    source: str
    position: str
    arrived: str
    event_time: str


@dataclass(frozen=True)
class Lateness:
    """What is late.

    `allowed`: how much older than the tracked time an event may be. `skew`: how far a producer's clock may be ahead of the
    broker's; what is further ahead is dated in the future. `idle_after`: a source that brought nothing for so long, while
    others did, is not waited for (MIN); broker times are compared, no clock is asked. `sources`: those that are waited
    for from the start; one that is not named takes part from its first record on.
    """

    allowed: timedelta
    across: Across = Across.MIN
    skew: timedelta = timedelta(minutes=5)
    idle_after: timedelta = timedelta(minutes=10)
    future: Future = Future.CAPPED
    sources: tuple[int, ...] = ()

    def conditions(self, stream: Stream) -> dict[str, str]:
        """What makes an event on time, in a frame with `watermark`: SQL predicates by name."""
        event, arrived = identifier(stream.event_time), identifier(stream.arrived)
        return {
            "not_late": f"{WATERMARK} IS NULL OR {event} >= {WATERMARK}",
            "not_in_the_future": f"unix_micros({event}) <= unix_micros({arrived}) + {_micros(self.skew)}",
        }


@dataclass(frozen=True)
class SourceProgress:
    """How far one source has come: the greatest event time, and the broker's time at which it was last seen.

    Both as of before the newest batch, and of the newest batch alone. Microseconds; None: nothing.
    """

    tracked: int | None = None
    seen: int | None = None
    newest_tracked: int | None = None
    newest_seen: int | None = None


def in_batches(records: DataFrame, stream: Stream, opened: int) -> DataFrame:
    """Records with `batch`, the moment at which the broker took them. `opened`: the newest batch so far, microseconds.

    A record that became visible after later ones of other sources (in a transaction that stayed open) is judged when it
    is seen: it belongs to the newest batch.
    """
    return records.withColumn(BATCH, F.greatest(F.col(stream.arrived), moment(opened)))


def latest_possible(stream: Stream, lateness: Lateness) -> Column:
    """The event time, at most the broker's plus the tolerated skew."""
    return F.least(F.col(stream.event_time), shifted(F.col(stream.arrived), lateness.skew))


def reached(
    records: DataFrame,
    stream: Stream,
    lateness: Lateness,
    *,
    marks: Mapping[int, SourceProgress],
    opened: int,
    so_far: int | None,
) -> DataFrame:
    """One row per `batch` of the records, with the `watermark` that judges it: of what came before it, never behind `so_far`.

    `marks` has every source of the records, and those that are waited for; `opened` is the newest batch that they know of.
    Null while nothing is known: of no source, or, by MIN, of one that is waited for. A record without an event time, and
    one dated in the future where these are ignored, is no sign of life. Further columns are for `marks_after`. Costs one
    grouping by batch and one ordered pass over the batches.
    """
    batches = records.groupBy(BATCH).agg(*_brought(marks, stream, lateness))
    earlier = Window.orderBy(BATCH).rowsBetween(Window.unboundedPreceding, -1)
    known = [
        column
        for source, mark in marks.items()
        for column in (
            _before(f"tracked_{source}", mark.tracked, mark.newest_tracked, opened, earlier),
            _before(f"seen_{source}", mark.seen, mark.newest_seen, opened, earlier),
        )
    ]
    tracked = batches.select("*", *known).withColumn(WATERMARK, _combined(lateness, list(marks)))
    until_now = Window.orderBy(BATCH).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    latest = F.max(F.col(WATERMARK) - _micros(lateness.allowed)).over(until_now)
    return tracked.withColumn(WATERMARK, F.timestamp_micros(F.greatest(latest, _number(so_far))))


def marks_after(
    newest: Row, marks: Mapping[int, SourceProgress], opened: int, opened_before: int
) -> dict[int, SourceProgress]:
    """The marks as of the last row of `reached`, the batch `opened`."""
    after = {}
    for source, mark in marks.items():
        tracked, seen = newest[f"brought_{source}"], newest[f"alive_{source}"]
        if opened == opened_before:
            tracked, seen = _greatest(tracked, mark.newest_tracked), _greatest(seen, mark.newest_seen)
        after[source] = SourceProgress(newest[f"tracked_{source}"], newest[f"seen_{source}"], tracked, seen)
    return after


def _brought(marks: Mapping[int, SourceProgress], stream: Stream, lateness: Lateness) -> list[Column]:
    latest = latest_possible(stream, lateness)
    event = F.col(stream.event_time)
    believed = event if lateness.future == Future.IGNORED else latest
    counts = F.when(event.isNotNull() & (believed == latest), F.unix_micros(believed))
    return [
        column
        for source in marks
        for own in [F.when(F.col(stream.source) == source, counts)]
        for column in (
            F.max(own).alias(f"brought_{source}"),
            F.max(F.when(own.isNotNull(), F.unix_micros(BATCH))).alias(f"alive_{source}"),
        )
    ]


def _before(name: str, mark: int | None, newest: int | None, opened: int, earlier: WindowSpec) -> Column:
    """What was known before a batch: of the marks, and of the records of earlier batches."""
    brought = name.replace("tracked", "brought").replace("seen", "alive")
    of_newest = F.when(F.unix_micros(BATCH) > opened, _number(newest))
    return F.greatest(_number(mark), of_newest, F.max(brought).over(earlier)).alias(name)


def _combined(lateness: Lateness, sources: list[int]) -> Column:
    tracked = [F.col(f"tracked_{source}") for source in sources]
    if lateness.across == Across.MAX:
        return F.array_max(F.array(*tracked))
    silent = [F.unix_micros(BATCH) - F.col(f"seen_{source}") for source in sources]
    alive = [F.coalesce(each <= _micros(lateness.idle_after), F.lit(False)) for each in silent]
    each = list(zip(alive, tracked, strict=True))
    nothing_yet = reduce(or_, [is_alive & time.isNull() for is_alive, time in each])
    return F.when(~nothing_yet, F.array_min(F.array(*(F.when(is_alive, time) for is_alive, time in each))))


def shifted(time: Column, by: timedelta) -> Column:
    """A time plus a duration, whatever the session's time zone thinks of days."""
    return F.timestamp_micros(F.unix_micros(time) + _micros(by))


def moment(micros: int | None) -> Column:
    """A time from its microseconds."""
    return F.timestamp_micros(_number(micros))


def _number(value: int | None) -> Column:
    return F.lit(value).cast("long")


def _greatest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _micros(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
