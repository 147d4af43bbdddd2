"""The arithmetic of skew and freshness, without an instance and without a table."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from de_checks.freshness.clock import duration
from de_checks.freshness.completeness import expected_keys
from de_checks.freshness.newest_event import newest
from de_checks.patterns import carries
from de_checks.spread import relative_deviation
from de_checks.volume import Baseline, compare

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def ago(hours: float) -> datetime:
    return NOON - timedelta(hours=hours)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([], 0), ([7], 0), ([0, 0], 0), ([5, 5, 5], 0), ([0, 10], 1), ([0, 0, 0, 100], 3**0.5)],
)
def test_relative_deviation(rows: list[int], expected: float) -> None:
    assert relative_deviation(rows) == pytest.approx(expected)


def test_the_newest_event_is_the_greatest_maximum() -> None:
    assert newest([(ago(5), ago(3)), (ago(9), ago(2))], NOON).event == ago(2)


def test_a_file_with_an_event_of_the_future_counts_with_its_oldest() -> None:
    found = newest([(ago(5), ago(3)), (ago(2), ago(-10))], NOON)
    assert (found.event, found.future_files, found.furthest) == (ago(2), 1, ago(-10))


def test_files_wholly_in_the_future_do_not_count_at_all() -> None:
    assert newest([(ago(-1), ago(-2))], NOON).event is None


def test_nothing_is_the_newest_of_nothing() -> None:
    assert newest([], NOON).event is None


def test_a_window_is_expected_from_the_moment_it_ends() -> None:
    hourly = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-02-01-00:00")
    assert expected_keys(hourly, ago(9))[-1] == "2024-01-01-02:00"
    assert expected_keys(hourly, ago(9) - timedelta(seconds=1))[-1] == "2024-01-01-01:00"
    assert expected_keys(hourly, ago(20)) == []


def test_windows_still_open_are_not_expected_though_the_calendar_offers_them() -> None:
    eager = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_offset=2)
    assert expected_keys(eager, ago(9))[-1] == "2024-01-01-02:00"


def test_two_dimensions_are_expected_day_by_day() -> None:
    grid = dg.MultiPartitionsDefinition(
        {
            "day": dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01"),
            "region": dg.StaticPartitionsDefinition(["eu", "us"]),
        }
    )
    assert expected_keys(grid, datetime(2024, 1, 2, tzinfo=UTC)) == ["2024-01-01|eu", "2024-01-01|us"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (310, "5 min 10 s"), (3600, "1 h"), (187_261, "2 d 4 h")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_patterns_are_named_in_metadata() -> None:
    assert carries("skew_detector", "full_loader") == {"pattern/skew_detector": True, "pattern/full_loader": True}


@pytest.mark.pattern("skew_detector")
@pytest.mark.parametrize(("rows", "passed"), [(49, False), (50, True), (100, True), (200, True), (201, False)])
def test_both_directions_fail_outside_the_tolerance_and_pass_on_its_bounds(rows: int, passed: bool) -> None:
    verdict = compare(rows, Baseline(100, "yesterday"), (0.5, 2.0), min_rows=1)
    assert verdict.passed is passed
    assert verdict.metadata == {"rows": rows, "baseline_rows": 100, "baseline": "yesterday", "ratio": rows / 100}


@pytest.mark.parametrize("baseline", [None, Baseline(0, "an empty day")])
def test_without_a_good_earlier_volume_only_emptiness_fails(baseline: Baseline | None) -> None:
    assert compare(3, baseline, (0.5, 2.0), min_rows=1).passed
    assert "no good earlier volume" in compare(3, baseline, (0.5, 2.0), min_rows=1).description
    assert not compare(0, baseline, (0.5, 2.0), min_rows=1).passed
    assert compare(0, baseline, (0.5, 2.0), min_rows=0).passed


def test_an_unknown_volume_is_no_good_one_but_only_a_warning() -> None:
    verdict = compare(None, None, (0.5, 2.0), min_rows=0)
    assert (verdict.passed, verdict.severity) == (False, dg.AssetCheckSeverity.WARN)
