"""Feeding the drop folder: complete folders, exact totals, independent hours, the same content twice; and messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from de_assets.sources.arrivals import ready_hours
from de_assets.sources.landing import DEVICES, data_files, hour_folder, is_ready
from de_assets.sources.simulator import (
    EVERYDAY,
    Irregularities,
    Truth,
    World,
    devices,
    hours_between,
    land_devices,
    land_visits,
    visit_messages,
)

WORLD = World(seed=5, users=300, guests=500)
START = datetime(2026, 2, 2, tzinfo=UTC)
DAY = hours_between(START, START + timedelta(days=1))
DIRTY = Irregularities(duplicates=0.05, late=0.05, malformed=0.05, missing=0.05)


def _lines(landing: Path, hour: datetime) -> list[bytes]:
    return [line for file in data_files(hour_folder(landing, hour)) for line in file.read_bytes().splitlines()]


def test_a_total_lands_exactly_and_progress_counts_hours(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    landed = land_visits(tmp_path, WORLD, DAY, total=2000, progress=lambda done, total: seen.append((done, total)))
    assert sum(hour.visits for hour in landed) == sum(len(_lines(tmp_path, hour)) for hour in DAY) == 2000
    assert ready_hours(tmp_path) == Truth(tmp_path).hours() == DAY
    assert seen == [(n, 24) for n in range(1, 25)]
    assert [hour.bytes for hour in landed] == [
        sum(file.stat().st_size for file in data_files(hour_folder(tmp_path, hour))) for hour in DAY
    ]


def test_a_total_goes_around_the_silence(tmp_path: Path) -> None:
    quiet = Irregularities(silence=((DAY[8], DAY[12]),))
    landed = land_visits(tmp_path, WORLD, DAY, total=2000, irregularities=quiet)
    assert sum(hour.visits for hour in landed) == 2000
    assert [hour.visits for hour in landed[8:12]] == [0] * 4
    assert all(is_ready(hour_folder(tmp_path, hour)) for hour in DAY)


def test_an_hour_does_not_depend_on_what_else_is_landed(tmp_path: Path) -> None:
    land_visits(tmp_path / "alone", WORLD, [DAY[9]], per_hour=300, irregularities=EVERYDAY)
    land_visits(tmp_path / "day", WORLD, DAY, per_hour=300, irregularities=EVERYDAY)
    assert _lines(tmp_path / "alone", DAY[9]) == _lines(tmp_path / "day", DAY[9])
    alone, day = Truth(tmp_path / "alone").hour(DAY[9]), Truth(tmp_path / "day").hour(DAY[9])
    assert alone.defects.equals(day.defects)


def test_landing_again_touches_nothing_and_other_rates_replace_folder_and_truth(tmp_path: Path) -> None:
    assert all(hour.changed for hour in land_visits(tmp_path, WORLD, DAY[:2], per_hour=100, irregularities=DIRTY))
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "visits").rglob("*")}
    assert not any(hour.changed for hour in land_visits(tmp_path, WORLD, DAY[:2], per_hour=100, irregularities=DIRTY))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "visits").rglob("*")} == times
    land_visits(tmp_path, WORLD, DAY[:1], per_hour=100)
    assert Truth(tmp_path).counts() == {
        DAY[0]: {},
        DAY[1]: dict.fromkeys(("duplicate", "late", "malformed", "missing"), 5),
    }
    assert len(Truth(tmp_path).ids("malformed")) == 5
    assert Truth(tmp_path).ids("malformed", DAY[:1]) == []


def test_messages_are_the_landed_lines_keyed_by_visit(tmp_path: Path) -> None:
    land_visits(tmp_path / "files", WORLD, DAY[:3], per_hour=200, irregularities=DIRTY)
    beside = tmp_path / "messages"
    messages = list(visit_messages(WORLD, DAY[:3], per_hour=200, irregularities=DIRTY, truth_beside=beside))
    assert [message.value for message in messages] == [
        line for hour in DAY[:3] for line in _lines(tmp_path / "files", hour)
    ]
    assert Truth(beside).counts() == Truth(tmp_path / "files").counts()
    keyless = [message for message in messages if message.key is None]
    assert 0 < len(keyless) < 30
    assert all(json.loads(message.value).get("visit_id") is None for message in keyless)


@pytest.mark.parametrize("counts", [{}, {"total": 1, "per_hour": 1}])
def test_one_way_to_say_how_many(tmp_path: Path, counts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="either `total` or `per_hour`"):
        land_visits(tmp_path, WORLD, DAY, **counts)  # type: ignore[arg-type]


def test_the_devices_dump_is_complete_and_lands_once(tmp_path: Path) -> None:
    assert land_devices(tmp_path, WORLD, START)
    assert not land_devices(tmp_path, WORLD, START)
    assert is_ready(tmp_path / DEVICES)
    rows = [json.loads(line) for line in (tmp_path / DEVICES / "devices.json").open("rb")]
    assert [(row["type"], row["full_name"], row["version"]) for row in rows] == [
        (device.type, device.full_name, device.version) for device in devices(WORLD, START)
    ]
    assert land_devices(tmp_path, WORLD, START + timedelta(days=30))
