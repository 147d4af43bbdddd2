"""One meaning of a session: however it is computed, and however visits are cut, it is what plain Python makes of all visits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from session_oracle import Session, Visit, closed_within, open_at, session_of, sessions_of

from de_assets.transforms.data_value.incremental_sessionizer import (
    WINDOW,
    SessionWindows,
    closed_sessions,
    open_sessions,
)
from de_assets.transforms.data_value.sessions import GAP, PIECE, sessions
from de_assets.transforms.idempotency.append_time_sessionizer import EVENTS, KNOWN, continued_sessions
from de_resources.engine.utc_rows import utc_rows

pytestmark = [pytest.mark.pattern("incremental_sessionizer"), pytest.mark.usefixtures("one_shuffle_partition")]

START = datetime(2026, 3, 28, tzinfo=UTC)
SECOND = timedelta(seconds=1)
VISITS = "user_id STRING, event_time TIMESTAMP, visit_id STRING, page STRING"
PENDING = "user_id STRING, started_at TIMESTAMP, ended_at TIMESTAMP, visits BIGINT, first_page STRING, last_page STRING"
WINDOWS = 4
GAPS = (30, 60, 120)
LOG = Path(__file__).parents[4] / "shared" / "data" / "blog_access.log"
COMBINED = re.compile(r'(\S+) \S+ \S+ \[([^]]+)\] "\S+ (\S+)[^"]*" \d+ \S+ "[^"]*" "([^"]*)"')
SLOW = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def visit(user: str, second: float, number: int = 0) -> Visit:
    return Visit(START + second * SECOND, f"v{number:05}", user, f"/{number % 7}")


def frame_of(spark: SparkSession, visits: Iterable[Visit]) -> DataFrame:
    """In one part, as the partitions that a shuffle makes here are: nothing has to be moved."""
    return spark.createDataFrame([(v.user_id, v.at, v.visit_id, v.page) for v in visits], VISITS).coalesce(1)


@st.composite
def histories(draw: st.DrawFn, until: int) -> list[Visit]:
    """Visits of some visitors, on whole seconds: pauses of exactly the gap, and visits on a cut, are common."""
    by_user = draw(st.lists(st.lists(st.integers(0, until - 1), min_size=1, max_size=9), min_size=4, max_size=24))
    moments = [(user, second) for user, seconds in enumerate(by_user) for second in seconds]
    return [visit(f"u{user}", second, number) for number, (user, second) in enumerate(moments)]


@dataclass
class Tables:
    """`gold/sessions` and `gold/sessions_pending` as the platform keeps them: runs replace the partitions that they own."""

    spark: SparkSession
    length: timedelta
    gap: timedelta
    visits: list[Visit] = field(default_factory=list)
    closed: dict[int, set[Session]] = field(default_factory=dict)
    pending: dict[int, set[Session]] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)

    def land(self, visits: Iterable[Visit]) -> None:
        """Visits come; whoever was computed without them is asked for again."""
        for each in visits:
            self.visits.append(each)
            self.asked.add((each.at - START) // self.length)

    def may_run(self, first: int) -> bool:
        return first == 0 or first - 1 in self.pending

    def run(self, first: int, last: int) -> None:
        """One run over consecutive partitions."""
        windows = SessionWindows(START + first * self.length, self.length, last - first + 1)
        # As the platform reads: the run's own partitions of visits, and what the partition before has left.
        own = [v for v in self.visits if windows.start <= v.at < windows.end]
        left = self.pending.get(first - 1, set())
        before = self.spark.createDataFrame([tuple(vars(each).values()) for each in left], PENDING).coalesce(1)
        visits = frame_of(self.spark, own)
        closed = closed_sessions(visits, before, windows, self.gap).withColumn("is_open", F.lit(False))
        pending = open_sessions(visits, before, windows, self.gap).withColumn("is_open", F.lit(True))
        rows = utc_rows(closed.unionByName(pending))
        runs = set(range(first, last + 1))
        for table, is_open in ((self.closed, False), (self.pending, True)):
            written = self._by_window(row for row in rows if row["is_open"] == is_open)
            assert set(written) <= runs, "a run writes its own partitions alone"
            table.update({number: written.get(number, set()) for number in runs})
        self.asked -= runs
        if last + 1 in self.pending:
            self.asked.add(last + 1)

    def _by_window(self, rows: Iterable[dict[str, Any]]) -> dict[int, set[Session]]:
        found: dict[int, set[Session]] = defaultdict(set)
        for row in rows:
            number, each = (row[WINDOW] - START) // self.length, session_of(row)
            assert each not in found[number]
            found[number].add(each)
        return found

    def require_truth(self, windows: int) -> None:
        for number in range(windows):
            start, end = START + number * self.length, START + (number + 1) * self.length
            assert self.closed[number] == closed_within(self.visits, start, end, self.gap)
            assert self.pending[number] == open_at(self.visits, end, self.gap)


def cut_and_run(spark: SparkSession, data: st.DataObject) -> None:
    """Visits come late, partitions are run again in any order that has a partition before it, and what is asked for is run."""
    length, gap = data.draw(st.sampled_from([(60, 10), (12, 10), (10, 10), (7, 10)]), "window and gap")
    tables = Tables(spark, length * SECOND, gap * SECOND)
    visits = data.draw(histories(WINDOWS * length))
    late = data.draw(st.sets(st.integers(0, len(visits) - 1), max_size=len(visits) // 2), "late")
    tables.land(v for n, v in enumerate(visits) if n not in late)
    for number in data.draw(st.sampled_from([[(0, 3)], [(0, 0), (1, 3)], [(0, 1), (2, 3)]]), "first runs"):
        tables.run(*number)
    tables.land(visits[n] for n in sorted(late))
    for first in data.draw(st.lists(st.integers(0, WINDOWS - 1), max_size=2), "reruns"):
        tables.run(first, data.draw(st.integers(first, WINDOWS - 1), "to"))
    while tables.asked:
        first = min(tables.asked)
        tables.run(first, data.draw(st.sampled_from([WINDOWS - 1, first]), "asked to"))
    tables.require_truth(WINDOWS)
    in_one_go = {session_of(row) for row in utc_rows(sessions(frame_of(spark, visits), tables.gap))}
    assert in_one_go == sessions_of(visits, tables.gap)
    assert set().union(*tables.closed.values(), tables.pending[WINDOWS - 1]) == in_one_go


@settings(SLOW, max_examples=2)
@given(data=st.data())
def test_any_cuts_and_any_order_of_runs_give_the_sessions_of_one_go(spark: SparkSession, data: st.DataObject) -> None:
    cut_and_run(spark, data)


def test_cuts_and_orders_of_any_seed_give_the_sessions_of_one_go(spark: SparkSession, soak_seed: int) -> None:
    @seed(soak_seed)
    @settings(SLOW, max_examples=12, derandomize=False, database=None)
    @given(data=st.data())
    def of_this_seed(data: st.DataObject) -> None:
        cut_and_run(spark, data)

    of_this_seed()


@SLOW
@given(visits=histories(120), cuts=st.lists(st.integers(1, 119), max_size=2, unique=True))
@pytest.mark.pattern("keyed_idempotency")
def test_sessions_by_the_brokers_clock_are_the_same_where_the_clocks_agree(
    spark: SparkSession, visits: list[Visit], cuts: list[int]
) -> None:
    gap, known, since = 10 * SECOND, [], START
    found: dict[str, dict[str, Any]] = {}
    for until in [*(START + cut * SECOND for cut in sorted(cuts)), START + 200 * SECOND]:
        events = [(v.user_id, v.at, 0, int(v.visit_id[1:]), v.at, v.page) for v in visits if since <= v.at < until]
        known = [
            tuple(row[c.strip().split(" ")[0]] for c in KNOWN.split(","))
            for row in found.values()
            if row["ended_at"] > since - gap
        ]
        rows = continued_sessions(
            spark.createDataFrame(events, EVENTS), spark.createDataFrame(known, KNOWN), until, gap
        )
        found |= {row["session_id"]: row for row in utc_rows(rows)}
        since = until
    names = list(Session.__dataclass_fields__)
    assert {Session(*(row[name] for name in names)) for row in found.values()} == sessions_of(visits, gap)
    assert all(row["is_closed"] for row in found.values())


@pytest.mark.skipif(not LOG.exists(), reason="the shared real log ../shared/data/blog_access.log is not here")
class TestRealLog:
    """Four days of a real blog, cut at every midnight, beside a plain count of pauses."""

    @pytest.fixture(scope="class")
    def visits(self) -> list[Visit]:
        matches = (COMBINED.match(line) for line in LOG.read_text(errors="replace").splitlines())
        return [
            Visit(datetime.strptime(m[2], "%d/%b/%Y:%H:%M:%S %z"), f"v{number:05}", f"{m[1]} {m[4]}", m[3])
            for number, m in enumerate(matches)
            if m is not None
        ]

    @pytest.fixture(scope="class")
    def frame(self, spark: SparkSession, visits: list[Visit]) -> Iterator[DataFrame]:
        """Moved to the engine once."""
        frame = frame_of(spark, visits).persist()
        yield frame
        frame.unpersist()

    @pytest.mark.parametrize("minutes", GAPS)
    def test_the_number_of_sessions_is_that_of_the_pauses(
        self, frame: DataFrame, visits: list[Visit], minutes: int
    ) -> None:
        gap = timedelta(minutes=minutes)
        moments: dict[str, list[datetime]] = defaultdict(list)
        for each in visits:
            moments[each.user_id].append(each.at)
        expected = 0
        for times in map(sorted, moments.values()):
            expected += 1 + sum(later - earlier >= gap for earlier, later in pairwise(times))
        assert sessions(frame, gap).count() == expected
        if minutes == max(GAPS):
            assert sum(self._day_after_day(frame, gap)) == expected

    def _day_after_day(self, frame: DataFrame, gap: timedelta) -> Iterator[int]:
        """Sessions that ended, by two runs of two days each; and those that are open after the last day."""
        spark, day = frame.sparkSession, timedelta(days=1)
        before = spark.createDataFrame([], PENDING)
        for first in (datetime(2015, 5, 17, tzinfo=UTC), datetime(2015, 5, 19, tzinfo=UTC)):
            windows = SessionWindows(first, day, 2)
            left = open_sessions(frame, before, windows, gap).where(F.col(WINDOW) == F.lit(first + day))
            parts = enumerate((closed_sessions(frame, before, windows, gap), left))
            closed, carried = (part.select(F.lit(n).alias("part"), *PIECE) for n, part in parts)
            rows = [tuple(row) for row in closed.unionByName(carried).collect()]
            yield sum(row[0] == 0 for row in rows)
            before = spark.createDataFrame([row[1:] for row in rows if row[0] == 1], PENDING)
        yield sum(row[0] == 1 for row in rows)


class TestBadInput:
    """What a frame may hold that it should not."""

    DAY = SessionWindows(START, timedelta(days=1))

    def closed(self, visits: DataFrame, before: Iterable[tuple[Any, ...]] = ()) -> list[dict[str, Any]]:
        left = visits.sparkSession.createDataFrame(list(before), PENDING)
        return list(utc_rows(closed_sessions(visits, left, self.DAY)))

    def test_visits_of_nobody_and_of_no_time_are_no_session_and_one_from_the_future_waits_for_its_own_partition(
        self, spark: SparkSession
    ) -> None:
        """A clock that is ahead neither keeps today's sessions open nor closes them early."""
        rows = [("u", START, "v1", "/"), (None, START, "v2", "/"), (None, START, "v3", "/"), ("u", None, "v4", "/")]
        at_noon = START + timedelta(hours=12)
        later = at_noon + timedelta(days=900)
        frame = spark.createDataFrame([*rows, ("ahead", at_noon, "v5", "/"), ("ahead", later, "v6", "/")], VISITS)
        today = [("ahead", at_noon, 1), ("u", START, 1)]
        in_one_go, closed = (
            sorted((row["user_id"], row["ended_at"], row["visits"]) for row in rows)
            for rows in (utc_rows(sessions(frame)), self.closed(frame))
        )
        assert in_one_go == sorted([*today, ("ahead", later, 1)])
        assert closed == today
        nothing = spark.createDataFrame([], PENDING)
        assert open_sessions(frame, nothing, self.DAY).count() == 0

    @pytest.mark.pattern("keyed_idempotency")
    def test_what_producers_say_of_tomorrow_moves_no_session_by_the_brokers_clock(self, spark: SparkSession) -> None:
        """Their time is told beside the session, which the broker's clock begins, ends and closes."""
        ahead = START + timedelta(days=900)
        events = [
            ("u", START, 0, 0, ahead, "/a"),
            ("u", START + GAP / 2, 0, 1, START, "/b"),
            (None, START, 0, 2, START, "/"),
        ]
        events += [("v", START + GAP, 0, 3, None, "/c")]
        frame = spark.createDataFrame(events, EVENTS)
        found = utc_rows(continued_sessions(frame, spark.createDataFrame([], KNOWN), START + 1.5 * GAP))
        told = {row["user_id"]: (row["ended_at"], row["visits"], row["is_closed"]) for row in found}
        assert told == {"u": (START + GAP / 2, 2, True), "v": (START + GAP, 1, False)}
        assert {row["user_id"]: row["last_event_time"] for row in found} == {"u": ahead, "v": None}

    def test_a_partition_without_visits_closes_what_was_open(self, spark: SparkSession) -> None:
        """And what stays open longer than a partition is carried through it."""
        last = START - timedelta(minutes=5)
        carried = ("u", START - timedelta(hours=1), last, 7, "/a", "/b")
        nothing = spark.createDataFrame([], VISITS)
        before = spark.createDataFrame([carried], PENDING)
        closed, left = (each(nothing, before, self.DAY) for each in (closed_sessions, open_sessions))
        (row,) = utc_rows(closed.withColumn("of", F.lit("closed")).unionByName(left.withColumn("of", F.lit("left"))))
        assert (session_of(row), row["of"]) == (Session(*carried), "closed")
        (row,) = utc_rows(open_sessions(nothing, before, self.DAY, gap=timedelta(days=2)))
        assert session_of(row) == Session(*carried)

    def test_no_visits_at_all(self, spark: SparkSession) -> None:
        nothing = spark.createDataFrame([], VISITS)
        assert sessions(nothing).count() == 0
        assert self.closed(nothing) == []

    def test_one_visitor_with_a_hundred_thousand_visits(self, spark: SparkSession) -> None:
        """A robot that asks every 800 milliseconds, for 22 hours, and two times pauses for exactly the gap."""
        pauses = "IF(id >= 30000, 1799200L, 0L) + IF(id >= 60000, 1799200L, 0L)"
        frame = spark.range(0, 100_000, 1, 1).selectExpr(
            "'robot' AS user_id",
            f"timestamp_millis({round(START.timestamp() * 1000)}L + id * 800L + {pauses}) AS event_time",
            "CAST(id AS STRING) AS visit_id",
            "CONCAT('/', id) AS page",
        )
        found = sorted((row["visits"], row["first_page"], row["last_page"]) for row in self.closed(frame))
        assert found == [(30_000, "/0", "/29999"), (30_000, "/30000", "/59999"), (40_000, "/60000", "/99999")]


def test_a_pause_of_exactly_the_gap_parts_and_midnight_does_not(spark: SparkSession) -> None:
    """Rows written by hand: 29 minutes join, 30 part; the session over midnight is one, and on the day it is over."""
    minutes = [-10, 19, 48, 78, 200]
    visits = [visit("u", 86_400 + 60 * minute, number) for number, minute in enumerate(minutes)]
    nothing = spark.createDataFrame([], PENDING)
    windows = SessionWindows(START, timedelta(days=1), 2)
    found = utc_rows(closed_sessions(frame_of(spark, visits), nothing, windows))
    at = {(row["started_at"], row["visits"]): row[WINDOW] for row in found}
    day = START + timedelta(days=1)
    assert at == {(visits[0].at, 3): day, (visits[3].at, 1): day, (visits[4].at, 1): day}
    assert timedelta(minutes=30) == GAP
