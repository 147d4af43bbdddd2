"""The calendar: where it comes from, what it refuses, and which partitions follow from it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from de_assets.calendar import DEFAULT, Calendar
from de_assets.filling.keys import in_the_time_of
from de_assets.partitions import hours_of_day
from de_resources.errors import PermanentError
from de_resources.settings import Settings


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2024, 10, day, hour, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.delenv("DE_CALENDAR", raising=False)
    return Settings.from_environment({"DE_HOME": str(tmp_path / "home")})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-10-10T00/2024-10-13T00", Calendar(at(10), at(13))),
        ("2024-10-10T05/", Calendar(at(10, 5), None)),
        ("2024-10-10/2024-10-11", Calendar(at(10), at(11))),
        (" 2024-10-10T00:00 / 2024-10-10T03:00 ", Calendar(at(10), at(10, 3))),
        ("2024-10-10T02:00+02:00/2024-10-10T01:00Z", Calendar(at(10), at(10, 1))),
    ],
)
def test_parse(text: str, expected: Calendar) -> None:
    assert Calendar.parse(text) == expected
    assert Calendar.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "yesterday/today",
        "2024-10-10T00",
        "2024-10-10T00/2024-10-11T00/2024-10-12T00",
        "2024-10-10T00:30/2024-10-11T00",
        "2024-10-10T00/2024-10-10T00",
        "2024-10-11T00/2024-10-10T00",
    ],
)
def test_what_is_no_calendar_is_refused(text: str) -> None:
    with pytest.raises(PermanentError, match="The calendar"):
        Calendar.parse(text)


def test_default_without_a_record(settings: Settings) -> None:
    assert Calendar.load(settings) == DEFAULT


def test_record_is_found_again_and_the_variable_wins(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    Calendar(at(1), at(2)).save(settings)
    assert Calendar.load(settings) == Calendar(at(1), at(2))
    assert [p.name for p in settings.home.iterdir()] == ["calendar.json"]
    monkeypatch.setenv("DE_CALENDAR", "2024-10-05T00/")
    assert Calendar.load(settings) == Calendar(at(5), None)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"calendar": 7}'])
def test_damaged_record_is_said(settings: Settings, content: str) -> None:
    settings.home.mkdir()
    (settings.home / "calendar.json").write_text(content)
    with pytest.raises(PermanentError, match="calendar"):
        Calendar.load(settings)


def test_union_covers_both() -> None:
    assert Calendar(at(2), at(4)).union(Calendar(at(1), at(3))) == Calendar(at(1), at(4))
    assert Calendar(at(2), at(4)).union(Calendar(at(3), None)) == Calendar(at(2), None)


def test_partitions_of_whole_days() -> None:
    calendar = Calendar(at(10), at(13))
    assert len(calendar.hourly.get_partition_keys()) == 72
    assert calendar.hourly.get_last_partition_key() == "2024-10-12-23:00"
    assert calendar.daily.get_partition_keys() == ["2024-10-10", "2024-10-11", "2024-10-12"]


def test_days_of_which_a_part_is_covered_exist() -> None:
    calendar = Calendar(at(10, 22), at(12, 1))
    assert calendar.hourly.get_first_partition_key() == "2024-10-10-22:00"
    assert calendar.hourly.get_last_partition_key() == "2024-10-12-00:00"
    assert calendar.daily.get_partition_keys() == ["2024-10-10", "2024-10-11", "2024-10-12"]


def test_open_calendar_ends_with_the_last_full_hour_and_day() -> None:
    calendar = Calendar(at(10), None)
    with dg.partition_loading_context(effective_dt=datetime(2024, 10, 12, 7, 59, tzinfo=UTC)):
        assert calendar.hourly.get_last_partition_key() == "2024-10-12-06:00"
        assert calendar.daily.get_last_partition_key() == "2024-10-11"


@pytest.mark.parametrize(
    ("day", "first", "count"), [("2024-10-10", 22, 2), ("2024-10-11", 0, 24), ("2024-10-12", 0, 1)]
)
def test_day_consists_of_the_hours_that_exist(day: str, first: int, count: int) -> None:
    calendar = Calendar(at(10, 22), at(12, 1))
    subset = calendar.daily.subset_with_partition_keys([day])
    upstream = hours_of_day.get_upstream_mapped_partitions_result_for_partitions(
        subset, calendar.daily, calendar.hourly
    )
    keys = list(upstream.partitions_subset.get_partition_keys())
    assert keys == [f"{day}-{hour:02}:00" for hour in range(first, first + count)]
    assert not upstream.required_but_nonexistent_subset.get_partition_keys()


def test_hour_belongs_to_its_day_alone() -> None:
    calendar = Calendar(at(10), at(12))
    subset = calendar.hourly.subset_with_partition_keys(["2024-10-10-23:00", "2024-10-11-00:00"])
    days = hours_of_day.get_downstream_partitions_for_partitions(subset, calendar.hourly, calendar.daily)
    assert list(days.get_partition_keys()) == ["2024-10-10", "2024-10-11"]


@pytest.mark.pattern("fast_metadata_cleaner")
def test_an_hour_lies_in_its_day_and_in_its_week() -> None:
    calendar = Calendar.parse("2022-12-26T00/2023-01-10T00")
    assert in_the_time_of(calendar.hourly, ["2023-01-01-05:00"], calendar.weekly) == {"2022-12-26"}
    assert in_the_time_of(calendar.hourly, ["2023-01-01-05:00"], calendar.daily) == {"2023-01-01"}
    assert in_the_time_of(calendar.daily, ["2023-01-02"], calendar.weekly) == {"2023-01-02"}
