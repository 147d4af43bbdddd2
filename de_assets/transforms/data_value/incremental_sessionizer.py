"""Sessions computed partition after partition, with the open ones carried from each to the next.

Pattern: Incremental Sessionizer. A partition is computed from its own visits and from the sessions that were open where it
begins, so that it costs what its visits cost, however long the history is. Any cuts of the same visits into partitions, and
of partitions into runs, give the sessions of one pass over all of them (`sessions`, which also says what a session is).

A session belongs to the window in which it is over, `ended_at` + gap: before, nobody can know whether it goes on. One
that is over exactly at the end of a window belongs to it. What is not over there is *open*, and is written
down with its totals up to there.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from de_assets.transforms.data_value.sessions import (
    GAP,
    NUMBER,
    PIECE,
    TIE,
    identified,
    numbered,
    over_at,
    pieces_of,
    totals,
)

WINDOW = "window_start"
"""The start of the window that a row belongs to."""
_FROM, _TO, _OVER_IN = "__de_from", "__de_to", "__de_over_in"


@dataclass(frozen=True)
class SessionWindows:
    """Consecutive stretches of time of one length: the partitions that a run computes together."""

    start: datetime
    length: timedelta
    count: int = 1

    @property
    def end(self) -> datetime:
        """The end of the last one."""
        return self.start + self.count * self.length

    def number_of(self, moment: Column) -> Column:
        """The number of the window, from 0, that has this moment."""
        return F.call_function("div", F.unix_micros(moment) - F.lit(_micros(self.start)), F.lit(self._ticks))

    def number_up_to(self, moment: Column) -> Column:
        """The number of the first window that has ended by this moment, if it is later than the start."""
        return F.call_function("div", F.unix_micros(moment) - F.lit(_micros(self.start) + 1), F.lit(self._ticks))

    def start_of(self, number: Column) -> Column:
        """When the window of this number starts."""
        return F.timestamp_micros(F.lit(_micros(self.start)) + number * F.lit(self._ticks))

    @property
    def _ticks(self) -> int:
        return self.length // timedelta(microseconds=1)


def closed_sessions(visits: DataFrame, before: DataFrame, windows: SessionWindows, gap: timedelta = GAP) -> DataFrame:
    """The sessions that are over in one of the windows: `window_start`, `session_id` and the columns `PIECE`.

    `visits` (`user_id`, `event_time`, `visit_id`, `page`) are all of the windows; others are left out. `before` (the columns
    `PIECE`) are the sessions that are open where the first window starts, at most one per visitor.
    """
    states = _states(visits, before, windows, gap)
    over = F.col("__de_next").isNull() & (F.col(_OVER_IN) < windows.count)
    return _in_window(states.where(over), windows, F.col(_OVER_IN))


def open_sessions(visits: DataFrame, before: DataFrame, windows: SessionWindows, gap: timedelta = GAP) -> DataFrame:
    """The sessions that are open at the end of each window, as far as they have come: columns as in `closed_sessions`.

    What a window leaves open is what the next one needs as `before`. Raises nothing; inputs are as in `closed_sessions`.
    """
    states = _states(visits, before, windows, gap)
    last = F.least(F.col(_OVER_IN) - 1, F.col("__de_next") - 1, F.lit(windows.count - 1))
    lasting = states.withColumn(_TO, last).where(F.col(_TO) >= F.col(_FROM))
    at_each_end = lasting.withColumn("__de_at", F.explode(F.sequence(_FROM, _TO)))
    return _in_window(at_each_end, windows, F.col("__de_at"))


def _states(visits: DataFrame, before: DataFrame, windows: SessionWindows, gap: timedelta) -> DataFrame:
    """Each session as far as it has come with each window that brought something: the columns `PIECE`, and

    `__de_from`, the number of that window; `__de_next`, that of the next window that brings something, else null;
    `__de_over_in`, that of the window in which it is over if nothing more comes.
    """
    within = (F.col("started_at") >= F.lit(windows.start)) & (F.col("started_at") < F.lit(windows.end))
    new = pieces_of(visits, "event_time", F.col("visit_id")).where(within)
    still_open = (over_at(gap) > F.lit(windows.start)) & (F.col("started_at") < F.lit(windows.start))
    carried = before.where(still_open).select(*PIECE, F.lit(None).cast("string").alias(TIE))
    # What was open before is known as of the first window, in which it is joined first.
    number = F.greatest(windows.number_of(F.col("started_at")), F.lit(0).cast("long"))
    pieces = numbered(new.unionByName(carried), gap).withColumn(_FROM, number)
    by_window = pieces.groupBy("user_id", NUMBER, _FROM).agg(*(t.alias(name) for name, t in totals().items()))
    ordered = Window.partitionBy("user_id", NUMBER).orderBy(_FROM)
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return by_window.select(
        "user_id",
        F.min("started_at").over(so_far).alias("started_at"),
        "ended_at",
        F.sum("visits").over(so_far).alias("visits"),
        F.first("first_page").over(so_far).alias("first_page"),
        "last_page",
        _FROM,
        F.lead(_FROM).over(ordered).alias("__de_next"),
    ).withColumn(_OVER_IN, windows.number_up_to(over_at(gap)))


def _in_window(states: DataFrame, windows: SessionWindows, number: Column) -> DataFrame:
    return identified(states.withColumn(WINDOW, windows.start_of(number)).select(WINDOW, *PIECE))


def _micros(moment: datetime) -> int:
    return (moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")) // timedelta(microseconds=1)
