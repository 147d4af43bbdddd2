"""Fifteen days of late data, on a calendar that is long enough to tell them from fourteen."""

import importlib
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest

from de_assets.automation.schedules import referral_stats_daily
from de_assets.calendar import Calendar
from de_assets.gold.referral_stats import referral_stats
from de_assets.late_days import LOOK_BACK, days_of, plan
from de_assets.ranges import RANGE_END, RANGE_START

pytestmark = pytest.mark.pattern("static_late_data_integrator")

AUTUMN = Calendar(datetime(2024, 9, 1, tzinfo=UTC), datetime(2024, 12, 1, tzinfo=UTC))
DAY = date(2024, 10, 1)


def test_a_day_reads_what_landed_on_it_and_in_the_fifteen_days_after_it() -> None:
    mapping = referral_stats.get_partition_mapping(dg.AssetKey(["silver", "visits_late"]))
    assert isinstance(mapping, dg.TimeWindowPartitionMapping)
    day = AUTUMN.daily.subset_with_partition_keys([DAY.isoformat()])
    read = mapping.get_upstream_mapped_partitions_result_for_partitions(day, AUTUMN.daily, AUTUMN.hourly)
    hours = sorted(read.partitions_subset.get_partition_keys())
    assert (hours[0], hours[-1]) == ("2024-10-01-00:00", "2024-10-16-23:00")
    assert len(hours) == 16 * 24


def test_a_run_of_a_day_also_computes_the_fifteen_days_before_it() -> None:
    look_back = referral_stats.get_asset_spec().metadata[LOOK_BACK]
    computed = plan([DAY], look_back, days_of(AUTUMN.daily))
    assert computed.look_back == tuple(DAY - timedelta(days=n) for n in range(15, 0, -1))


def test_the_schedule_computes_yesterday_and_the_fifteen_days_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package has a list of the module's name.
    monkeypatch.setattr(importlib.import_module("de_assets.automation.schedules"), "daily", AUTUMN.daily)
    context = dg.build_schedule_context(scheduled_execution_time=datetime(2024, 10, 2, 2, tzinfo=UTC))
    (request,) = referral_stats_daily(context)  # type: ignore[misc]
    assert isinstance(request, dg.RunRequest)
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == ("2024-09-16", "2024-10-01")
