"""Yesterday and its look-back are one run; what a backfill would compute can be asked before."""

from datetime import UTC, datetime

import dagster as dg
import pytest
from typer.testing import CliRunner

from de_assets.automation.schedules import referral_stats_daily
from de_assets.cli.application import application
from de_assets.definitions import defs

pytestmark = pytest.mark.pattern("static_late_data_integrator")


def evaluate(*moment: int) -> list[dg.RunRequest | dg.SkipReason]:
    context = dg.build_schedule_context(scheduled_execution_time=datetime(*moment, tzinfo=UTC))  # type: ignore[misc,arg-type]
    return list(referral_stats_daily(context))  # type: ignore[call-overload]


def test_yesterday_and_its_look_back_are_one_run() -> None:
    (request,) = evaluate(2024, 10, 12, 2)
    assert isinstance(request, dg.RunRequest)
    assert request.run_key == "2024-10-11"
    assert request.tags["dagster/asset_partition_range_start"] == "2024-10-10", "the calendar begins there"
    assert request.tags["dagster/asset_partition_range_end"] == "2024-10-11"


def test_a_day_that_the_calendar_does_not_have_is_skipped() -> None:
    (skipped,) = evaluate(2025, 1, 1, 2)
    assert isinstance(skipped, dg.SkipReason)
    assert "2024-12-31" in str(skipped.skip_message)


def test_the_graph_shows_which_hours_a_day_reads() -> None:
    graph = defs.resolve_asset_graph()
    key, late = dg.AssetKey(["gold", "referral_stats"]), dg.AssetKey(["silver", "visits_late"])
    mapping = graph.get_partition_mapping(key, late)
    assert isinstance(mapping, dg.TimeWindowPartitionMapping)
    hours = mapping.get_upstream_mapped_partitions_result_for_partitions(
        downstream_partitions_subset=graph.get(key).partitions_def.subset_with_partition_keys(["2024-10-11"]),  # type: ignore[union-attr]
        downstream_partitions_def=graph.get(key).partitions_def,
        upstream_partitions_def=graph.get(late).partitions_def,  # type: ignore[arg-type]
    ).partitions_subset.get_partition_keys()
    assert sorted(hours)[0] == "2024-10-11-00:00"
    assert sorted(hours)[-1] == "2024-10-12-23:00", "fifteen days, as far as the calendar goes"


def test_the_planner_prints_each_day_once() -> None:
    done = CliRunner().invoke(application(), ["plan", "gold/referral_stats", "2024-10-11", "2024-10-14"])
    assert done.exit_code == 0, done.output
    assert "2 asked and 1 look-back days" in done.output
    assert "2 asked days are not in the calendar" in done.output


@pytest.mark.pattern("fast_metadata_cleaner")
def test_the_planner_says_that_days_of_a_weekly_asset_are_not_computed_alone() -> None:
    done = CliRunner().invoke(
        application(), ["plan", "serving/weekly_visits", "2024-10-11", "2024-10-20"], env={"COLUMNS": "160"}
    )
    assert done.exit_code == 0, done.output
    assert "2024-W41" in done.output
    assert "2024-W42" not in done.output, "the calendar does not have it"
    assert "The week is the unit" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["silver/visits", "2024-10-11"], "no asset with daily partitions"),
        (["gold/referral_stats", "yesterday"], "names no days"),
        (["gold/referral_stats", "2024-10-12", "2024-10-11"], "names no days"),
    ],
)
def test_what_cannot_be_planned_says_why(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(application(), ["plan", *arguments])
    assert done.exit_code == 1
    assert said in done.output + capfd.readouterr().err
