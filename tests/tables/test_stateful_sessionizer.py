"""Sessions of a stream, run by run, against plain Python over all visits at once: what is open lies in the engine's state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from session_oracle import Session, Visit, session_of, sessions_of

from de_assets.transforms.data_value import closing_rules as rules_of_today
from de_assets.transforms.data_value import stateful_sessionizer
from de_assets.transforms.data_value.closing_rules import (
    ClosingPage,
    GreatestLength,
    Inactivity,
    OpenSession,
    Rules,
    Visitor,
)
from de_assets.transforms.data_value.stateful_sessionizer import (
    STATE_SETTINGS,
    Arrival,
    SessionProcessor,
    stream_sessions,
    usable_visits,
)
from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write.stream import run_available_now

pytestmark = pytest.mark.pattern("stateful_sessionizer")

START = datetime(2026, 3, 28, 22, tzinfo=UTC)
GAP = timedelta(minutes=30)
LONGEST = timedelta(hours=2)
ARRIVAL = Arrival(late=timedelta(minutes=30), skew=timedelta(minutes=5))
VISITS = "user_id STRING, event_time TIMESTAMP, visit_id STRING, page STRING, referral STRING, append_time TIMESTAMP"
INSTANT = pa.timestamp("us", tz="UTC")
ARRIVED = pa.schema(
    [
        ("user_id", pa.string()),
        ("event_time", INSTANT),
        ("visit_id", pa.string()),
        ("page", pa.string()),
        ("referral", pa.string()),
        ("append_time", INSTANT),
    ]
)


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


@dataclass
class Stream:
    """A folder of visits, a file for each time that some come, and the table into which their sessions are drained."""

    spark: SparkSession
    root: Path
    rules: Rules = (Inactivity(GAP), GreatestLength(LONGEST), ClosingPage(frozenset({"logout"})))

    def come(self, *visits: Visit, referral: str | None = None, beside: Iterable[tuple[Any, ...]] = ()) -> None:
        rows = [*((v.user_id, v.at, v.visit_id, v.page, referral, v.at) for v in visits), *beside]
        columns = dict(zip(ARRIVED.names, zip(*rows, strict=True), strict=True))
        self.visits.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns, schema=ARRIVED), self.visits / f"{uuid4().hex}.parquet")

    def frame(self) -> DataFrame:
        visits = self.spark.readStream.schema(VISITS).parquet(str(self.visits))
        return stream_sessions(visits, self.rules, ARRIVAL)

    def drain(self) -> Written:
        run = uuid4().hex
        stamp = CommitInfo("gold.found", "found", "all", run, run, run)
        return run_available_now(self.spark, self.table, self.frame(), stamp, settings=STATE_SETTINGS)

    @property
    def visits(self) -> Path:
        return self.root / "visits"

    @property
    def table(self) -> Table:
        return Table("gold.found", str(self.root / "found"))

    def rows(self) -> list[dict[str, Any]]:
        return DeltaTable(self.table.uri).to_pyarrow_table().to_pylist()


@pytest.fixture
def stream(spark: SparkSession, lake: Path, one_shuffle_partition: None) -> Stream:
    return Stream(spark, lake)


def made(chance: Random, user: str, hours: float, pauses: Sequence[float], pages: Sequence[str]) -> list[Visit]:
    """Visits of one user, whose pauses in minutes and pages are taken by chance."""
    found: list[Visit] = []
    minute = chance.uniform(0, 60)
    while minute < hours * 60:
        found.append(Visit(at(minute), f"{user} {len(found):03}", user, chance.choice(pages)))
        minute += chance.choice(pauses)
    return found


def in_arrivals(visits: Iterable[Visit], count: int, chance: Random) -> list[list[Visit]]:
    """The visits in `count` arrivals, in no order, each up to half an hour later than others."""
    came = sorted(visits, key=lambda v: v.at + timedelta(minutes=chance.uniform(0, 29)))
    size = -(-len(came) // count)
    arrivals = [came[start : start + size] for start in range(0, len(came), size)]
    for each in arrivals:
        chance.shuffle(each)
    return arrivals


def by_rules(visits: Iterable[Visit]) -> set[tuple[Session, str]]:
    """Sessions by all three rules, visit after visit, with the rule that closed each. It shares no code with the rules."""
    found: set[tuple[Session, str]] = set()
    by_user: dict[str, list[Visit]] = {}
    for visit in sorted(visits):
        by_user.setdefault(visit.user_id, []).append(visit)
    for user, rest in by_user.items():
        while rest:
            run = [rest.pop(0)]
            while rest and _goes_on(run, rest[0]):
                run.append(rest.pop(0))
            session = Session(user, run[0].at, run[-1].at, len(run), run[0].page, run[-1].page)
            if run[-1].page == "logout":
                why = "closing_page"
            else:
                why = "inactivity" if run[-1].at + GAP <= run[0].at + LONGEST else "greatest_length"
            found.add((session, why))
    return found


def _goes_on(run: Sequence[Visit], visit: Visit) -> bool:
    same_instant = visit.at == run[-1].at
    return same_instant or (run[-1].page != "logout" and visit.at - run[-1].at < GAP and visit.at - run[0].at < LONGEST)


def without_referral(rules: Rules) -> SessionProcessor:
    """The processor as it was before the state knew of referrals."""

    class Before(SessionProcessor):
        """Workers cannot import tests: a class that is local goes to them as it is."""

        def _known(self) -> Visitor:
            if not self._state.exists():
                return Visitor()
            *session, waiting = self._state.get()
            rest = tuple(rules_of_today.Visit(*each) for each in waiting)
            return Visitor(None if session[0] is None else OpenSession(*session), rest)

        def _keep(self, visitor: Visitor) -> None:
            if visitor == Visitor():
                self._state.clear()
                return
            s = visitor.session
            session = (s.started_at, s.ended_at, s.visits, s.first_page, s.last_page) if s else (None,) * 5
            self._state.update((*session, [(v.at, v.visit_id, v.page) for v in visitor.waiting]))

    fields = (
        "started_at LONG, ended_at LONG, visits LONG, first_page STRING, last_page STRING, "
        "waiting ARRAY<STRUCT<at: LONG, visit_id: STRING, page: STRING>>"
    )
    return Before(rules, fields)


BAD = [
    # Null where a key or a time should be.
    (None, 1, "n0", "a", 1),
    (None, 2, "n1", "a", 2),
    ("eve", 3, None, "a", 3),
    ("eve", None, "n2", "a", 4),
    # Dated a day ahead, and a moment more than a clock may be wrong.
    ("mallory", 24 * 60, "n3", "a", 5),
    ("mallory", 10.001, "n4", "a", 5),
]
"""User, minute, identity, page and minute of the arrival of what is no visit."""


def raw(user: str | None, minute: float | None, visit_id: str | None, page: str, taken: float) -> tuple[Any, ...]:
    return (user, None if minute is None else at(minute), visit_id, page, None, at(taken))


def test_any_arrivals_give_the_sessions_of_one_pass_also_from_a_state_of_before(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visits around the gap, on it, at one instant; copies; no order. The first run is of code that knew one field less.

    What is no visit comes among the first: it begins no session, and holds nobody's up.
    """
    chance = Random(7)  # noqa: S311 - the same visits every time
    plain = [
        v for n in range(20) for v in made(chance, f"plain {n}", 5, [0, 1e-6, 5, 29.99999, 30, 30.00001, 45], "ab")
    ]
    ruled = [v for n in range(20) for v in made(chance, f"ruled {n}", 5, [0, 5, 20, 29.9, 31], ["a", "b", "logout"])]
    first, second = in_arrivals([*plain, *ruled], 2, chance)
    with monkeypatch.context() as before:
        before.setattr(stateful_sessionizer, "SessionProcessor", without_referral)
        stream.come(*first, *first[:5], beside=[raw(*each) for each in BAD])
        told = [stream.drain()]
    # The first batch has no watermark. All are remembered, and what is found is over by a time that visits told.
    # A visit of much later comes with the rest: nothing is late before a batch is over, and then all is over but this.
    last = Visit(at(24 * 60), "last", "nobody else", "a")
    stream.come(*second, *first[-5:], *second[:5], last, referral="https://there")
    told.append(stream.drain())
    rows = stream.rows()
    found = {(session_of(row), row["closed_by"]) for row in rows}
    assert len(found) == len(rows)
    assert found == by_rules([*plain, *ruled])
    assert {each for each, _ in found if each.user_id.startswith("plain")} == sessions_of(plain, GAP)
    assert {why for _, why in found} == {"inactivity", "closing_page", "greatest_length"}
    begun = {v.visit_id for v in first}
    for row in rows:
        (visit,) = [v for v in (*plain, *ruled) if (v.user_id, v.at) == (row["user_id"], row["started_at"])][:1]
        assert row["first_referral"] == (None if visit.visit_id in begun else "https://there")
    # What is open at the end is one visitor's visit; nothing of the others is left.
    passed = max(v.at for v in first) - ARRIVAL.late
    copies = sum(v.at <= passed for v in first[-5:])
    assert [each.details["stream/rows_too_late"] for each in told] == [0, copies]
    assert 0 < int(told[0].details["stream/state_rows"]) <= len({v.user_id for v in first})
    assert told[-1].details["stream/state_rows"] == 1


def test_visits_of_nobody_of_no_time_or_of_tomorrow_are_none_and_one_that_is_as_far_ahead_as_a_clock_may_be_is(
    spark: SparkSession,
) -> None:
    told = [*BAD, ("ann", 0, "v0", "a", 0), ("bob", 10, "v1", "a", 5)]
    frame = spark.createDataFrame([raw(*each) for each in told], VISITS)
    assert {row.visit_id for row in usable_visits(frame, ARRIVAL).collect()} == {"v0", "v1"}
