"""Keys and references, which Delta does not hold: checks that look, and a graph in which no key is only promised."""

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import dagster as dg
import pyarrow
import pytest
from checks_world import CANARY, DAYS, World, days, good, verdicts
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from de_assets.automation.triggers.written_around import kept_by_check, written_around
from de_assets.definitions import defs
from de_checks.keys import KEY_IS_UNIQUE, dangling_by_key, reference_check, repeated_by_key, unique_key_check
from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.slices import make_slice
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("constraints_enforcer")


@pytest.fixture
def world(spark: SparkSession, engine: SparkEngine, tmp_path: Path) -> World:
    return World(spark, engine, tmp_path / "lake")


KEEPS_KEYS = {"postgres", "postgresql"}
"""Kinds of assets whose store refuses a key that is there already."""
DERIVED = {"gold/users_latest": "gold/users_snapshot"}
"""Views, which show rows of a dataset that is checked."""


@pytest.mark.red_check("key_is_unique")
def test_a_key_that_comes_twice_is_red_in_its_partition_only(world: World) -> None:
    first, second = days(2)
    twice = good(second)[0]
    world.data = {first: good(first), second: [*good(second), twice, (None, CANARY, 1, "eu"), (None, CANARY, 2, "eu")]}
    visits = world.visits()
    world.define(visits, unique_key_check(visits))
    found = verdicts(world.run(first, second), KEY_IS_UNIQUE)
    assert found[first].passed
    assert not found[second].passed
    assert (found[second].metadata["keys"].value, found[second].metadata["rows"].value) == (2, 4), (
        "nulls are a key, too"
    )
    world.data[second] = good(second)
    assert verdicts(world.run(second), KEY_IS_UNIQUE)[second].passed


def test_the_same_key_in_two_partitions_is_not_repeated_and_nulls_are_a_key(spark: SparkSession) -> None:
    found = [("a", "2024-01-01"), ("a", "2024-01-02"), (None, "2024-01-02"), (None, "2024-01-02")]
    rows = spark.createDataFrame(found, "id STRING, day STRING")
    rows = rows.withColumn("day", rows.day.cast("date"))
    slice_ = make_slice(days(2), DAYS, "day")
    told = {key: (each.keys, each.rows) for key, each in repeated_by_key(rows, slice_, ["id"]).items()}
    assert told == {"2024-01-02": (1, 2)}, "nulls are a key, too"
    assert repeated_by_key(rows, None, ["id"])[None].rows == 4


def test_a_reference_to_nothing_is_counted_by_partition(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("a", "2024-01-01"), (None, "2024-01-01"), ("x", "2024-01-02"), ("x", "2024-01-02"), ("y", "2024-01-02")],
        "who STRING, day STRING",
    )
    rows = rows.withColumn("day", rows.day.cast("date"))
    people = spark.createDataFrame([("a",), ("a",), (None,)], "id STRING")
    found = dangling_by_key(rows, make_slice(days(2), DAYS, "day"), "who", people, "id")
    assert found == {"2024-01-02": (3, 2)}, "by hand: x twice and y; a null refers to nothing"


def test_every_key_that_the_ui_calls_unique_is_kept_by_its_store_or_checked() -> None:
    graph = defs.resolve_asset_graph()
    checked = {key.asset_key.to_user_string() for key in graph.asset_check_keys if key.name == KEY_IS_UNIQUE}
    for key in graph.get_all_asset_keys():
        node, name = graph.get(key), key.to_user_string()
        contract = node.metadata.get("contract")
        columns = Contract.load(contract).table_schema().columns if contract else []
        promised = [c.name for c in columns if c.constraints.unique or any("unique" in o for o in c.constraints.other)]
        if promised and not KEEPS_KEYS & node.kinds:
            assert {name, DERIVED.get(name)} & checked, f"{name} promises that {promised} is unique, and nobody looks"


