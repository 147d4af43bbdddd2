"""Which readers of the graph are measured, found without the list that is compared; and the lag of a reader of tables."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import pyarrow as pa
import pytest
from dagster_delta import LocalConfig
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame

from de_assets.automation.lag import lag_checks
from de_assets.dashboards.definitions import defs as dashboards
from de_assets.definitions import defs
from de_checks.lag import version_lag_check
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.read_versions import versions_read
from de_resources.kafka.errors import UnknownKeeper
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("lag_detector")


def test_every_asset_behind_a_topic_is_measured() -> None:
    graph = defs.resolve_asset_graph()
    checked = {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys}
    topics = {
        spec.key: spec.metadata["source/topic"]
        for spec in defs.resolve_all_asset_specs()
        if "source/topic" in spec.metadata
    }
    readers = {
        (child.to_user_string(), f"keeps_up_with_{topic}")
        for key, topic in topics.items()
        for child in graph.get(key).child_keys
    }
    # The releases that nobody can read are found by the sensor that finds those that can be read.
    assert readers - checked == {("bronze/features_dead_letter", "keeps_up_with_features")}
    assert ("bronze/users_changes", "capture_keeps_up") in checked
    assert ("silver/users", "keeps_up_with_its_tables") in checked
    assert len(readers) == 9


KEEPS_UP = "keeps_up_with_its_tables"
EXCUSED = {
    "gold/users_latest": "a view: it has no rows of its own, and shows at once what its table has",
    "serving/users_snapshot": "its source keeps versions behind a manifest, which have no number to be behind of",
    "silver/visits_enriched": "each hour is joined with the users and devices of its time; what they get later is not for it",
}


def test_every_asset_that_reads_a_table_as_a_whole_is_measured_or_excused() -> None:
    """What a partition reads of another's is judged by its gates and completeness, and has no position in the table."""
    graphs = [defs.resolve_asset_graph(), dashboards.resolve_asset_graph()]
    checked = {key.asset_key for graph in graphs for key in graph.asset_check_keys if key.name == KEEPS_UP}
    made = {key: graph.get(key) for graph in graphs for key in graph.materializable_asset_keys}
    tables = {key for key, node in made.items() if "deltalake" in node.kinds}
    behind: dict[str, set[str]] = {}
    for key, node in made.items():
        sources = {parent for parent in node.parent_keys if parent in tables and parent != key}
        whole = {each for each in sources if not (node.partitions_def and made[each].partitions_def)}
        if whole and not checked & set(node.execution_set_asset_keys):
            behind[key.to_user_string()] = {each.to_user_string() for each in whole}
    assert set(behind) == set(EXCUSED)
    measured = {each.to_user_string() for each in checked}
    wanted = {
        "staging/devices",
        "staging/users",
        "serving/profile_changes",
        "gold/users_snapshot",
        "dashboards/daily_traffic",
    }
    assert wanted <= measured


@pytest.mark.parametrize("said", [None, "somewhere", "group", "stream of mine"])
def test_a_reader_that_does_not_say_who_keeps_its_position_is_refused(said: str | None) -> None:
    topic = dg.AssetSpec("topic", metadata={"source/topic": "orders"})

    @dg.asset(deps=[topic], metadata={"reads/orders": said} if said else {})
    def reader() -> None: ...

    with pytest.raises(UnknownKeeper, match="orders"):
        lag_checks([topic, reader])


ORDERS = dg.AssetSpec(["bronze", "orders"])
DAYS = dg.StaticPartitionsDefinition(["a", "b"])


@dg.asset(key=["silver", "orders"], ins={"orders": dg.AssetIn(["bronze", "orders"])})
def valid_orders(orders: DataFrame) -> DataFrame:
    return orders


