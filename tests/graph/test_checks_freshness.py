"""Freshness in three kinds, with a clock that the test holds."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from checks_world import World, clock, jobs_run, red, verdicts
from pyspark.sql import DataFrame, SparkSession

from de_checks.freshness import cadence_policy, completeness_check, newest_event_check
from de_checks.freshness.completeness import NotPartitioned
from de_resources.spark import SparkEngine

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
COMPLETE, RECENT = "partitions_are_complete", "newest_event_is_recent"
NOW = "2024-01-08T02:00:00+00:00"


@pytest.mark.pattern("flow_interruption_detector")
@pytest.mark.parametrize(
    ("delay", "missing"),
    [
        (timedelta(0), ["2024-01-04", "2024-01-07"]),
        (timedelta(hours=2), ["2024-01-04", "2024-01-07"]),
        (timedelta(hours=3), ["2024-01-04"]),
    ],
    ids=["due at once", "due at this moment", "may be late"],
)
def test_missing_partitions_are_named_once_they_are_due(delay: timedelta, missing: list[str]) -> None:
    @dg.asset(partitions_def=DAILY)
    def daily() -> None: ...

    instance = dg.DagsterInstance.ephemeral()
    for day in (1, 2, 3, 5, 6, 9):
        instance.report_runless_asset_event(dg.AssetMaterialization("daily", partition=f"2024-01-0{day}"))
    check = completeness_check(daily, allowed_delay=delay, now=clock(NOW))

    # A run of the check alone, without a partition: that is how a schedule starts it when nothing else runs.
    result = dg.materialize([daily, check], selection=dg.AssetSelection.checks(check), instance=instance)

    evaluation = verdicts(result, COMPLETE)[None]
    assert not evaluation.passed
    assert evaluation.metadata["first_missing"].value == missing
    assert evaluation.metadata["missing"].value == len(missing)
    assert all(day in (evaluation.description or "") for day in missing)
    last_good = datetime.fromtimestamp(evaluation.metadata["complete_until"].value, UTC)
    assert last_good == datetime(2024, 1, 4, tzinfo=UTC)


def test_history_before_the_period_of_interest_is_not_expected() -> None:
    @dg.asset(partitions_def=DAILY)
    def daily() -> None: ...

    instance = dg.DagsterInstance.ephemeral()
    for day in ("2024-01-06", "2024-01-07"):
        instance.report_runless_asset_event(dg.AssetMaterialization("daily", partition=day))
    check = completeness_check(daily, since=timedelta(days=2), now=clock(NOW))
    result = dg.materialize([daily, check], selection=dg.AssetSelection.checks(check), instance=instance)
    assert red(result, COMPLETE) == []
    assert verdicts(result, COMPLETE)[None].metadata["expected"].value == 2


def test_many_missing_partitions_are_counted_and_the_first_named() -> None:
    @dg.asset(partitions_def=DAILY)
    def daily() -> None: ...

    check = completeness_check(daily, now=clock("2024-02-10T00:00:00+00:00"))
    result = dg.materialize([daily, check], selection=dg.AssetSelection.checks(check))
    evaluation = verdicts(result, COMPLETE)[None]
    assert evaluation.metadata["missing"].value == 40
    assert "2024-01-05 and 35 more" in (evaluation.description or "")


def test_completeness_is_judged_for_the_whole_asset_in_a_run_of_one_partition_too() -> None:
    @dg.asset(partitions_def=DAILY)
    def daily() -> None: ...

    check = completeness_check(daily, now=clock("2024-01-03T00:00:00+00:00"))
    result = dg.materialize([daily, check], partition_key="2024-01-01")
    assert result.success
    assert verdicts(result, COMPLETE)[None].metadata["first_missing"].value == ["2024-01-02"]


def test_an_asset_without_partitions_cannot_be_incomplete() -> None:
    @dg.asset
    def whole() -> None: ...

    with pytest.raises(NotPartitioned):
        completeness_check(whole)


def events(world: World, *times: datetime, partitioned: bool = False) -> dg.AssetsDefinition:
    """A table of events; a file for each."""
    layout = {"partitioned_by": ["day"]} if partitioned else {}

    @dg.asset(key=["silver", "events"], metadata={"mode": "append", **layout})
    def events() -> DataFrame:
        rows = [(time, time.date() if isinstance(time, datetime) else date.min, "x") for time in times]
        return world.spark.createDataFrame(rows, "event_time timestamp, day date, note string").repartitionByRange(
            max(1, len(rows)), "event_time"
        )

    return events


@pytest.fixture
def world(spark: SparkSession, engine: SparkEngine, tmp_path: Path) -> World:
    return World(spark, engine, tmp_path / "lake")


def at(hour: int, day: int = 8, minute: int = 0) -> datetime:
    return datetime(2024, 1, day, hour, minute, tzinfo=UTC)


@pytest.mark.pattern("flow_interruption_detector")
def test_age_is_that_of_the_newest_event_and_not_of_the_write(world: World) -> None:
    table = events(world, at(1), at(0))
    recent = newest_event_check(table, column="event_time", max_age=timedelta(hours=1), now=clock(NOW))
    stale = newest_event_check(table, column="event_time", max_age=timedelta(minutes=59), now=clock(NOW), name="stale")
    world.define(table, recent, stale)
    assert world.run(checks=False).success
    before = jobs_run(world.spark)

    result = world.run(only="checks")

    assert jobs_run(world.spark) == before
    assert red(result, RECENT) == []
    assert red(result, "stale") == [None]
    assert verdicts(result, RECENT)[None].metadata["age_seconds"].value == 3600
    # The table was written just now; compacting it changes nothing either.
    world.spark.sql(f"OPTIMIZE delta.`{world.root}/silver/events`").collect()
    assert red(world.run(only="checks"), "stale") == [None]


@pytest.mark.pattern("flow_interruption_detector")
def test_one_event_of_the_future_does_not_make_a_dead_flow_look_alive(world: World) -> None:
    future = datetime(2031, 1, 1, tzinfo=UTC)
    table = events(world, at(3, day=5), at(4, day=5), future)
    check = newest_event_check(table, column="event_time", max_age=timedelta(days=1), now=clock(NOW))
    world.define(table, check)

    evaluation = verdicts(world.run(), RECENT)[None]

    assert not evaluation.passed
    assert evaluation.metadata["future_files"].value == 1
    assert evaluation.metadata["furthest_event"].value == future.timestamp()
    assert evaluation.metadata["newest_event"].value == at(4, day=5).timestamp()


def test_a_physical_partition_column_has_no_statistics_and_works_as_well(world: World) -> None:
    table = events(world, at(1, day=7), at(1, day=8), partitioned=True)
    check = newest_event_check(table, column="day", max_age=timedelta(hours=3), now=clock(NOW))
    world.define(table, check)
    assert verdicts(world.run(), RECENT)[None].metadata["age_seconds"].value == 2 * 3600


def test_a_table_that_is_not_there_fails_and_an_unknown_column_says_so(world: World) -> None:
    table = events(world, at(1))
    recent = newest_event_check(table, column="event_time", max_age=timedelta(hours=2), now=clock(NOW))
    wrong = newest_event_check(table, column="no_such", max_age=timedelta(hours=2), name="wrong")
    world.define(table, recent)
    assert red(world.run(only="checks"), RECENT) == [None]

    world.define(table, wrong)
    failure = next(e for e in world.run().all_events if e.is_step_failure)
    assert "keeps no statistics of the column `no_such`" in str(failure.step_failure_data.error)


def test_cadence_is_dagsters_own_policy() -> None:
    policy = cadence_policy(timedelta(hours=1), grace=timedelta(minutes=30))
    assert policy == dg.FreshnessPolicy.time_window(
        fail_window=timedelta(minutes=90), warn_window=timedelta(minutes=60)
    )
