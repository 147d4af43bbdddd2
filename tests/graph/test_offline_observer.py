"""Offline Observer: each new version is looked at once, by one aggregate, and what was accepted says what is usual."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as arrow
import pytest
from dagster_delta import LocalConfig
from deltalake import write_deltalake
from io_manager_support import ORDERS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.engine_jobs import counted_jobs
from de_assets.automation.offline_observer import offline_observer_job, schedule
from de_checks.contract import contract_check
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.maintenance import maintain
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.lock import commit_lock
from de_resources.lake import Lake
from de_resources.observers import offline, page
from de_resources.observers import profile as profiling
from de_resources.observers.offline import Look, OfflineObserver
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("offline_observer")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
KEY = dg.AssetKey(["silver", "orders"])
EMAIL = "ann@example.org"


def key(n: int) -> str:
    return str(date(2024, 1, 1) + timedelta(days=n))


@dataclass
class World:
    """Orders by day, 20 a day unless `rows` says otherwise; a check that blocks; the job."""

    engine: SparkEngine
    root: Path
    rows: dict[str, int] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        @dg.asset(
            key=KEY,
            partitions_def=DAYS,
            kinds={"deltalake"},
            metadata={"dagster/table_name": "silver.orders", "partition_expr": "day", "contract": ORDERS},
            backfill_policy=dg.BackfillPolicy.single_run(),
        )
        def orders(context: dg.AssetExecutionContext) -> DataFrame:
            rows = self.orders_of(context.partition_keys)
            return self.engine.spark_session.createDataFrame(rows, "id long, day date, amount double, email string")

        config: dict[str, Any] = {
            "root_uri": str(self.root / "lake"),
            "storage_options": LocalConfig(),
            "spark": self.engine,
        }
        self.orders, self.check = orders, contract_check(orders)
        self.definitions = dg.Definitions(
            assets=[orders],
            asset_checks=[self.check],
            jobs=[offline_observer_job([orders], [self.check], lambda: self.folder, lambda: NOW)],
            resources={"io_manager": SparkDeltaIOManager(**config), "lake": Lake(**config)},
        )

    def orders_of(self, days: Sequence[str]) -> list[tuple[Any, ...]]:
        return [
            (n if day not in self.bad else None, date.fromisoformat(day), float(n % 100), None if n % 4 == 0 else EMAIL)
            for day in days
            for n in range(self.rows.get(day, 20))
        ]

    def seed(self, first: int, last: int) -> None:
        """The same days in a table that is there before, written without the engine, and judged by nobody."""
        self.put(self.orders_of([key(n) for n in range(first, last + 1)]))

    def put(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """A table of these orders, or more of them, written without the engine."""
        names = ("id", "day", "amount", "email")
        written = arrow.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
        write_deltalake(self.table.uri, written, partition_by=["day"], mode="append")

    @property
    def folder(self) -> Path:
        return self.root / "profiles"

    @property
    def table(self) -> Table:
        lake = Lake(root_uri=str(self.root / "lake"), spark=self.engine)
        return lake.table(KEY, self.orders.get_asset_spec().metadata)

    def write(self, first: int, last: int) -> None:
        dg.materialize(
            [self.orders, self.check],
            instance=self.instance,
            resources=self.definitions.resources,
            tags={"dagster/asset_partition_range_start": key(first), "dagster/asset_partition_range_end": key(last)},
            raise_on_error=False,
        )

    def observe(self, **config: Any) -> Mapping[str, Any] | None:
        """The metadata of the table's observation, or None where there was none."""
        result = self.definitions.resolve_job_def("offline_observer").execute_in_process(
            run_config={"ops": {"profile_tables": {"config": config}}}, instance=self.instance
        )
        events = [e.asset_observation_data.asset_observation for e in result.all_events if e.is_asset_observation]
        self.summary = (
            {k: v.value for k, v in result.all_node_events[-2].step_output_data.metadata.items()} if 0 else {}
        )
        return {k: v.value for k, v in events[0].metadata.items()} if events else None

    def look(self) -> Look | None:
        return OfflineObserver(self.folder).look(lambda: self.engine.spark_session, "silver/orders", self.table, NOW)

    def told(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.folder / "silver" / "orders.json").read_text())
        return found


@pytest.fixture
def world(engine: SparkEngine, tmp_path: Path) -> World:
    return World(engine, tmp_path)


