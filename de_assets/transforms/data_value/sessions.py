"""What a session is: the one definition that every sessionizer here follows, and the plainest way to compute it.

A session is the visits of one visitor that follow each other by pauses shorter than the *gap*.

Gap: 30 minutes (`GAP`) unless a caller says otherwise. A pause of exactly the gap already parts two sessions.

Clock: the column by which pauses are measured. `gold/sessions` goes by the time of the visit, `gold/sessions_live` by the
time at which the broker took it. A session is never measured by two clocks.

Closing: a session is over at `ended_at` + gap. From then on no visit that happens can belong to it, so that it is closed as
soon as all visits before that instant are known. Nothing else closes it: no midnight, no end of a partition or of a run, no
wall clock. `closing_rules` can end it earlier, at a logout or a greatest length; only `gold/sessions_stream` has such rules.

Identity: `session_id` is the key (`stable_key`) of the visitor and of the clock's time of the first visit, in ticks of that
clock. It does not change when the session grows, nor when anything is run again.

Order: visits of one instant are ordered by a `tie`, so that first and last page are the same on every run.

Late visits: a visit belongs where its clock puts it, whenever it comes. It makes a session longer, begins one, or joins two
to one, which keeps the identity of the earlier one; before the first visit of a session, it gives it a new identity. Who
computes by partitions computes the visit's partition again, and those after it for as long as they are asked for. A stream
drops what is behind its watermark, and counts it. By the broker's clock no visit is late.

Left out: a visit without a visitor or without a time belongs to no session; nobody's visits are not one session.

Ways to compute it, which give the same rows: `sessions` here, in one go over all visits; `incremental_sessionizer`,
partition after partition; `append_time_sessionizer`, increment after increment of a topic. They share `joined`. And
`stateful_sessionizer`, visit after visit of a stream, with the rule `Inactivity(GAP)` alone.

Source: the gap-and-island method over window functions; session windows as in T. Akidau et al., *The Dataflow Model*.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from de_resources.stable_key import stable_key_column

GAP = timedelta(minutes=30)
PIECE = ("user_id", "started_at", "ended_at", "visits", "first_page", "last_page")
"""The columns that every piece of a session has: a single visit, or what was joined before."""
TIE, NUMBER = "__de_tie", "__de_session"
_NO_MORE: Mapping[str, Column] = MappingProxyType({})


def sessions(visits: DataFrame, gap: timedelta = GAP, *, at: str = "event_time", tie: str = "visit_id") -> DataFrame:
    """All sessions of the visits, in one go: `session_id`, `user_id`, `started_at`, `ended_at`, `visits`, first and last page.

    `visits` needs `user_id`, `page`, the clock `at` and the `tie`. One row per session, open ones too.
    """
    return identified(joined(pieces_of(visits, at, F.col(tie)), gap))


def pieces_of(visits: DataFrame, at: str, tie: Column, *kept: Column) -> DataFrame:
    """Each visit as the piece of a session that it is alone: the columns `PIECE` and `TIE`, and what is `kept` of it."""
    known = visits.where(F.col("user_id").isNotNull() & F.col(at).isNotNull())
    moment, page = F.col(at), F.col("page")
    one = F.lit(1).cast("long")
    return known.select(
        "user_id",
        moment.alias("started_at"),
        moment.alias("ended_at"),
        one.alias("visits"),
        page.alias("first_page"),
        page.alias("last_page"),
        tie.alias(TIE),
        *kept,
    )


def numbered(pieces: DataFrame, gap: timedelta) -> DataFrame:
    """Pieces that do not overlap, with the number (`NUMBER`) that those of one session share among a visitor's."""
    ordered = Window.partitionBy("user_id").orderBy("started_at", TIE)
    previous = F.lag("ended_at").over(ordered)
    begins = F.when(previous.isNull() | (F.col("started_at") >= previous + F.lit(gap)), 1).otherwise(0)
    return pieces.withColumn("__de_begins", begins).withColumn(NUMBER, F.sum("__de_begins").over(ordered))


def totals() -> dict[str, Column]:
    """What a session's pieces add up to, by column."""
    place = F.struct("started_at", TIE)
    return {
        "visits": F.sum("visits"),
        "first_page": F.min_by("first_page", place),
        "last_page": F.max_by("last_page", place),
        "started_at": F.min("started_at"),
        "ended_at": F.max("ended_at"),
    }


def joined(pieces: DataFrame, gap: timedelta, further: Mapping[str, Column] = _NO_MORE) -> DataFrame:
    """Pieces that do not overlap, joined wherever the pause between two is shorter than the gap. One row per session.

    `further` are aggregates of what else the pieces have, by the name of their column.
    """
    wanted = [total.alias(name) for name, total in {**totals(), **further}.items()]
    found = numbered(pieces, gap).groupBy("user_id", NUMBER).agg(*wanted)
    return found.select(*PIECE, *further)


def identified(found: DataFrame) -> DataFrame:
    """Sessions by event time with their `session_id`, which comes first."""
    return found.select(session_id(F.unix_micros("started_at")).alias("session_id"), *found.columns)


def session_id(ticks: Column) -> Column:
    """The identity of the session of `user_id` whose first visit was at this tick of its clock."""
    return stable_key_column(F.col("user_id"), ticks)


def over_at(gap: timedelta) -> Column:
    """When the session is over: no visit from this instant on belongs to it."""
    return F.col("ended_at") + F.lit(gap)
