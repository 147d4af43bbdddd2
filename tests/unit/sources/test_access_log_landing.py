"""Landing a log: every line lands once, in the right hour, and again the same."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from de_assets.sources.access_log import AccessLogReport, land_access_log, spilling
from de_assets.sources.arrivals import ready_hours
from de_assets.sources.landing import data_files, hour_folder

KEY = b"sixteen bytes ok"
BLOG_LOG = Path(__file__).parents[4] / "shared" / "data" / "blog_access.log"
GRAMMAR_LOG = Path(__file__).parents[2] / "data" / "grammar_access.log"


def _line(time: str, page: str = "/") -> bytes:
    return f'203.0.113.1 - - [{time}] "GET {page} HTTP/1.1" 200 5 "-" "Lynx/2.8"\n'.encode()


def _landed(landing: Path) -> dict[datetime, list[dict]]:
    return {
        hour: [json.loads(line) for file in data_files(hour_folder(landing, hour)) for line in file.open("rb")]
        for hour in ready_hours(landing)
    }


def _fingerprint(landing: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in landing.rglob("*") if path.is_file())
    return {str(path.relative_to(landing)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.skipif(not BLOG_LOG.exists(), reason="the shared real log ../shared/data/blog_access.log is not here")
def test_a_real_log(tmp_path: Path) -> None:
    report = land_access_log(tmp_path, [BLOG_LOG], KEY)
    assert (report.lines, report.visits, report.rejected, report.blank) == (10_000, 9_999, 1, 0)
    assert [(dead.file, dead.line) for dead in report.dead_letters] == [("blog_access.log", 8899)]
    assert report.dead_letters[0].reason == "user agent is missing or its quote is not closed"
    assert list(report.per_day.items()) == [
        (date(2015, 5, 17), 1632),
        (date(2015, 5, 18), 2893),
        (date(2015, 5, 19), 2896),
        (date(2015, 5, 20), 2578),
    ]
    landed = _landed(tmp_path)
    assert list(landed) == report.hours == report.changed_hours
    assert len(landed) == 84
    ids = Counter(record["visit_id"] for records in landed.values() for record in records if "visit_id" in record)
    assert ids.total() - len(ids) == 19


def test_every_visit_lies_in_the_hour_of_its_event(tmp_path: Path) -> None:
    land_access_log(tmp_path, [GRAMMAR_LOG], KEY)
    for hour, records in _landed(tmp_path).items():
        for record in records:
            moment = datetime.fromisoformat(record["event_time"]) if "event_time" in record else hour
            assert moment.replace(minute=0, second=0) == hour


def test_rejected_lines_land_beside_their_neighbours(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    seven, eight = _line("01/Jan/2024:07:00:00 +0000"), _line("01/Jan/2024:08:00:00 +0000")
    log.write_bytes(b"first of all\n" + seven + b"after seven\n" + eight + b"\n" + b"after eight \xe9")
    report = land_access_log(tmp_path / "landing", [log], KEY)
    landed = _landed(tmp_path / "landing")
    rejected = {hour.hour: [r["rejected"] for r in records if "rejected" in r] for hour, records in landed.items()}
    assert {hour: [(r["raw"], r["line"], r["file"]) for r in rows] for hour, rows in rejected.items()} == {
        7: [("first of all", 1, "access.log"), ("after seven", 3, "access.log")],
        8: [("after eight \\xe9", 6, "access.log")],
    }
    assert (report.lines, report.visits, report.rejected, report.blank) == (6, 2, 3, 1)


def test_a_log_without_any_usable_line_lands_in_the_hour_of_its_last_change(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(b"nothing\nat all\n")
    changed = datetime(2024, 2, 29, 13, 59, tzinfo=UTC)
    os.utime(log, (changed.timestamp(), changed.timestamp()))
    report = land_access_log(tmp_path / "landing", [log], KEY)
    assert report.hours == [changed.replace(minute=0)]
    assert [r["rejected"]["line"] for r in _landed(tmp_path / "landing")[changed.replace(minute=0)]] == [1, 2]


def test_an_empty_log_lands_nothing(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_bytes(b"\n\n")
    report = land_access_log(tmp_path / "landing", [tmp_path / "access.log"], KEY)
    assert report == AccessLogReport(lines=2, blank=2)
    assert list((tmp_path / "landing").iterdir()) == []


def test_landing_again_changes_neither_bytes_nor_times(tmp_path: Path) -> None:
    first = land_access_log(tmp_path, [GRAMMAR_LOG], KEY)
    before = _fingerprint(tmp_path)
    again = land_access_log(tmp_path, [GRAMMAR_LOG], KEY)
    assert _fingerprint(tmp_path) == before
    assert (again.hours, again.changed_hours) == (first.hours, [])


def test_a_log_that_grew_changes_only_the_hours_that_it_grew_in(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(_line("01/Jan/2024:07:00:00 +0000") + _line("01/Jan/2024:08:00:00 +0000"))
    land_access_log(tmp_path / "landing", [log], KEY)
    log.write_bytes(log.read_bytes() + _line("01/Jan/2024:08:30:00 +0000"))
    report = land_access_log(tmp_path / "landing", [log], KEY)
    assert report.changed_hours == [datetime(2024, 1, 1, 8, tzinfo=UTC)]


def test_a_rotated_set_is_one_log(tmp_path: Path) -> None:
    (tmp_path / "access.log.2.gz").write_bytes(gzip.compress(_line("01/Jan/2024:07:00:00 +0000", "/one")))
    (tmp_path / "access.log.1").write_bytes(_line("01/Jan/2024:07:30:00 +0000", "/two"))
    (tmp_path / "access.log").write_bytes(_line("01/Jan/2024:09:50:00 +0200", "/three"))
    land_access_log(tmp_path / "landing", [tmp_path], KEY)
    landed = _landed(tmp_path / "landing")
    assert [record["page"] for record in landed[datetime(2024, 1, 1, 7, tzinfo=UTC)]] == ["/one", "/two", "/three"]


def test_a_small_buffer_gives_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land_access_log(tmp_path / "large", [GRAMMAR_LOG], KEY)
    monkeypatch.setattr(spilling, "_BUFFERED_BYTES", 100)
    land_access_log(tmp_path / "small", [GRAMMAR_LOG], KEY)
    assert _landed(tmp_path / "small") == _landed(tmp_path / "large")


_PIECES = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(GRAMMAR_LOG.read_bytes().split(b"\n")).map(lambda line: line + b"\n"),
    st.sampled_from([b"\n", b"\r\n", b"\r", b"\x0b", "\u2028".encode(), b'"', b"[", b"\\"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_PIECES, max_size=30).map(b"".join))
@pytest.mark.pattern("dead_letter")
def test_no_line_is_ever_lost(log: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        file, landing = Path(name) / "access.log", Path(name) / "landing"
        file.write_bytes(log)
        report = land_access_log(landing, [file], KEY)
        records = [record for hour in _landed(landing).values() for record in hour]
    expected = log.count(b"\n") + (not log.endswith(b"\n") and log != b"")
    assert report.lines == expected == report.visits + report.rejected + report.blank
    assert Counter("rejected" in record for record in records) == +Counter(
        {True: report.rejected, False: report.visits}
    )
    assert sorted(r["rejected"]["line"] for r in records if "rejected" in r) == [
        dead.line for dead in report.dead_letters
    ]