def test_a_profile_has_the_figures_of_each_new_partition_and_a_page(world: World) -> None:
    world.rows = {key(0): 8, key(1): 40}
    world.seed(0, 2)
    found = world.observe()
    assert found is not None
    assert (found["profile/point"], found["profile/points"], found["profile/rows"]) == (key(2), 3, 20)
    points = world.told()["points"]
    assert {k: point["rows"] for k, point in points.items()} == {key(0): 8, key(1): 40, key(2): 20}
    amount = points[key(1)]["columns"]["amount"]
    assert (amount["nulls"], amount["min"], amount["max"], amount["not_finite"]) == (0, 0.0, 39.0, 0)
    assert points[key(1)]["columns"]["email"] == {"nulls": 10, "distinct": 1}
    assert amount["quantiles"][2] == pytest.approx(20, abs=2)
    page = Path(found["profile/page"]).read_text()
    assert "silver/orders" in page
    # Personal values are in nothing that is kept or shown.
    assert "counts only" in page
    kept = page + json.dumps(world.told()) + found["profile/report"]
    assert EMAIL not in kept


def test_each_version_is_looked_at_once_and_only_what_changed(world: World) -> None:
    world.seed(0, 3)
    assert world.look() is not None
    assert world.look() is None
    world.rows[key(1)] = 7
    world.write(1, 1)
    look = world.look()
    assert look is not None
    assert [(point.key, point.figures.rows) for point in look.new] == [(key(1), 7)]
    stamp = CommitInfo("silver.orders", "maintenance", "all", "run", "run", "attempt")
    maintain(world.engine.spark_session, world.table, stamp, query_runs=0)
    with counted_jobs(world.engine.spark_session) as jobs:
        assert world.look() is None, "compaction moves rows, and changes none"
    assert jobs == []


def test_a_partition_that_was_emptied_has_a_point_of_zeros(world: World) -> None:
    world.write(0, 1)
    world.look()
    world.rows[key(1)] = 0
    world.write(1, 1)
    look = world.look()
    assert look is not None
    assert [(point.key, point.figures.rows) for point in look.new] == [(key(1), 0)]


def test_one_aggregate_reads_each_file_once_and_only_figures_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rows = dict.fromkeys(map(key, range(3)), 500)
    world.seed(0, 2)
    collected: list[int] = []
    session_frame = type(world.engine.spark_session.range(1))
    collect = session_frame.collect
    frames: list[DataFrame] = []

    def counting(frame: DataFrame) -> list[Any]:
        rows = collect(frame)
        collected.append(len(rows))
        frames.append(frame)
        return rows

    log = world.table.log()
    assert log is not None
    version = log.version

    def read() -> DataFrame:
        """The same days of the same version, by Spark alone."""
        days = world.table.read(world.engine.spark_session, version).where(F.col("day") >= F.lit("2000-01-01"))
        return days.groupBy("day").count()

    read().collect()  # who reads a version first has the engine put its log together
    monkeypatch.setattr(session_frame, "collect", counting)
    with counted_jobs(world.engine.spark_session) as jobs:
        world.look()
    monkeypatch.undo()
    assert collected == [3], "one row for each partition, none of the table"
    plan = frames[0]._jdf.queryExecution().toString()  # type: ignore[operator]
    assert plan.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0].count("Relation") == 1
    with counted_jobs(world.engine.spark_session) as plain:
        read().collect()
    assert 0 < len(jobs) <= len(plain)


def test_a_writer_neither_waits_nor_is_waited_for(world: World) -> None:
    world.write(0, 0)
    with commit_lock(world.table.uri, table="silver.orders", shared=False):
        assert world.look() is not None
    assert world.table.log().version == 0, "the table was not written"  # type: ignore[union-attr]


def test_a_bad_day_is_told_and_a_person_can_accept_it(world: World) -> None:
    world.rows[key(8)] = 2000
    world.seed(0, 8)
    found = world.observe()
    assert found is not None
    assert found["profile/outside"] >= 1
    assert "rows is 2,000" in found["profile/report"]
    world.rows[key(9)] = 2000
    world.seed(9, 9)
    again = world.observe()
    assert again is not None
    assert "rows is 2,000" in again["profile/report"], "the bad day before it did not become the normal"
    accepted = world.observe(tables=["silver/orders"], accept="we sell to shops now")
    assert accepted is not None
    assert accepted["profile/outside"] == 0
    assert "we sell to shops now" in Path(accepted["profile/page"]).read_text()


def test_a_day_that_a_blocking_check_refused_is_not_learnt_from(world: World) -> None:
    world.bad = {key(2)}
    world.write(0, 3)
    world.observe()
    refused = {k: point["refused"] for k, point in world.told()["points"].items()}
    assert refused == {key(0): "", key(1): "", key(2): "rows_meet_contract failed", key(3): ""}