@dataclass
class Daemon:
    """What looks at the tables of a world, and knows which runs it has requested."""

    world: World
    cursor: str | None = None
    known: set[str | None] = field(default_factory=set)

    def look(self) -> list[tuple[dict[str, str], list[str]]]:
        """The new requests of one look: tags, and names of checks."""
        sensor = written_around(kept_by_check(list(self.world.definitions.asset_checks or [])))
        resources = {"lake": self.world.resources()["lake"]}
        with dg.build_sensor_context(
            self.world.instance, self.cursor, definitions=self.world.definitions, resources=resources
        ) as context:
            answer = sensor.evaluate_tick(context)
        self.cursor = answer.cursor
        new = [each for each in answer.run_requests or [] if each.run_key not in self.known]
        self.known |= {each.run_key for each in new}
        return [(dict(each.tags), [key.name for key in each.asset_check_keys or []]) for each in new]


def write_around(world: World, rows: list[tuple[str, str]]) -> None:
    """Append visits (id and day) without the platform, and without an engine."""
    log = TableLog.open(str(world.root / "silver" / "visits"))
    assert log is not None
    schema = pyarrow.schema(log.table.schema().to_arrow())
    found = [{"visit_id": name, "email": CANARY, "pages": 1, "day": date.fromisoformat(day)} for name, day in rows]
    write_deltalake(log.table, pyarrow.Table.from_pylist(found, schema=schema), mode="append")


@pytest.mark.red_check("key_is_unique")
def test_a_key_that_somebody_writes_twice_around_the_platform_is_asked_for_once_and_found(world: World) -> None:
    first, second, _, fourth = days(4)
    world.data = {key: good(key) for key in (first, second)}
    visits = world.visits()
    world.define(visits, unique_key_check(visits))
    world.run(first, second, checks=False)
    # A run that had no rows.
    world.instance.report_runless_asset_event(dg.AssetMaterialization(visits.key, partition=fourth))
    daemon = Daemon(world)
    assert daemon.look() == [], "what the platform wrote was checked when it was written"

    write_around(world, [(f"{second}/0", second)])
    ((tags, asked),) = daemon.look()
    assert asked == [KEY_IS_UNIQUE]
    assert tags["dagster/partition"] == second
    daemon.cursor = None
    assert daemon.look() == [], "also a cursor that is lost asks nothing twice"
    found = verdicts(world.run(first, second, only="checks"), KEY_IS_UNIQUE)
    assert {key: each.passed for key, each in found.items()} == {first: True, second: False}
    assert (found[second].metadata["keys"].value, found[second].metadata["rows"].value) == (1, 2)

    # Rows that only move change nothing, whoever moves them.
    DeltaTable(f"{world.root}/silver/visits").optimize.compact()
    # Two days that follow each other are one run.
    write_around(world, [("new", first), ("new", second)])
    ((tags, _),) = daemon.look()
    assert (tags["dagster/asset_partition_range_start"], tags["dagster/asset_partition_range_end"]) == (first, second)
    assert verdicts(world.run(first, second), KEY_IS_UNIQUE)[second].passed, "written again, it is in order"
    assert daemon.look() == []
    # Between these two lies a day that nobody has computed.
    write_around(world, [("new", second), ("new", fourth)])
    assert [tags["dagster/partition"] for tags, _ in daemon.look()] == [second, fourth]


def test_a_table_without_partitions_is_asked_for_as_a_whole_and_a_reference_is_judged_in_a_run(world: World) -> None:
    (day,) = days(1)
    world.data = {None: good(day)}
    visits = world.visits(None)
    world.define(visits, unique_key_check(visits), reference_check(visits, "region", visits.key, "visit_id"))
    world.run(checks=False)
    daemon = Daemon(world)
    assert daemon.look() == []
    # By plain Spark.
    world.frame([None]).write.format("delta").mode("append").save(f"{world.root}/silver/visits")
    ((tags, asked),) = daemon.look()
    assert "dagster/partition" not in tags
    assert sorted(asked) == [KEY_IS_UNIQUE, "region_is_in_silver_visits"]
    judged = world.run(only="checks")
    (verdict,) = verdicts(judged, KEY_IS_UNIQUE).values()
    assert (verdict.passed, verdict.metadata["keys"].value, verdict.metadata["rows"].value) == (False, 2, 4)
    (verdict,) = verdicts(judged, "region_is_in_silver_visits").values()
    assert not verdict.passed
    assert (verdict.metadata["rows"].value, verdict.metadata["values"].value) == (4, 1), "no visit is called `eu`"
    both = "silver.visits.region → silver.visits.visit_id"
    assert verdict.metadata["reference"].value == both
    assert verdict.description == f"4 rows refer to nothing, by 1 values: {both}."
