"""Silences: those that a source keeps by itself, and those that are an outage."""

from datetime import UTC, datetime, timedelta
from math import exp
from pathlib import Path
from random import Random

import dagster as dg
import pytest
from checks_world import World, jobs_run, verdicts
from pyspark.sql import DataFrame, SparkSession

from de_checks.baselines import NoSeason
from de_checks.freshness import gap_check
from de_checks.freshness.gaps import ACCEPT_TAG, unlikely_gaps
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("flow_interruption_detector")

CHECK, CHANCE = "flow_has_no_gaps", 1e-6
MONDAY, HOUR = datetime(2024, 1, 1, tzinfo=UTC), timedelta(hours=1)
Rows = dict[datetime, int]


def busy(days: int, per_hour: int = 100) -> Rows:
    return {MONDAY + n * HOUR: per_hour for n in range(days * 24)}


def silent(rows: Rows, day: int, first: int, last: int) -> Rows:
    """The same, with nothing in these hours of a day, the last one excluded."""
    return rows | {MONDAY + timedelta(days=day, hours=hour): 0 for hour in range(first, last)}


def found(rows: Rows) -> list[str]:
    return [gap.label for gap in unlikely_gaps(rows, CHANCE)]


NOON = ["2024-01-03 12:00 to 2024-01-03 15:00"]


def test_a_busy_log_with_three_empty_hours_at_noon_had_an_outage() -> None:
    assert found(silent(busy(7), 2, 12, 15)) == NOON
    assert found(silent(busy(3), 2, 12, 15)) == NOON, "on the last of three days, too"
    assert found(busy(7)) == []


def test_two_outages_at_the_same_hour_do_not_excuse_each_other() -> None:
    assert found(silent(silent(busy(14), 2, 12, 15), 5, 12, 15)) == [*NOON, "2024-01-06 12:00 to 2024-01-06 15:00"]


@pytest.mark.parametrize("days", [1, 2, 7, 30])
def test_scanners_in_six_of_24_hours_of_each_day_are_quiet_in_the_others(days: int) -> None:
    hours = {2, 3, 9, 10, 11, 20}
    assert found({at: 700 if at.hour in hours else 0 for at in busy(days)}) == []


@pytest.mark.parametrize("seed", range(10))
def test_scanners_that_come_in_any_hour_are_quiet_in_the_others(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    assert found({at: 700 if random.random() < 0.25 else 0 for at in busy(14)}) == []


def test_nights_and_weekends_are_no_outages_and_the_afternoon_of_a_working_day_is() -> None:
    office = {at: 100 if 8 <= at.hour < 18 and at.weekday() < 5 else 0 for at in busy(28)}
    assert found(office) == []
    assert found(silent(office, 15, 13, 16)) == ["2024-01-16 13:00 to 2024-01-16 16:00"]


def test_one_visit_would_have_made_the_difference_between_chance_and_none() -> None:
    # Of 13 events in a stretch chance may leave out all, of 14 not: exp(-13.8) is a millionth.
    assert exp(-13) > CHANCE > exp(-14)
    assert found(silent(busy(7, 13), 2, 12, 13)) == []
    assert found(silent(busy(7, 14), 2, 12, 13)) == ["2024-01-03 12:00 to 2024-01-03 13:00"]


def test_what_nobody_can_compare_is_not_judged() -> None:
    assert found(silent(busy(1), 0, 12, 15)) == [], "one day only"
    assert found(silent(busy(7), 6, 20, 24)) == [], "the end of what is there"
    beside = silent(busy(7), 2, 12, 15)
    del beside[MONDAY + timedelta(days=2, hours=15)]
    assert found(beside) == [], "a window beside it is missing"
    assert found({}) == found({MONDAY: 0}) == []


def test_an_outage_of_two_days_is_one_gap() -> None:
    rows = silent(silent(busy(14), 4, 0, 24), 5, 0, 24)
    assert found(rows) == ["2024-01-05 00:00 to 2024-01-07 00:00"]


QUARTERS = dg.TimeWindowPartitionsDefinition(
    cron_schedule="0 */6 * * *", fmt="%Y-%m-%d-%H:%M", start="2024-01-01-00:00", end="2024-01-06-00:00"
)


@pytest.mark.red_check("flow_has_no_gaps")
def test_the_last_range_decides_and_a_known_gap_is_told_once(
    spark: SparkSession, engine: SparkEngine, tmp_path: Path
) -> None:
    world, outages = World(spark, engine, tmp_path / "lake"), {"2024-01-03-12:00"}

    @dg.asset(
        key=["bronze", "hits"],
        partitions_def=QUARTERS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "quarter", "partitioned_by": ["quarter"]},
    )
    def hits(context: dg.AssetExecutionContext) -> DataFrame:
        keys = [key for key in context.partition_keys if key not in outages]
        rows = [(QUARTERS.time_window_for_partition_key(key).start, n) for key in keys for n in range(30)]
        return spark.createDataFrame(rows, "quarter timestamp, number int").coalesce(1)

    world.define(hits, gap_check(hits))
    keys = QUARTERS.get_partition_keys()

    assert verdicts(world.run(*keys[3:12]), CHECK)[None].passed, "without the days around it nobody can tell"
    done = world.run(*keys[12:])
    assert done.success
    verdict = verdicts(done, CHECK)[None]
    assert (verdict.passed, verdict.severity, verdict.blocking) == (False, dg.AssetCheckSeverity.WARN, False)
    assert (
        verdict.description == "Nothing came from 2024-01-03 12:00 to 2024-01-03 18:00, where some 30 rows are usual."
    )
    before = jobs_run(spark)
    accepted = world.run(keys[-1], only="checks", tags={ACCEPT_TAG: "a move to another server"})
    assert jobs_run(spark) == before
    assert verdicts(accepted, CHECK)[None].passed

    outages |= {"2024-01-04-06:00"}
    again = verdicts(world.run("2024-01-04-06:00"), CHECK)[None]
    assert again.metadata["gaps"].value == ["2024-01-04 06:00 to 2024-01-04 12:00"], "the other one is known"


def test_data_without_a_calendar_is_refused() -> None:
    with pytest.raises(NoSeason):
        gap_check(dg.AssetSpec("a"))
