"""The week as the unit: which days it has, what it is called, and what is not one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from de_assets.calendar import Calendar
from de_resources.iso_week import NotAWeek, Week

pytestmark = pytest.mark.pattern("fast_metadata_cleaner")


@pytest.mark.parametrize(
    ("day", "name", "first", "last"),
    [
        # Published by ISO 8601's own examples: the year of a week is that of its Thursday.
        (date(2023, 1, 1), "2022-W52", date(2022, 12, 26), date(2023, 1, 1)),
        (date(2023, 1, 2), "2023-W01", date(2023, 1, 2), date(2023, 1, 8)),
        (date(2021, 1, 3), "2020-W53", date(2020, 12, 28), date(2021, 1, 3)),
        (date(2008, 12, 29), "2009-W01", date(2008, 12, 29), date(2009, 1, 4)),
        (date(2024, 10, 10), "2024-W41", date(2024, 10, 7), date(2024, 10, 13)),
    ],
)
def test_a_day_lies_in_the_week_that_iso_says_also_at_new_year(day: date, name: str, first: date, last: date) -> None:
    week = Week.of(day)
    assert (str(week), week.start, week.last) == (name, first, last)
    assert week.label == name.lower().replace("-", "")


def test_each_day_of_thirty_years_lies_in_exactly_one_week_and_no_two_weeks_share_a_name() -> None:
    days = [date(2000, 1, 1) + timedelta(days=n) for n in range(30 * 365)]
    weeks = {day: Week.of(day) for day in days}
    assert all(week.start <= day < week.end for day, week in weeks.items())
    assert len({week.label for week in weeks.values()}) == len(set(weeks.values()))


def test_a_day_inside_a_week_is_told_that_the_week_is_the_unit() -> None:
    assert Week.of_key("2024-10-07") == Week.of(date(2024, 10, 7))
    with pytest.raises(NotAWeek, match=r"`2024-10-10`, a Thursday,.*unit of runs and backfills.*Ask for `2024-10-07`"):
        Week.of_key("2024-10-10")


@pytest.mark.parametrize(
    ("start", "hours", "weeks"),
    [
        (datetime(2024, 10, 10, tzinfo=UTC), 24, "`2024-10-07`"),
        (datetime(2024, 10, 7, tzinfo=UTC), 24, "`2024-10-07`"),
        (datetime(2024, 10, 6, tzinfo=UTC), 168, "`2024-09-30` and `2024-10-07`"),
        (datetime(2024, 10, 7, 1, tzinfo=UTC), 168, "`2024-10-07` and `2024-10-14`"),
        (datetime(2024, 10, 7, tzinfo=timezone(timedelta(hours=2))), 168, "`2024-09-30` and `2024-10-07`"),
    ],
)
def test_a_window_that_is_less_or_askew_is_no_week(start: datetime, hours: int, weeks: str) -> None:
    with pytest.raises(NotAWeek, match=f"Ask for {weeks}"):
        Week.of_window(start, start + timedelta(hours=hours))


def test_a_window_from_monday_to_monday_is_one() -> None:
    start = datetime(2022, 12, 26, tzinfo=UTC)
    assert str(Week.of_window(start, start + timedelta(days=7))) == "2022-W52"


def test_the_calendar_has_a_week_for_each_of_its_days_and_no_other() -> None:
    three_days = Calendar.parse("2024-10-10T00/2024-10-13T00").weekly
    assert three_days.get_partition_keys() == ["2024-10-07"]
    new_year = Calendar.parse("2022-12-30T05/2023-01-02T01").weekly
    assert new_year.get_partition_keys() == ["2022-12-26", "2023-01-02"]
    for key in new_year.get_partition_keys():
        window = new_year.time_window_for_partition_key(key)
        assert Week.of_window(window.start, window.end).start.isoformat() == key


def test_an_open_calendar_has_the_week_that_is_not_over() -> None:
    open_ended = Calendar.parse("2024-10-10T00/").weekly
    now = datetime(2024, 10, 16, 12, tzinfo=UTC)
    assert list(open_ended.get_partition_keys(now)) == ["2024-10-07", "2024-10-14"]
