"""Several tables of a real PostgreSQL written together: all of a load is visible, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
import warm_process
from dagster_delta import LocalConfig
from pyspark.sql import DataFrame
from waiting import PATIENCE, until

from de_assets.automation.maintenance.publication import AUDITED, PUBLISH, publication_jobs
from de_assets.contracts.traffic import VisitsCubeDaily
from de_assets.dataset import dataset
from de_assets.partitions import daily
from de_assets.serving.daily_traffic import BY_COUNTRY, LOAD, TOTAL, served_traffic
from de_checks.publication import publication_check
from de_resources.contract import Contract
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.publish import Measured
from de_resources.delta.write.crash_points import at
from de_resources.lake import Lake
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import (
    Load,
    LoadInterrupted,
    LoadRefused,
    NoSuchColumnType,
    Relation,
    RowOutsideSlice,
    Rows,
    write_slice,
)
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.pattern("transactional_writer")]

DEADLINE = PATIENCE
FIRST, SECOND = date(2024, 10, 10), date(2024, 10, 11)
AUDITS = [Measured(what="robots", sql="sum(bot_visits)", high=5)]


@dataclass(frozen=True)
class World:
    """Two tables in a schema of their own: days, and the shares that they are the sum of."""

    schema: str

    @property
    def days(self) -> Relation:
        return Relation(
            f"{self.schema}.days", (("day", "date NOT NULL"), ("total", "bigint NOT NULL")), ("day",), "day"
        )

    @property
    def shares(self) -> Relation:
        columns = (("day", "date NOT NULL"), ("who", "text NOT NULL"), ("share", "bigint NOT NULL CHECK (share > 0)"))
        return Relation(f"{self.schema}.shares", columns, ("day", "who"), "day")

    def tables(self, day: date, *shares: int) -> dict[Relation, Rows]:
        """A day whose total is the sum of its shares."""
        parts = [{"day": day, "who": f"w{n}", "share": share} for n, share in enumerate(shares)]
        return {self.days: [{"day": day, "total": sum(shares)}] if shares else [], self.shares: parts}

    def write(self, day: date, *shares: int, run: str = "run", attempt: int = 1) -> Mapping[str, int]:
        return write_slice(PostgresDatabase(), self.load(run, attempt), day, self.tables(day, *shares)).rows

    def load(self, run: str = "run", attempt: int = 1) -> Load:
        return Load(f"{self.schema}.both", run, attempt)

    def seen(self) -> list[tuple[Any, ...]]:
        """What a reader sees in one query: day, total, sum and number of the shares, and by which run."""
        rows: list[tuple[Any, ...]] = self.query(
            "SELECT l.slice, d.total, (SELECT sum(share)::int FROM {0}.shares s WHERE s.day = d.day), l.run_id "
            "FROM {0}.loads l LEFT JOIN {0}.days d ON d.day = l.slice::date ORDER BY 1"
        )
        return rows

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement.format(self.schema))
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    made = World(f"writer_{uuid4().hex[:8]}")
    yield made
    made.query("DROP SCHEMA IF EXISTS {} CASCADE")


def test_a_load_shows_in_all_tables_and_says_who_made_it_and_a_rerun_leaves_the_same(world: World) -> None:
    counts = world.write(FIRST, 1, 2)
    world.write(SECOND, 5)
    assert counts == {f"{world.schema}.days": 1, f"{world.schema}.shares": 2}
    before = world.seen()
    assert before == [("2024-10-10", 3, 3, "run"), ("2024-10-11", 5, 5, "run")]

    world.write(FIRST, 1, 2)
    assert world.seen() == before
    assert world.query("SELECT count(*) FROM {0}.days UNION ALL SELECT count(*) FROM {0}.shares") == [(2,), (3,)]

    world.write(FIRST, 4, run="again", attempt=2)
    assert world.seen() == [("2024-10-10", 4, 4, "again"), before[1]]
    told = world.query("SELECT dataset, attempt, rows FROM {}.loads ORDER BY slice")
    assert told[0] == (f"{world.schema}.both", 2, {f"{world.schema}.days": 1, f"{world.schema}.shares": 1})

    world.write(FIRST)
    assert world.seen()[0] == ("2024-10-10", None, None, "run"), "an empty load empties its slice"
    assert world.seen()[1] == before[1]


def test_a_failure_after_the_first_of_two_writes_leaves_neither_and_a_rerun_heals(world: World) -> None:
    world.write(FIRST, 1, 2)
    before = world.seen()
    with pytest.raises(LoadRefused, match=r"check constraint.*rolled back") as refused:
        world.write(FIRST, 10, -3, run="bad")
    with pytest.raises(LoadRefused):
        world.write(SECOND, -1, run="bad")
    assert world.seen() == before
    assert "-3" not in str(refused.value), "no value of a row is in the message"
    assert refused.value.__suppress_context__, "nor in what a traceback shows"

    world.write(FIRST, 10, 3, run="good")
    assert world.seen() == [("2024-10-10", 13, 13, "good")]


def test_readers_see_the_load_before_until_all_of_the_next_one_is_there(world: World) -> None:
    world.write(FIRST, 1, 2)
    before, during = world.seen(), []
    with at("before_commit", lambda _: during.append(world.seen())):
        world.write(FIRST, 7, run="next")
    assert during == [before, before]
    assert world.seen() == [("2024-10-10", 7, 7, "next")]


def write_killed(schema: str) -> None:
    """In a process of its own."""
    World(schema).write(FIRST, 10, 20, run="killed")


@pytest.mark.faults
@pytest.mark.parametrize(("point", "visible"), [("before_commit:{}.days", False), ("after_commit:{}.both", True)])
def test_kill_9_between_two_writes_leaves_neither_and_after_the_commit_both(
    world: World, point: str, visible: bool
) -> None:
    world.write(FIRST, 1, 2)
    warm_process.dies("test_postgres_writer:write_killed", world.schema, DE_KILL_AT=point.format(world.schema))

    assert world.seen() == [("2024-10-10", 30, 30, "killed") if visible else ("2024-10-10", 3, 3, "run")]
    world.write(FIRST, 10, 20, run="rerun")
    assert world.seen() == [("2024-10-10", 30, 30, "rerun")]
    assert world.query("SELECT count(*) FROM {}.shares") == [(2,)]


@pytest.mark.faults
def test_of_two_loads_of_one_slice_the_second_waits_and_another_slice_does_not(
    world: World, beside: ThreadPoolExecutor
) -> None:
    world.write(FIRST, 1)
    with held(world, beside, lambda: world.write(FIRST, 1, 2, run="first")) as (first, release):
        world.write(SECOND, 9, run="other")  # would never return if it waited
        second = beside.submit(world.write, FIRST, 5, run="second")
        wait_until_somebody_waits_for(world)
        release.set()
        first.result(DEADLINE)
        second.result(DEADLINE)
    assert world.seen() == [("2024-10-10", 5, 5, "second"), ("2024-10-11", 9, 9, "other")]
    assert world.query("SELECT count(*) FROM {}.shares") == [(2,)]


@pytest.mark.faults
def test_two_first_loads_at_once_create_the_tables_once(world: World, beside: ThreadPoolExecutor) -> None:
    days = [date(2024, 10, day) for day in range(1, 9)]
    for done in [beside.submit(world.write, day, 1, 2) for day in days]:
        done.result(DEADLINE)
    assert [row[1:] for row in world.seen()] == [(3, 3, "run")] * len(days)


@pytest.mark.faults
def test_a_connection_that_breaks_leaves_nothing_and_is_worth_another_try(world: World) -> None:
    world.write(FIRST, 1)
    before = world.seen()

    def cut(_: str) -> None:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' "
                "AND usename = current_user AND datname = current_database() AND query LIKE %s",
                (f"%{world.schema}%",),
            )

    with at("before_commit", cut), pytest.raises(LoadInterrupted, match="a rerun leaves one copy"):
        world.write(FIRST, 2)
    assert world.seen() == before
    world.write(FIRST, 2)
    assert world.seen() == [("2024-10-10", 2, 2, "run")]


def test_what_a_rerun_would_not_replace_is_refused_before_anything_is_written(world: World) -> None:
    tables = world.tables(FIRST, 1)
    with pytest.raises(RowOutsideSlice, match=r"`day` = 2024-10-10, but the load is that of 2024-10-11"):
        write_slice(PostgresDatabase(), world.load(), SECOND, tables)
    assert world.query("SELECT to_regnamespace('{}') IS NULL") == [(True,)]


def test_names_are_quoted_and_never_part_of_a_statement(world: World) -> None:
    odd = 'da"ys; DROP TABLE x'
    table = Relation(f"{world.schema}.{odd}", (("day", "date"), ("a b", "text")), ("day",), "day")
    write_slice(PostgresDatabase(), world.load(), FIRST, {table: [{"day": FIRST, "a b": "'; SELECT 1; --"}]})
    assert world.query('SELECT "a b" FROM {}."da""ys; DROP TABLE x"') == [("'; SELECT 1; --",)]


def test_a_value_of_the_wrong_type_is_refused_without_being_quoted(world: World) -> None:
    world.write(FIRST, 1)
    rows = {world.days: [{"day": FIRST, "total": "jane@example.org"}]}
    with pytest.raises(LoadRefused, match="InvalidTextRepresentation") as refused:
        write_slice(PostgresDatabase(), world.load(), FIRST, rows)
    assert "jane" not in str(refused.value)


def test_a_table_that_is_not_as_declared_is_said(world: World) -> None:
    world.write(FIRST, 1)
    wider = replace(world.days, columns=(*world.days.columns, ("more", "text")))
    with pytest.raises(LoadRefused, match='column "more" of relation "days" does not exist'):
        write_slice(PostgresDatabase(), world.load(), FIRST, {wider: [{"day": FIRST, "total": 1, "more": ""}]})


class _Nested(pa.DataFrameModel):
    """A column that has no counterpart."""

    day: T.DateType = pa.Field(nullable=False)
    tags: T.ArrayType = pa.Field(dtype_kwargs={"elementType": T.StringType()})

    class Config:
        name = "serving.nested"
        metadata = {"partitioned_by": ["day"], "key": ["day"]}  # noqa: RUF012


def test_a_column_without_a_counterpart_is_named() -> None:
    with pytest.raises(NoSuchColumnType, match=r"`tags` of `serving.nested` has the type array<string>"):
        Relation.of(Contract.of(_Nested))


def test_the_graph_serves_totals_that_are_the_sum_of_their_countries(nothing_served: None) -> None:
    days = daily.get_partition_keys()[:2]
    assert not served_traffic.can_subset, "one of the two tables alone is not to be had"
    first = _materialise(days, {"DE": 3, None: 2})
    again = _materialise(days[1:], {"FR": 4})

    assert first == {("serving/daily_traffic", d): 1 for d in days} | {
        ("serving/daily_traffic_by_country", d): 2 for d in days
    }
    assert again == {("serving/daily_traffic", days[1]): 1, ("serving/daily_traffic_by_country", days[1]): 1}
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT event_date::text, country, visits FROM serving.daily_traffic_by_country ORDER BY 1, 2")
        assert cursor.fetchall() == [(days[0], "DE", 3), (days[0], "unknown", 2), (days[1], "FR", 4)]
        cursor.execute("SELECT event_date::text, visits FROM serving.daily_traffic ORDER BY 1")
        assert cursor.fetchall() == [(days[0], 5), (days[1], 4)]
        cursor.execute("SELECT slice, attempt FROM serving.loads WHERE dataset = %s ORDER BY 1", (LOAD,))
        assert cursor.fetchall() == [(day, 1) for day in days]


@pytest.mark.pattern("audit_write_audit_publish")
def test_a_day_that_an_audit_holds_is_not_served_until_a_person_publishes_it(
    nothing_served: None, tmp_path: Path
) -> None:
    good, bad = daily.get_partition_keys()[:2]
    newsroom = _Newsroom(tmp_path)
    try:
        newsroom.served_before({good: 5, bad: 3})
        # So many robots that the day is held; its neighbour of the same run goes on.
        newsroom.count({good: (6, 1), bad: (14, 9)})
        assert newsroom.served() == [(good, 6, 1), (bad, 3, 0)]
        # Nor is it served by who asks for the day alone.
        assert not newsroom.serve(bad)
        assert newsroom.served() == [(good, 6, 1), (bad, 3, 0)]
        newsroom.publish(bad)
        assert newsroom.serve(bad)
        assert newsroom.served() == [(good, 6, 1), (bad, 14, 9)]
    finally:
        close_connections()


class _Newsroom:
    """Gold as a test counts it, audited; what is served from it; and a person who decides."""

    def __init__(self, root: Path) -> None:
        storage: dict[str, Any] = {"root_uri": str(root), "storage_options": LocalConfig(), "spark": SparkEngine()}
        self.lake = Lake(**storage)
        self.resources = {
            "io_manager": SparkDeltaIOManager(**storage),
            "lake": self.lake,
            "database": PostgresDatabase(),
        }
        self.instance = dg.DagsterInstance.ephemeral()
        self.figures: dict[str, tuple[int, int]] = {}
        self.cube = self._audited()
        self.everything = [self.cube, publication_check(self.cube), served_traffic]

    def _audited(self) -> dg.AssetsDefinition:
        declared = dataset(
            VisitsCubeDaily, partition="event_date", writer=AUDITED, audits=f"{__name__}:AUDITS", constraints=False
        )

        @dg.asset(**declared, partitions_def=daily, backfill_policy=dg.BackfillPolicy.single_run())
        def cube() -> DataFrame:
            keys = dg.AssetExecutionContext.get().partition_keys
            totals = [
                (date.fromisoformat(day), 7, None, None, None, visits, 1, robots)
                for day, (visits, robots) in self.figures.items()
                if day in keys
            ]
            return SparkEngine().spark_session.createDataFrame(totals, Contract.of(VisitsCubeDaily).struct_type())

        return cube

    @staticmethod
    def served_before(visits: Mapping[str, int]) -> None:
        """Visits of these days are served already."""
        for day in map(date.fromisoformat, visits):
            totals = [{"event_date": day, "visits": visits[str(day)], "users": 1, "bot_visits": 0}]
            write_slice(PostgresDatabase(), Load(LOAD, "before", 1), day, {TOTAL: totals, BY_COUNTRY: []})

    def count(self, figures: Mapping[str, tuple[int, int]]) -> None:
        """Visits and robots of these days, in one run with what follows."""
        self.figures = dict(figures)
        first, last = min(figures), max(figures)
        self._run({"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last})

    def serve(self, day: str) -> bool:
        """Serve a day once more; whether that was done."""
        chosen = dg.AssetSelection.assets(*served_traffic.keys)
        return self._run({"dagster/asset_partition_range_start": day, "dagster/asset_partition_range_end": day}, chosen)

    def _run(self, tags: Mapping[str, str], chosen: Any = None) -> bool:
        done = dg.materialize(
            self.everything,
            instance=self.instance,
            resources=self.resources,
            tags=dict(tags),
            selection=chosen,
            raise_on_error=False,
        )
        return done.success

    def publish(self, day: str) -> None:
        """Decide that it was a false alarm."""
        (job,) = (each for each in publication_jobs([self.cube]) if each.name == PUBLISH)
        (op,) = job.graph.node_defs
        config = {"table": self.cube.key.to_user_string(), "partition": day, "reason": "a robot came in a crowd"}
        run_config = {"ops": {op.name: {"config": config}}}
        resources = {"lake": self.lake}
        assert job.execute_in_process(instance=self.instance, resources=resources, run_config=run_config).success

    @staticmethod
    def served() -> list[tuple[Any, ...]]:
        """What who reads the database sees: days, visits, robots."""
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT event_date::text, visits, bot_visits FROM serving.daily_traffic ORDER BY 1")
            return cursor.fetchall()


class _Cube(dg.IOManager):
    """Gold as the test wants it."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:  # noqa: ARG002
        raise AssertionError("nothing is written through it")

    def load_input(self, context: dg.InputContext) -> DataFrame:  # noqa: ARG002
        columns = "event_date DATE, grouping INT, country STRING, visits BIGINT, users BIGINT, bot_visits BIGINT"
        return SparkEngine().spark_session.createDataFrame(self.rows, columns)


