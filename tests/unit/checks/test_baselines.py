"""Which windows are compared: calendars only."""

import dagster as dg
import pytest

from de_checks.baselines import earlier_keys

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2025-01-01")
WARSAW = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2025-01-01-00:00", timezone="Europe/Warsaw")


def test_the_windows_before_come_nearest_first_and_end_with_the_calendar() -> None:
    assert earlier_keys(DAILY, "2024-01-03", "last") == ["2024-01-02", "2024-01-01"]
    assert len(earlier_keys(DAILY, "2024-12-01", "last")) == 28
    assert earlier_keys(DAILY, "2024-01-01", "last") == []


def test_weeks_before_are_four_at_most() -> None:
    assert earlier_keys(DAILY, "2024-01-17", "same_weekday") == ["2024-01-10", "2024-01-03"]
    assert len(earlier_keys(DAILY, "2024-06-17", "same_weekday")) == 4


@pytest.mark.parametrize("key", ["2024-04-02-09:00", "2024-10-29-09:00"], ids=["to summer time", "to winter time"])
def test_the_hour_of_the_clock_stays_the_same_when_clocks_change(key: str) -> None:
    assert all(earlier.endswith("-09:00") for earlier in earlier_keys(WARSAW, key, "same_weekday"))
    assert len(earlier_keys(WARSAW, key, "same_weekday")) == 4


def test_keys_without_a_calendar_have_no_earlier_ones() -> None:
    assert earlier_keys(dg.StaticPartitionsDefinition(["a", "b"]), "b", "last") == []
