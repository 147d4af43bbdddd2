"""Two streams joined within a bound of time, with a state that ends. Pattern: Dynamic Joiner.

What is joined is what the records say about their own time, whatever order they came in. A record on the left waits for its
matches until none can come any more, and then comes out alone; one on the right is kept for as long as a record on the left
may still ask for it. How far time has come is each side's newest time, less what may be late - the watermark - and the
side that is behind counts for both, lest what is on its way there be lost.

A side on which nothing happens would hold up the other one for ever. So each side is told of the other's time as well: it is
taken to have come at least as far as that, less `idle_after`. No clock but that of the records is asked, so that a rerun and
a replay see the same.

Source: Spark's *Structured Streaming Programming Guide*, "Outer Joins with Watermarking"; pattern *Dynamic Joiner*.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_resources.sql.identifiers import identifier

_AT, _TOLD, _ON = "__at", "__told_by_the_other_side", "__on"


@dataclass(frozen=True)
class StreamSide:
    """A stream: its records, the column with their time, the one with their identity, and when each was taken."""

    records: DataFrame
    time: str
    key: str
    arrived: str


@dataclass(frozen=True)
class TimeBound:
    """How long after the record on the left the one on the right may come, both ends included; and what is too late.

    `late`: how far behind the newest record of its side one may be. `idle_after`: how far a side may be behind the other
    one before it is taken for idle. `skew`: how far a producer's clock may be ahead; one that is further says nothing about
    how far time has come, and its record is left out.
    """

    within: timedelta
    late: timedelta
    idle_after: timedelta
    skew: timedelta


def join_streams(left: StreamSide, right: StreamSide, on: tuple[str, str], bound: TimeBound) -> DataFrame:
    """Every record on the left with each record on the right of the same `on` in the bound, or once without one.

    The columns of both sides, whose names differ; of `on` that of the left one. A copy, by `key`, is dropped. A record
    without time or identity is left out, one without `on` matches nothing. What is later than `late` is dropped, and
    counted by the engine (`stream/rows_too_late` of the write).
    """
    came, answers = _came(left, right, bound).withColumnRenamed(on[0], _ON), _came(right, left, bound)
    kept = [c for c in right.records.columns if c != on[1]]
    asked, answered = came[_AT], answers[_AT]
    matches = (
        (came[_ON] == answers[identifier(on[1])]) & (answered >= asked) & (answered <= asked + _interval(bound.within))
    )
    joined = came.join(answers, matches, "left")
    own = [F.col(_ON).alias(c) if c == on[0] else _column(c) for c in left.records.columns]
    return joined.select(*own, *map(_column, kept))


def _came(side: StreamSide, other: StreamSide, bound: TimeBound) -> DataFrame:
    """The usable records of a side, each once, behind a watermark that the other side moves as well."""
    own = _usable(side, bound).withColumns({_AT: _column(side.time), _TOLD: F.lit(None).cast("timestamp")})
    reached = _column(other.time) - _interval(bound.idle_after)
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in side.records.schema]
    told = _usable(other, bound).select(*nothing, reached.alias(_AT), reached.alias(_TOLD))
    marked = own.unionByName(told).withWatermark(_AT, _text(bound.late))
    # It looks at the marked time, so that the engine does not remove what only tells before the watermark has seen it.
    is_own = F.coalesce(F.col(_TOLD) < F.col(_AT), F.lit(True))
    return marked.where(is_own).drop(_TOLD).dropDuplicatesWithinWatermark([side.key])


def _usable(side: StreamSide, bound: TimeBound) -> DataFrame:
    on_time = _column(side.time) <= _column(side.arrived) + _interval(bound.skew)
    return side.records.where(on_time & _column(side.key).isNotNull())


def _interval(length: timedelta) -> Column:
    return F.expr(f"INTERVAL '{length.total_seconds():f}' SECOND")


def _text(length: timedelta) -> str:
    return f"{length / timedelta(milliseconds=1):.0f} milliseconds"


def _column(name: str) -> Column:
    return F.col(identifier(name))
