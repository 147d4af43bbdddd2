"""Skew checks on real Delta tables: the log alone tells how evenly rows are spread."""

from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from checks_world import DAYS, World, days, good, jobs_run, red, verdicts
from pyspark.sql import DataFrame, SparkSession

from de_checks.skew import skew_check
from de_resources.spark import SparkEngine

CHECK = "load_is_balanced"


@pytest.fixture
def world(spark: SparkSession, engine: SparkEngine, tmp_path: Path) -> World:
    return World(spark, engine, tmp_path / "lake")


def hourly(world: World, rows: dict[str, list[int]], **metadata: Any) -> dg.AssetsDefinition:
    """Days that are stored hour by hour; `rows` are the rows of each hour."""

    @dg.asset(
        key=["silver", "hours"],
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "day", "partitioned_by": ["day", "hour"], **metadata},
    )
    def hours(context: dg.AssetExecutionContext) -> DataFrame:
        values = [
            (date.fromisoformat(day), hour, "visit")
            for day in context.partition_keys
            for hour, count in enumerate(rows[day])
            for _ in range(count)
        ]
        return world.spark.createDataFrame(values, "day date, hour int, note string").coalesce(1)

    return hours


@pytest.mark.pattern("skew_detector")
def test_a_day_with_one_hot_hour_is_skewed_and_an_even_one_is_not(world: World) -> None:
    rows = {"2024-01-01": [5, 5, 6, 4], "2024-01-02": [1, 1, 97, 1]}
    hours = hourly(world, rows)
    world.define(hours, skew_check(hours, max_deviation=0.5))
    world.run(*rows, checks=False)
    before = jobs_run(world.spark)

    result = world.run(*rows, only="checks")

    assert jobs_run(world.spark) == before
    assert red(result, CHECK) == ["2024-01-02"]
    figures = verdicts(result, CHECK)["2024-01-02"].metadata
    assert figures["relative_deviation"].value == pytest.approx(1.6628, abs=1e-4)
    assert figures["largest"].value == "day=2024-01-02, hour=2: 97 rows"
    assert figures["smallest"].value.endswith(": 1 rows")


@pytest.mark.parametrize(("expected", "failed"), [(None, []), (4, ["2024-01-01"])])
def test_a_silent_part_counts_as_empty_where_it_was_expected(
    world: World, expected: int | None, failed: list[str]
) -> None:
    hours = hourly(world, {"2024-01-01": [5, 5, 0, 0]})
    world.define(hours, skew_check(hours, expected_parts=expected))
    result = world.run("2024-01-01")
    assert red(result, CHECK) == failed
    assert result.success


def test_files_can_be_the_parts(world: World) -> None:
    visits = world.visits(None)
    world.define(visits, skew_check(visits, over="files", blocking=True))
    world.data[None] = good("2024-01-01", 3)
    result = world.run()
    assert result.success
    assert verdicts(result, CHECK)[None].metadata["parts"].value == 1
    assert verdicts(result, CHECK)[None].metadata["rows"].value == 3


def test_a_layout_that_does_not_follow_the_partitions_is_refused(world: World) -> None:
    visits = world.visits(partitioned_by=["region"])
    world.define(visits, skew_check(visits))
    world.data |= {day: good(day) for day in days(1)}
    result = world.run("2024-01-01")
    failure = next(e for e in result.all_events if e.is_step_failure)
    assert "not physically partitioned by day" in str(failure.step_failure_data.error)
