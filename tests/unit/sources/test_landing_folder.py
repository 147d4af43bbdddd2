"""The drop folder's contract: a marker stands for a complete folder, at every moment."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from de_assets.sources.arrivals import Arrivals, closed_hours, ready_hours
from de_assets.sources.landing import (
    MARKER,
    PART,
    NotAFullHourError,
    data_files,
    hour_folder,
    incoming,
    is_ready,
    publish,
)
from de_assets.sources.landing_zone import FolderNotReady, LandingZone, UnknownReadiness

HOUR = datetime(2026, 1, 31, 7, tzinfo=UTC)


def _publish(landing: Path, files: dict[str, bytes]) -> bool:
    with incoming(landing) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return publish(hour_folder(landing, HOUR), {name: folder / name for name in files})


def test_the_folder_is_named_after_the_hour_in_utc(tmp_path: Path) -> None:
    assert hour_folder(tmp_path, HOUR) == tmp_path / "visits" / "date=2026-01-31" / "hour=07"
    warsaw = datetime(2026, 1, 31, 0, tzinfo=timezone(timedelta(hours=1)))
    assert hour_folder(tmp_path, warsaw) == tmp_path / "visits" / "date=2026-01-30" / "hour=23"


@pytest.mark.parametrize("moment", [datetime(2026, 1, 31, 7), HOUR.replace(minute=1), HOUR.replace(microsecond=1)])
def test_only_full_hours_with_a_time_zone_have_a_folder(tmp_path: Path, moment: datetime) -> None:
    with pytest.raises(NotAFullHourError):
        hour_folder(tmp_path, moment)


@pytest.mark.pattern("readiness_marker")
def test_a_published_folder_is_ready_and_nothing_hidden_stays(tmp_path: Path) -> None:
    assert _publish(tmp_path, {PART: b"{}\n"})
    assert is_ready(hour_folder(tmp_path, HOUR))
    assert ready_hours(tmp_path) == [HOUR]
    assert [path.name for path in tmp_path.iterdir()] == ["visits"]
    assert sorted(path.name for path in hour_folder(tmp_path, HOUR).iterdir()) == [MARKER, PART]


@pytest.mark.pattern("readiness_marker")
def test_without_a_marker_an_hour_is_closed_by_a_later_one(tmp_path: Path) -> None:
    assert closed_hours(tmp_path, "next_hour") == []
    for number in (0, 3):
        folder = hour_folder(tmp_path, HOUR + timedelta(hours=number))
        folder.mkdir(parents=True)
        (folder / "_half").write_bytes(b"{}")  # what is hidden has not arrived
        assert closed_hours(tmp_path, "next_hour") == []
        (folder / PART).write_bytes(b"{}\n")
    assert closed_hours(tmp_path, "next_hour") == [HOUR + timedelta(hours=n) for n in range(3)]
    assert closed_hours(tmp_path) == [], "by marker none is"
    (folder / MARKER).touch()
    assert closed_hours(tmp_path, "next_hour") == [HOUR + timedelta(hours=n) for n in range(4)]
    assert closed_hours(tmp_path) == [HOUR + timedelta(hours=3)]


@pytest.mark.pattern("readiness_marker")
def test_who_reads_an_hour_demands_that_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hour_folder(tmp_path, HOUR)
    folder.mkdir(parents=True)
    (folder / PART).write_bytes(b"{}\n")
    monkeypatch.setenv("DE_VISITS_READINESS", "next_hour")
    zone = LandingZone(root=str(tmp_path))
    assert (zone.readiness, zone.closed_hours()) == ("next_hour", [])
    with pytest.raises(FolderNotReady, match="hour=07"):
        zone.visit_lines(None, [HOUR])  # type: ignore[arg-type]  # refused before the engine is asked
    monkeypatch.setenv("DE_VISITS_READINESS", "some_day")
    with pytest.raises(UnknownReadiness, match="one of: marker, next_hour"):
        zone.closed_hours()


@pytest.mark.pattern("readiness_marker")
@pytest.mark.parametrize("change", ["another size", "a file less"])
def test_a_marker_stands_for_the_files_that_it_was_written_for(tmp_path: Path, change: str) -> None:
    """As a producer leaves it that writes into a closed folder, or dies while it rewrites one."""
    _publish(tmp_path, {PART: b"1\n", "part-00001.json": b"2\n"})
    folder = hour_folder(tmp_path, HOUR)
    if change == "a file less":
        (folder / "part-00001.json").unlink()
    else:
        (folder / PART).write_bytes(b"half a li")
    assert not is_ready(folder)
    assert ready_hours(tmp_path) == []


@pytest.mark.pattern("readiness_marker")
def test_a_file_beside_those_that_the_marker_names_is_not_read_and_changes_the_look(tmp_path: Path) -> None:
    _publish(tmp_path, {PART: b"1\n"})
    before = Arrivals(tmp_path).look(HOUR)
    (hour_folder(tmp_path, HOUR) / "part-00001.json").write_bytes(b"half a li")
    after = Arrivals(tmp_path)
    assert after.is_closed(HOUR), "it was, and nobody takes that back"
    assert [file.name for file in after.files(HOUR)] == [PART]
    assert after.look(HOUR) not in (None, before), "somebody is told"
    assert LandingZone(root=str(tmp_path)).closed_hours() == [HOUR]


@pytest.mark.pattern("readiness_marker")
def test_a_marker_without_names_does_not_stand_for_files_that_are_being_rewritten(tmp_path: Path) -> None:
    now = datetime(2026, 1, 31, 9, tzinfo=UTC)
    folder = hour_folder(tmp_path, HOUR)
    folder.mkdir(parents=True)

    def at(name: str, minutes: int) -> None:
        (folder / name).touch()
        os.utime(folder / name, (now.timestamp() + 60 * minutes, now.timestamp() + 60 * minutes))

    at(PART, -30)
    at(MARKER, -29)
    assert Arrivals(tmp_path, now=now).is_closed(HOUR)
    at(PART, -1)
    assert not Arrivals(tmp_path, now=now).is_closed(HOUR), "half of it may be there"
    assert not Arrivals(tmp_path, now=now).files(HOUR)
    assert Arrivals(tmp_path, now=now + timedelta(minutes=20)).is_closed(HOUR), (
        "a copy of a folder has any order of ages"
    )


@pytest.mark.parametrize("said", ["", "done", "[]", '{"committer": "magic"}'])
def test_a_marker_that_names_no_files_is_taken_at_its_word(tmp_path: Path, said: str) -> None:
    _publish(tmp_path, {PART: b"1\n"})
    (hour_folder(tmp_path, HOUR) / MARKER).write_text(said)
    assert ready_hours(tmp_path) == [HOUR]


def test_the_same_bytes_again_touch_nothing(tmp_path: Path) -> None:
    _publish(tmp_path, {PART: b"{}\n"})
    before = {path: path.stat().st_mtime_ns for path in hour_folder(tmp_path, HOUR).iterdir()}
    assert not _publish(tmp_path, {PART: b"{}\n"})
    assert {path: path.stat().st_mtime_ns for path in hour_folder(tmp_path, HOUR).iterdir()} == before


def test_a_rewrite_leaves_no_file_of_the_previous_one(tmp_path: Path) -> None:
    _publish(tmp_path, {PART: b"1\n", "part-00001.json": b"2\n"})
    assert _publish(tmp_path, {PART: b"3\n"})
    assert [(path.name, path.read_bytes()) for path in data_files(hour_folder(tmp_path, HOUR))] == [(PART, b"3\n")]
    assert _publish(tmp_path, {})
    assert is_ready(hour_folder(tmp_path, HOUR))
    assert data_files(hour_folder(tmp_path, HOUR)) == []


@pytest.mark.pattern("readiness_marker")
def test_a_rewrite_that_dies_half_way_leaves_no_marker_of_the_previous_attempt(tmp_path: Path) -> None:
    _publish(tmp_path, {PART: b"old\n"})
    obstacle = hour_folder(tmp_path, HOUR) / "part-00001.json"
    obstacle.mkdir()
    with pytest.raises(IsADirectoryError):
        _publish(tmp_path, {PART: b"new\n", obstacle.name: b"more\n"})
    assert (hour_folder(tmp_path, HOUR) / PART).read_bytes() == b"new\n"
    assert not is_ready(hour_folder(tmp_path, HOUR))
    assert ready_hours(tmp_path) == []
    obstacle.rmdir()
    assert _publish(tmp_path, {PART: b"new\n"})
    assert is_ready(hour_folder(tmp_path, HOUR))


def test_a_rewrite_that_lacks_a_file_leaves_the_previous_one_complete(tmp_path: Path) -> None:
    _publish(tmp_path, {PART: b"old\n"})
    with pytest.raises(FileNotFoundError):
        publish(hour_folder(tmp_path, HOUR), {PART: tmp_path / "was never written"})
    assert is_ready(hour_folder(tmp_path, HOUR))
    assert (hour_folder(tmp_path, HOUR) / PART).read_bytes() == b"old\n"


def test_what_was_incoming_is_removed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), incoming(tmp_path) as folder:
        (folder / PART).joinpath("not a folder").write_bytes(b"half")
    assert list(tmp_path.iterdir()) == []
