"""A day is reported with the hours that are there, its row says how complete it is, and a silent day borrows figures."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from de_assets.contracts.traffic import DailyReport
from de_assets.transforms.data_flow.unaligned_fan_in import DayInputs, EarlierFigures, daily_reports

pytestmark = pytest.mark.pattern("unaligned_fan_in")

FIRST, SECOND, THIRD = date(2024, 10, 10), date(2024, 10, 11), date(2024, 10, 12)
VISITS = [
    # day, hour, user, page
    (10, 0, "ann", "home"),
    (10, 0, "ann", "about"),
    (10, 1, "bob", "home"),
    (10, 2, "cid", "news"),
    (11, 0, "ann", "home"),
]


@pytest.fixture(scope="module")
def visits(spark: SparkSession) -> DataFrame:
    rows = [(datetime(2024, 10, day, hour), user, page) for day, hour, user, page in VISITS]
    return spark.createDataFrame(rows, "event_hour TIMESTAMP, user_id STRING, page STRING")


def inputs(day: date, there: list[int], missing: list[int] | None = None) -> DayInputs:
    midnight = datetime(day.year, day.month, day.day)
    hours = tuple(midnight + timedelta(hours=hour) for hour in there)
    return DayInputs(day, hours, tuple(f"{day}-{hour:02}:00" for hour in missing or []))


def rows(visits: DataFrame, *days: DayInputs, earlier: EarlierFigures | None = None) -> dict[date, dict[str, Any]]:
    found = [row.asDict() for row in daily_reports(visits, days, earlier).collect()]
    assert len(found) == len(days), "one row per day"
    return {row.pop("report_date"): row for row in found}


def test_a_whole_day_is_reported_as_such(visits: DataFrame) -> None:
    assert rows(visits, inputs(FIRST, [0, 1, 2])) == {
        FIRST: {
            "visits": 4,
            "users": 3,
            "pages": 3,
            "figures_of": FIRST,
            "basis": "all hours",
            "completeness": 1.0,
            "is_approximate": False,
            "hours_expected": 3,
            "hours_there": 3,
            "missing_hours": "",
        }
    }


def test_what_is_missing_is_named_and_not_counted_though_it_lies_in_the_table(visits: DataFrame) -> None:
    """The hour 2 did not pass its gate: its row is there and must not be trusted."""
    report = rows(visits, inputs(FIRST, [0, 1], [2, 3]))[FIRST]
    assert (report["visits"], report["users"], report["pages"]) == (3, 2, 2)
    assert (report["completeness"], report["is_approximate"], report["basis"]) == (0.5, True, "some hours")
    assert report["missing_hours"] == "2024-10-10-02:00, 2024-10-10-03:00"


def test_hours_without_a_visit_are_no_missing_hours(visits: DataFrame) -> None:
    report = rows(visits, inputs(THIRD, [0, 1]))[THIRD]
    assert (report["visits"], report["completeness"], report["basis"], report["figures_of"]) == (
        0,
        1.0,
        "all hours",
        THIRD,
    )


def test_a_day_of_which_nothing_came_has_the_figures_of_the_day_before_and_says_so(visits: DataFrame) -> None:
    found = rows(visits, inputs(FIRST, [0, 1, 2]), inputs(SECOND, [], [0, 1]), inputs(THIRD, [], [0]))
    for day in (SECOND, THIRD):
        report = found[day]
        assert (report["visits"], report["users"], report["pages"], report["figures_of"]) == (4, 3, 3, FIRST)
        assert (report["basis"], report["completeness"], report["is_approximate"]) == ("earlier day", 0.0, True)


def test_the_newest_of_the_earlier_figures_counts(visits: DataFrame) -> None:
    earlier = EarlierFigures(FIRST - timedelta(days=3), 70, 7, 5)
    assert rows(visits, inputs(FIRST, [], [0]), earlier=earlier)[FIRST]["visits"] == 70
    both = rows(visits, inputs(FIRST, [0], [1]), inputs(SECOND, [], [0]), earlier=earlier)
    assert (both[SECOND]["visits"], both[SECOND]["figures_of"]) == (2, FIRST)


@pytest.mark.parametrize(
    "earlier", [None, EarlierFigures(FIRST - timedelta(days=8), 70, 7, 5)], ids=["none", "too old to be told"]
)
def test_where_nothing_can_stand_in_the_row_says_nothing(visits: DataFrame, earlier: EarlierFigures | None) -> None:
    report = rows(visits, inputs(FIRST, [], [0]), earlier=earlier)[FIRST]
    assert (report["visits"], report["basis"], report["is_approximate"]) == (0, "nothing", True)


def test_no_reader_can_take_an_approximation_for_the_truth() -> None:
    """Whatever says so is never null; the table refuses what contradicts itself (`tests/graph/test_daily_report.py`)."""
    nullable = {name: column.nullable for name, column in DailyReport.to_schema().columns.items()}
    assert nullable
    assert not any(nullable.values()), nullable
