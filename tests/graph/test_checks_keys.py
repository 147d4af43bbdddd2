"""Keys and references, which Delta does not hold: checks that look, and a graph in which no key is only promised."""

from pathlib import Path

import dagster as dg
import pytest
from checks_world import CANARY, DAYS, World, days, good, verdicts
from pyspark.sql import SparkSession

from de_assets.definitions import defs
from de_checks.keys import KEY_IS_UNIQUE, dangling_by_key, reference_check, repeated_by_key, unique_key_check
from de_resources.contract import Contract
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


def test_the_same_key_in_two_partitions_is_not_repeated(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", "2024-01-01"), ("a", "2024-01-02")], "id STRING, day STRING")
    rows = rows.withColumn("day", rows.day.cast("date"))
    slice_ = make_slice(days(2), DAYS, "day")
    assert repeated_by_key(rows, slice_, ["id"]) == {}
    assert repeated_by_key(rows, None, ["id"])[None].rows == 2


def test_a_reference_to_nothing_is_counted_by_partition(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("a", "2024-01-01"), (None, "2024-01-01"), ("x", "2024-01-02"), ("x", "2024-01-02"), ("y", "2024-01-02")],
        "who STRING, day STRING",
    )
    rows = rows.withColumn("day", rows.day.cast("date"))
    people = spark.createDataFrame([("a",), ("a",), (None,)], "id STRING")
    found = dangling_by_key(rows, make_slice(days(2), DAYS, "day"), "who", people, "id")
    assert found == {"2024-01-02": (3, 2)}, "by hand: x twice and y; a null refers to nothing"


def test_a_reference_is_judged_in_a_run(world: World) -> None:
    (first,) = days(1)
    world.data = {first: good(first)}
    visits = world.visits()
    check = reference_check(visits, "region", dg.AssetKey(["silver", "visits"]), "visit_id")
    world.define(visits, check)
    (verdict,) = verdicts(world.run(first), next(iter(check.check_specs)).name).values()
    assert not verdict.passed
    assert (verdict.metadata["rows"].value, verdict.metadata["values"].value) == (2, 1), "no visit is called `eu`"


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