class World:
    """A table that the test writes, an asset that reads it whole, and a clock."""

    def __init__(self, engine: SparkEngine, root: Path, reader: dg.AssetsDefinition = valid_orders) -> None:
        options: dict[str, Any] = {"storage_options": LocalConfig(), "spark": engine}
        own, other = str(root), str(root / "elsewhere")
        self.reader = reader
        self.resources = {
            "io_manager": SparkDeltaIOManager(root_uri=own, **options),
            "elsewhere": SparkDeltaIOManager(root_uri=other, **options),
            "lake": Lake(root_uri=own, **options),
        }
        self.uri, self.now = str(root / "bronze" / "orders"), datetime.now(UTC)
        self.instance = dg.DagsterInstance.ephemeral()

    def write(self, rows: int, mode: Literal["append", "overwrite"] = "append") -> None:
        write_deltalake(self.uri, pa.table({"id": list(range(rows))}), mode=mode)

    def read(self, key: str | None = None) -> None:
        dg.materialize(
            [ORDERS, self.reader],
            selection=dg.AssetSelection.assets(self.reader),
            instance=self.instance,
            resources=self.resources,
            partition_key=key,
        )

    def verdict(self) -> tuple[bool, dict[str, Any], str]:
        check = version_lag_check(self.reader, [ORDERS], now=lambda: self.now)
        job = dg.define_asset_job("look", selection=dg.AssetSelection.checks(check))
        defs = dg.Definitions([ORDERS, self.reader], asset_checks=[check], jobs=[job], resources=self.resources)
        run = defs.resolve_job_def("look").execute_in_process(instance=self.instance)
        (found,) = run.get_asset_check_evaluations()
        return found.passed, {k: v.value for k, v in found.metadata.items()}, found.description or ""


@pytest.mark.red_check("keeps_up_with_its_tables")
def test_a_reader_of_a_table_is_as_far_behind_as_what_changed_since(engine: SparkEngine, tmp_path: Path) -> None:
    world = World(engine, tmp_path)
    world.write(10)
    before = world.verdict()
    world.read()
    level = world.verdict()
    size = _bytes(world.uri)
    world.write(20)
    world.write(30)
    DeltaTable(world.uri).optimize.compact()  # a version, and nothing to read
    world.now += timedelta(hours=25)
    behind = world.verdict()
    added = [add["size_bytes"] for add in _files_at(world.uri, 2)]
    world.read()
    again = world.verdict()

    assert [passed for passed, _, _ in (before, level, behind, again)] == [False, True, False, True]
    assert "has not started" in before[2]
    assert (before[1]["lag/started"], level[1]["lag/started"]) == (False, True)
    assert [figures["lag/commits_max"] for _, figures, _ in (before, level, behind, again)] == [1, 0, 2, 0]
    assert behind[1]["lag/bytes_max"] == sum(added) - size
    assert behind[1]["lag/seconds_max"] == pytest.approx(25 * 3600, abs=60)


@dg.asset(
    key=["staging", "orders"],
    ins={"orders": dg.AssetIn(["bronze", "orders"])},
    io_manager_key="elsewhere",
    partitions_def=DAYS,
    metadata={"partition_expr": "day"},
)
def replica(context: dg.AssetExecutionContext, orders: DataFrame) -> DataFrame:
    return orders.selectExpr("id", f"'{context.partition_key}' AS day")


@dg.asset(key=["serving", "orders"], ins={"orders": dg.AssetIn(["bronze", "orders"])})
def served(context: dg.AssetExecutionContext, orders: DataFrame) -> dg.MaterializeResult[None]:
    orders.collect()
    return dg.MaterializeResult(metadata=versions_read(context))


@pytest.mark.parametrize(("reader", "key"), [(replica, "a"), (served, None)], ids=["another store", "its own writes"])
def test_a_reader_keeps_its_position_wherever_it_writes(
    engine: SparkEngine, tmp_path: Path, reader: dg.AssetsDefinition, key: str | None
) -> None:
    world = World(engine, tmp_path, reader)
    world.write(10)
    before = world.verdict()
    world.read(key)
    level = world.verdict()
    world.write(10)
    world.now += timedelta(hours=25)
    behind = world.verdict()
    world.read(key)
    again = world.verdict()
    assert [passed for passed, _, _ in (before, level, behind, again)] == [False, True, False, True]
    assert [figures["lag/commits_max"] for _, figures, _ in (before, level, behind, again)] == [1, 0, 1, 0]


def test_a_table_that_was_made_anew_was_not_read(engine: SparkEngine, tmp_path: Path) -> None:
    world = World(engine, tmp_path, served)
    for _ in range(3):
        world.write(10)
    world.read()
    shutil.rmtree(world.uri)
    world.write(5)
    passed, figures, said = world.verdict()
    assert not passed
    assert "made again" in said
    assert figures["lag/commits_max"] == 1, "no negative number of versions"


def _files_at(uri: str, version: int) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(uri, version=version).get_add_actions()).to_pylist()


def _bytes(uri: str) -> int:
    return sum(add["size_bytes"] for add in _files_at(uri, DeltaTable(uri).version()))
