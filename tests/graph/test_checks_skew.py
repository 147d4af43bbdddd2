"""Skew checks on real Delta tables: the log alone tells how evenly rows are spread."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow
import pytest
from checks_world import DAYS, World, days, good, jobs_run, red, verdicts
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from de_checks.baselines import NoSeason
from de_checks.skew import ACCEPT_TAG, skew_check
from de_resources.lake import Lake
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


def test_a_silent_part_counts_as_empty_where_it_was_expected(world: World) -> None:
    hours = hourly(world, {"2024-01-01": [5, 5, 0, 0]})
    world.define(hours, skew_check(hours), skew_check(hours, expected_parts=4, name="four"))
    result = world.run("2024-01-01")
    assert red(result, CHECK) == []
    assert red(result, "four") == ["2024-01-01"]
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


HOURS = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-05-00:00")
START = datetime(2024, 1, 1, tzinfo=UTC)


def key_of(hour: int) -> str:
    return (START + timedelta(hours=hour)).strftime(HOURS.fmt)


@dataclass
class Hours:
    """A table whose hours are single parts, written as a foreign writer does and materialised without a run: no engine."""

    root: Path
    within: timedelta = timedelta(hours=12)
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        @dg.asset(key=["silver", "hours"], partitions_def=HOURS, metadata={"partition_expr": "hour"})
        def hours() -> None:
            raise AssertionError("written by somebody else")

        self.asset = hours
        self.check = skew_check(self.asset, max_deviation=1.0, within=self.within, blocking=False)
        self.gate = self._gate()

    def _gate(self) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=self.asset.key, partitions_def=HOURS, blocking=True)
        def gate() -> dg.AssetCheckResult:
            raise AssertionError("judged by hand")

        return gate

    def write(self, *rows: int, first: int = 0) -> list[str]:
        """Hours one after the other, with so many rows; their keys."""
        keys = [key_of(first + n) for n in range(len(rows))]
        hours = [START + timedelta(hours=first + n) for n, count in enumerate(rows) for _ in range(count)]
        table = pyarrow.table({"hour": pyarrow.array(hours, pyarrow.timestamp("us", "UTC")), "v": [1] * len(hours)})
        write_deltalake(str(self.root / "silver" / "hours"), table, mode="append", partition_by=["hour"])
        for key in keys:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(self.asset.key, partition=key))
        return keys

    def refuse(self, key: str) -> None:
        """The gate's verdict on an hour is bad."""
        event = dg.AssetCheckEvaluation(
            asset_key=self.asset.key, check_name="gate", passed=False, metadata={}, partition=key, blocking=True
        )
        self.instance.report_runless_asset_event(event)

    def judge(self, keys: list[str], **tags: str) -> list[str | None]:
        """The hours that are skewed, by a run of the check over them."""
        lake = Lake(root_uri=str(self.root), spark=SparkEngine())
        definitions = dg.Definitions([self.asset], asset_checks=[self.check, self.gate], resources={"lake": lake})
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection=set(), asset_check_selection=set(self.check.check_keys)
        )
        ends = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        done = job.execute_in_process(
            instance=self.instance,
            partition_key=keys[0] if len(keys) == 1 else None,
            tags={**(ends if len(keys) > 1 else {}), **tags},
        )
        self.told = verdicts(done, CHECK)
        return red(done, CHECK)


@pytest.fixture
def hours(tmp_path: Path) -> Hours:
    return Hours(tmp_path)


@pytest.mark.pattern("skew_detector")
@pytest.mark.parametrize("together", [True, False], ids=["one run", "a run per hour"])
def test_one_hot_hour_is_told_and_makes_none_of_the_next_ones_look_cold(hours: Hours, together: bool) -> None:
    rows = [10] * 18
    rows[8] = 400
    keys = hours.write(*rows)
    found = hours.judge(keys) if together else [key for each in keys for key in hours.judge([each])]
    assert found == [key_of(8)]
    assert hours.told[keys[-1]].metadata["relative_deviation"].value == 0
    assert hours.told[keys[-1]].metadata["parts"].value == 11, "the hot hour is not among them"


@pytest.mark.pattern("skew_detector")
def test_an_hour_that_a_gate_has_refused_stands_beside_no_other(hours: Hours) -> None:
    keys = hours.write(*[10] * 12)
    assert hours.judge(keys) == []
    assert hours.told[keys[-1]].metadata["parts"].value == 12
    hours.refuse(keys[3])
    assert hours.judge([keys[-1]]) == []
    assert hours.told[keys[-1]].metadata["parts"].value == 11


def test_an_hour_without_rows_is_an_empty_part_and_one_alone_is_balanced(hours: Hours) -> None:
    keys = hours.write(10, 10, 0, 0, 0, 0)
    assert hours.judge(keys[:1]) == []
    # Two of six hours have all rows: the deviation is the root of two.
    assert hours.judge(keys) == [keys[-2], keys[-1]]
    assert hours.told[keys[-1]].metadata["absent_parts"].value == 3, "and the one before it was not accepted"


@pytest.mark.red_check("load_is_balanced")
def test_a_person_takes_a_spread_for_usual(hours: Hours) -> None:
    keys = hours.write(10, 10, 10, 10, 400)
    assert hours.judge(keys) == [keys[-1]]
    assert hours.judge(keys[-1:], **{ACCEPT_TAG: "a launch"}) == []
    assert hours.told[keys[-1]].metadata["accepted"].value == "a launch"


def test_a_rerun_says_the_same(hours: Hours) -> None:
    keys = hours.write(10, 10, 10, 10, 400, 10)
    assert [hours.judge(keys) for _ in range(3)] == [[keys[4]]] * 3


def test_without_a_calendar_there_is_nothing_before() -> None:
    with pytest.raises(NoSeason):
        skew_check(dg.AssetSpec("whole"), within=timedelta(days=1))