def _materialise(days: list[str], countries: dict[str | None, int]) -> dict[tuple[str, str], int]:
    rows: list[tuple[Any, ...]] = []
    for day in map(date.fromisoformat, days):
        rows += [(day, 3, country, visits, 1, 0) for country, visits in countries.items()]
        rows += [(day, 7, None, sum(countries.values()), 1, 0), (day, 0, "DE", 1, 1, 0)]
    cube = dg.AssetSpec(["gold", "visits_cube_daily"], partitions_def=daily).with_io_manager_key("cube")
    tags = {"dagster/asset_partition_range_start": days[0], "dagster/asset_partition_range_end": days[-1]}
    defs = dg.Definitions(
        assets=[cube, served_traffic],
        resources={"cube": _Cube(rows), "io_manager": _Cube([]), "database": PostgresDatabase()},
        executor=dg.in_process_executor,
    )
    try:
        done = defs.resolve_implicit_global_asset_job_def().execute_in_process(tags=tags)
    finally:
        close_connections()
    found = [e.step_materialization_data.materialization for e in done.get_asset_materialization_events()]
    counted = {
        (m.asset_key.to_user_string(), str(m.partition)): m.metadata["dagster/partition_row_count"].value for m in found
    }
    return {key: int(count) for key, count in counted.items()}


class held:  # noqa: N801 - reads as a statement
    """A load that is held between its two writes, while the block runs."""

    def __init__(self, world: World, pool: ThreadPoolExecutor, load: Callable[[], object]) -> None:
        self._world, self._pool, self._load = world, pool, load
        self._reached, self._release = Event(), Event()

    def __enter__(self) -> tuple[Future[object], Event]:
        def hold(_: str) -> None:
            if not self._reached.is_set():
                self._reached.set()
                assert self._release.wait(DEADLINE)

        self._installed = at("before_commit", hold)
        self._installed.__enter__()
        loading = self._pool.submit(self._load)
        assert self._reached.wait(DEADLINE)
        return loading, self._release

    def __exit__(self, *_: object) -> None:
        self._release.set()
        self._installed.__exit__(None, None, None)


def wait_until_somebody_waits_for(world: World) -> None:
    """Until a session of another load is held up by a lock."""
    question = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'"
    until(lambda: world.query(question), "nobody waits")
