"""Sessions from a stream: what is open lies in the engine's state, and event time closes it. Pattern: Stateful Sessionizer.

Each visitor has one value of state (`STATE`): the session that is open, and visits that wait until the watermark has passed
them. Visits come in any order; they are taken in the order of their time, so that the sessions are those of one pass over
all visits, whatever the closing rules (`closing_rules`) and however the visits are cut into runs and micro-batches.

One timer per visitor, by event time: at the first visit that waits, or where the open session is over. Timers are set from
what visits say, never from the watermark, which is 1970 in a stream's first batch, and never from the clock of a machine: a
run that starts hours later, or is repeated, gives the same sessions.

A visit behind the watermark is dropped by the engine before it comes here, and counted (`stream/rows_too_late` of the write).
One that its producer dates further ahead than its clock may be wrong is left out before the watermark sees it: a single
visit from tomorrow would close every session and make late what comes today.

Field by field the state is written in Avro, so that a field added at the end is read as null from what an older version of
this code has left. `referral` is such a field.

Source: Spark's *Structured Streaming Programming Guide*, "transformWithState"; T. Akidau et al., *The Dataflow Model*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from de_assets.transforms.data_value.closing_rules import ClosedSession, OpenSession, Rules, Visit, Visitor
from de_assets.transforms.data_value.sessions import identified

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

STATE = "visitor"
"""The name of the one variable of the state."""
FIELDS = (
    "started_at LONG, ended_at LONG, visits LONG, first_page STRING, last_page STRING, "
    "waiting ARRAY<STRUCT<at: LONG, visit_id: STRING, page: STRING, referral: STRING>>, referral STRING"
)
"""What is remembered of a visitor; the first five are null where no session is open. New fields go to the end."""
CLOSED = (
    "user_id STRING, started_at LONG, ended_at LONG, visits LONG, first_page STRING, last_page STRING, "
    "first_referral STRING, closed_by STRING"
)
STATE_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.encodingFormat": "avro",
    }
)
"""What the engine has to be told for a query with this state, and for no other."""


@dataclass(frozen=True)
class Arrival:
    """How late a visit may come, and how far ahead of the broker's clock its producer's may be."""

    late: timedelta
    skew: timedelta


def usable_visits(visits: DataFrame, arrival: Arrival) -> DataFrame:
    """The visits that belong to a session: of a visitor, with an identity and a time, and not dated ahead of their arrival.

    `visits` has `user_id`, `visit_id`, `event_time` and `append_time`.
    """
    known = [F.col(name).isNotNull() for name in ("user_id", "visit_id", "event_time")]
    ahead = F.col("event_time") > F.col("append_time") + F.lit(arrival.skew)
    return visits.where(known[0] & known[1] & known[2] & ~ahead)


def stream_sessions(visits: DataFrame, rules: Rules, arrival: Arrival) -> DataFrame:
    """The sessions that are over, of a stream of visits: the columns of `sessions`, `first_referral` and `closed_by`.

    `visits` has also `page` and `referral`. Its query has to run with `STATE_SETTINGS`. Raises `ValueError` where a session
    may never end by the rules.
    """
    processor = SessionProcessor(rules)
    marked = usable_visits(visits, arrival).withWatermark("event_time", _delay(arrival.late))
    at = F.unix_micros("event_time").alias("at")
    # The engine drops what is late by the column with the watermark, so that it has to come along.
    plain = marked.select("user_id", at, "visit_id", "page", "referral", "event_time")
    closed = plain.groupBy("user_id").transformWithStateInPandas(processor, CLOSED, "Append", "eventTime")
    times = {name: F.timestamp_micros(name) for name in ("started_at", "ended_at")}
    return identified(closed.withColumns(times))


@dataclass(frozen=True)
class Account:
    """Where the visits are that a stream has read. `late_at_most`: before so many of them, much later ones had come."""

    visits: int
    in_closed_sessions: int
    in_open_sessions: int
    waiting: int
    late_at_most: int

    @property
    def missing(self) -> int:
        """The visits that are in no session; below zero: visits that are in two."""
        return self.visits - self.in_closed_sessions - self.in_open_sessions - self.waiting

    @property
    def balanced(self) -> bool:
        """Whether no visit is missing but those that can have come too late."""
        return 0 <= self.missing <= self.late_at_most


def account(visits: DataFrame, closed: DataFrame, state: DataFrame, arrival: Arrival) -> Account:
    """Reckon visits against sessions; asks the engine once for each.

    `visits` are those that the stream has read, `closed` what it wrote, `state` the values of `STATE`. What the engine counts
    as late dies with a run that is killed. So a visit can be late if one newer by `arrival.late` was taken before it, to the
    minute, give or take `arrival.skew` between brokers' clocks.
    """
    minute = F.call_function("div", F.unix_seconds("append_time"), F.lit(60)).alias("minute")
    each = (
        usable_visits(visits, arrival)
        .groupBy("user_id", "visit_id", "event_time")
        .agg(F.min("append_time").alias("append_time"))
    )
    each = each.select("event_time", minute)
    before = Window.orderBy("minute").rangeBetween(Window.unboundedPreceding, arrival.skew // timedelta(minutes=1))
    newest = each.groupBy("minute").agg(F.max("event_time").alias("newest"))
    reached = newest.select("minute", F.max("newest").over(before).alias("reached"))
    late = F.count_if(F.col("event_time") + F.lit(arrival.late) <= F.col("reached"))
    came = each.join(reached, "minute").agg(F.count("*").alias("visits"), late.alias("late_at_most")).first()
    over = closed.agg(F.coalesce(F.sum("visits"), F.lit(0)).alias("visits")).first()
    total, waits = F.sum("value.visits"), F.sum(F.size("value.waiting"))
    kept = state.agg(
        *(F.coalesce(each, F.lit(0)).alias(name) for name, each in (("visits", total), ("waiting", waits)))
    ).first()
    assert came and over and kept  # noqa: PT018, S101 - totals have one row
    return Account(came.visits, over.visits, kept.visits, kept.waiting, came.late_at_most)


class SessionProcessor(StatefulProcessor):
    """What the engine calls for each visitor with new visits, and when the visitor's timer is behind the watermark."""

    def __init__(self, rules: Rules, fields: str = FIELDS) -> None:
        Visitor(OpenSession(0, 0, 1, "", "")).wakes_at(rules)
        self.rules, self.fields = rules, fields

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._state = handle.getValueState(STATE, self.fields)

    def handleInputRows(  # noqa: N802 - the engine's name
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Keep the visits until the watermark has passed them."""
        known = self._known()
        came = known.came(visit for frame in rows for visit in _visits(frame))
        before, after = known.wakes_at(self.rules), came.wakes_at(self.rules)
        if before != after:
            self._wake(before, after)
        self._keep(came)
        yield from ()

    def handleExpiredTimer(  # noqa: N802 - the engine's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Take the visits that the watermark has passed, and tell the sessions that are over."""
        # What is as old as the watermark is late from now on: all up to it is known.
        left, closed = self._known().settled(timerValues.getCurrentWatermarkInMs() * 1000 + 1, self.rules)
        self._wake(None, left.wakes_at(self.rules))
        self._keep(left)
        if closed:
            yield pd.DataFrame([told(key[0], each) for each in closed])

    def close(self) -> None:
        """Nothing is open."""

    def _wake(self, before: int | None, after: int | None) -> None:
        """One timer instead of another; the engine removes by itself the one that has come."""
        if before is not None:
            self._handle.deleteTimer(_milliseconds(before))
        if after is not None:
            self._handle.registerTimer(_milliseconds(after))

    def _known(self) -> Visitor:
        kept = self._state.get()
        if kept is None:
            return Visitor()
        started, ended, visits, first, last, waiting, *more = kept
        session = None if started is None else OpenSession(started, ended, visits, first, last, *more)
        return Visitor(session, tuple(Visit(*each) for each in waiting))

    def _keep(self, visitor: Visitor) -> None:
        if visitor == Visitor():
            self._state.clear()
            return
        s = visitor.session
        session = (s.started_at, s.ended_at, s.visits, s.first_page, s.last_page) if s else (None,) * 5
        waiting = [(v.at, v.visit_id, v.page, v.referral) for v in visitor.waiting]
        self._state.update((*session, waiting, s.referral if s else None))


def _visits(frame: pd.DataFrame) -> Iterator[Visit]:
    columns = (frame[name] for name in ("at", "visit_id", "page", "referral"))
    return (Visit(int(at), visit_id, page, referral) for at, visit_id, page, referral in zip(*columns, strict=True))


def told(user_id: str, closed: ClosedSession) -> dict[str, Any]:
    """A session that is over in the columns of `CLOSED`."""
    s = closed.session
    return {
        "user_id": user_id,
        "started_at": s.started_at,
        "ended_at": s.ended_at,
        "visits": s.visits,
        "first_page": s.first_page,
        "last_page": s.last_page,
        "first_referral": s.referral,
        "closed_by": closed.closed_by,
    }


def _milliseconds(at: int) -> int:
    """Rounded up: the watermark has passed the instant when it has passed this."""
    return -(-at // 1000)


def _delay(late: timedelta) -> str:
    return f"{late / timedelta(milliseconds=1):.0f} milliseconds"