@pytest.mark.parametrize("name", ["publish", "save"])
def test_a_look_that_dies_is_made_again(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    world.seed(0, 1)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(offline, name, die)
    with pytest.raises(KeyboardInterrupt):
        world.look()
    monkeypatch.undo()
    look = world.look()
    assert look is not None
    assert len(look.new) == 2
    assert not list(world.folder.rglob(".draft-*"))


def test_a_table_that_was_made_anew_is_another_one(world: World) -> None:
    world.write(0, 3)
    world.look()
    shutil.rmtree(world.table.uri)
    world.write(5, 5)
    look = world.look()
    assert look is not None
    assert list(look.memory.points) == [key(5)]


def test_a_table_that_cannot_be_read_now_stops_nobody(world: World) -> None:
    assert world.observe() is None, "never written"
    log = world.root / "lake" / "silver" / "orders" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no log of Delta\n")
    assert world.observe() is None


@pytest.mark.parametrize(
    "frame",
    [
        "SELECT CAST(NULL AS DOUBLE) v FROM range(0)",
        "SELECT CAST(NULL AS DOUBLE) v, CAST(NULL AS STRING) t, CAST('NaN' AS FLOAT) n, 7 one FROM range(3)",
        "SELECT NAMED_STRUCT('a', 1) s, ARRAY(1) l, MAP('k', 1) m, X'00' b, CAST('Infinity' AS DOUBLE) i FROM range(2)",
        "SELECT 1 `a.b`, 2 `c``d`, 3 `e'\"f`, 4 `<script>` FROM range(2)",
    ],
    ids=["empty", "one value or none", "nested and binary", "hostile names"],
)
def test_any_table_is_profiled(engine: SparkEngine, tmp_path: Path, frame: str) -> None:
    session = engine.spark_session
    rows = session.sql(frame)
    rows.write.format("delta").save(str(tmp_path / "t"))
    look = OfflineObserver(tmp_path / "p").look(lambda: session, "any/t", Table("any.t", str(tmp_path / "t")), NOW)
    if look is None:
        assert rows.count() == 0
        return
    assert look.newest.figures.rows == rows.count()
    assert set(look.newest.figures.columns) == set(rows.columns)
    assert "<script>" not in look.page.read_text()


def test_a_wide_table_is_read_in_passes_of_different_columns(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "COLUMNS_PER_PASS", 10)
    monkeypatch.setattr(profiling, "MOST_PROFILED", 22)
    monkeypatch.setattr(page, "MOST_PROFILED", 22)
    session = engine.spark_session
    session.sql(f"SELECT {', '.join(f'{n} c{n}' for n in range(25))}").write.format("delta").save(str(tmp_path / "t"))
    look = OfflineObserver(tmp_path / "p").look(lambda: session, "any/t", Table("any.t", str(tmp_path / "t")), NOW)
    assert look is not None
    assert list(look.newest.figures.columns) == [f"c{n}" for n in range(22)]
    assert "The last 3 columns of the table are not measured." in look.page.read_text()
    assert {own["nulls"] for own in look.newest.figures.columns.values()} == {0}


@pytest.mark.parametrize("columns", [210, 2_000, 10_000])
def test_a_table_of_thousands_of_columns_is_profiled_and_its_page_stays_readable(
    engine: SparkEngine, tmp_path: Path, columns: int
) -> None:
    session = engine.spark_session
    wide = ", ".join(f"IF(id = 0, NULL, {n}) c{n}" for n in range(columns))
    session.sql(f"SELECT {wide} FROM range(2)").write.format("delta").save(str(tmp_path / "t"))
    look = OfflineObserver(tmp_path / "p").look(lambda: session, "any/t", Table("any.t", str(tmp_path / "t")), NOW)
    assert look is not None
    measured = min(columns, profiling.MOST_PROFILED)
    assert look.newest.figures.columns == {f"c{n}": {"nulls": 1, "distinct": 1} for n in range(measured)}
    assert look.page.stat().st_size < 3_000_000
    told = f"The last {columns - measured:,} columns of the table are not measured." in look.page.read_text()
    assert told == (columns > measured)


VALUES: Mapping[str, tuple[list[float | None], Mapping[str, object]]] = {
    key(0): ([None, None], {"nulls": 2, "not_finite": 0}),
    key(1): ([math.nan, math.inf, -math.inf], {"nulls": 0, "not_finite": 3}),
    key(2): ([7.0, 7.0], {"nulls": 0, "not_finite": 0, "min": 7.0, "max": 7.0, "quantiles": [7.0] * 5}),
    key(3): ([math.nan, 7.0, None], {"nulls": 1, "not_finite": 1, "min": 7.0, "max": 7.0, "quantiles": [7.0] * 5}),
}
"""Days that hold: only nulls, no number, one value, one number."""


def test_what_is_no_number_is_counted_and_is_no_bound(world: World) -> None:
    given = VALUES.items()
    world.put(
        [(n, date.fromisoformat(day), value, EMAIL) for day, (values, _) in given for n, value in enumerate(values)]
    )
    look = world.look()
    assert look is not None
    found = {point.key: point.figures.columns["amount"] for point in look.new}
    assert found == {day: expected for day, (_, expected) in VALUES.items()}
    assert look.judgement.drifts == [], "so short a history judges nothing"


def test_the_schedule_is_on_and_asks_for_the_job() -> None:
    assert (schedule.job_name, schedule.default_status) == ("offline_observer", dg.DefaultScheduleStatus.RUNNING)
