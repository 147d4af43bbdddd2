"""Logs that overlap, in any order, in any cut: what is landed is what one landing of all of them lands."""

from __future__ import annotations

import errno
import gzip
import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as configured
from hypothesis import strategies as st

from de_assets.calendar import Calendar, CalendarOrigin, RecordedCalendar
from de_assets.sources.access_log import AccessLogReport, land_access_log, merging
from de_assets.sources.arrivals import Arrivals, ready_hours
from de_assets.sources.landing import DEVICES, MARKER, PART, VISITS, contents_of, data_files, hour_folder, publish
from de_assets.sources.seeding import EmptyLog, FarFromOtherLogs, Seeded, seed_access_log, seed_simulation
from de_resources.settings import Settings

KEY = b"sixteen bytes ok"
FIRST = datetime(2024, 1, 1, 7, tzinfo=UTC)
pytestmark = pytest.mark.pattern("readiness_marker")


def _line(moment: datetime, page: str = "/") -> bytes:
    time = moment.strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'203.0.113.1 - - [{time}] "GET {page} HTTP/1.1" 200 5 "-" "Lynx/2.8"\n'.encode()


def _land(landing: Path, lines: Sequence[bytes], name: str = "access.log") -> AccessLogReport:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / name
        log.write_bytes(b"".join(lines))
        return land_access_log(landing, [log], KEY)


def _records(landing: Path) -> dict[datetime, Counter[str]]:
    """By hour, how many copies there are of each visit's page, or of each rejected text."""
    found = {}
    for hour in ready_hours(landing):
        lines = [json.loads(line) for file in data_files(hour_folder(landing, hour)) for line in file.open("rb")]
        found[hour] = Counter(line["page"] if "page" in line else line["rejected"]["raw"] for line in lines)
    return found


def _fingerprint(landing: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in landing.rglob("*") if path.is_file())
    return {str(path.relative_to(landing)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_the_next_log_adds_to_an_hour_that_is_landed(tmp_path: Path) -> None:
    one, two, three = (_line(FIRST + timedelta(minutes=n), f"/{n}") for n in (1, 2, 3))
    _land(tmp_path, [one, one, b"no line\n", two], "access.log.1")
    before = (hour_folder(tmp_path, FIRST) / PART).read_bytes()
    report = _land(tmp_path, [one, b"no line\n", two, two, three], "access.log")
    assert report.changed_hours == [FIRST]
    assert _records(tmp_path) == {FIRST: {"/1": 2, "/2": 2, "/3": 1, "no line": 1}}, "the larger number of copies stays"
    assert (hour_folder(tmp_path, FIRST) / PART).read_bytes().startswith(before), (
        "what was landed has its place and bytes"
    )
    contents = contents_of(hour_folder(tmp_path, FIRST))
    assert contents is not None
    assert contents.has_grown


def test_lines_that_are_there_already_touch_nothing(tmp_path: Path) -> None:
    lines = [_line(FIRST + timedelta(minutes=20 * n), f"/{n}") for n in range(8)]
    _land(tmp_path, lines)
    before = _fingerprint(tmp_path)
    assert _land(tmp_path, lines[2:5], "access.log.1").changed_hours == []
    assert _fingerprint(tmp_path) == before


def _log(numbers: Sequence[int]) -> list[bytes]:
    """A log in order, some minutes between its lines; equal moments have equal lines, some lines are none."""
    moment, lines = FIRST, []
    for number in numbers:
        moment += timedelta(minutes=7 * number)
        lines.append(b"broken %d\n" % number if number == 5 else _line(moment, f"/{number}"))
    return lines


@configured(max_examples=80, deadline=None)
@given(st.data())
def test_any_cut_in_any_order_lands_what_one_landing_does(data: st.DataObject) -> None:
    log = _log(data.draw(st.lists(st.sampled_from([0, 0, 1, 2, 5, 30]), min_size=1, max_size=40)))
    # Every line is in some piece; pieces overlap, and come in any order.
    cuts = sorted({0, len(log), *data.draw(st.lists(st.integers(0, len(log)), max_size=4))})
    pieces = [log[max(0, start - data.draw(st.integers(0, 5))) : end] for start, end in pairwise(cuts)]
    if not any(b"GET" in line for line in log):
        return
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = Path(folder) / "whole", Path(folder) / "parts"
        _land(whole, log)
        for piece in data.draw(st.permutations(pieces)):
            if any(b"GET" in line for line in piece):
                _land(parts, piece)
        expected, landed = _records(whole), _records(parts)
    for hour, visits in expected.items():
        pages = {page for page in visits if page.startswith("/")}
        assert {page for page in landed.get(hour, ()) if page.startswith("/")} == pages
        assert all(1 <= landed[hour][page] <= visits[page] for page in pages), "no line comes twice out of an overlap"


def _land_together(landing: Path, files: Sequence[Sequence[bytes]]) -> AccessLogReport:
    """All in one call, the first as the oldest of a rotated set."""
    with tempfile.TemporaryDirectory() as folder:
        for number, lines in enumerate(files):
            name = "access.log" if number == len(files) - 1 else f"access.log.{len(files) - 1 - number}"
            (Path(folder) / name).write_bytes(b"".join(lines))
        return land_access_log(landing, [folder], KEY)


def test_a_line_that_two_files_of_one_call_have_counts_once(tmp_path: Path) -> None:
    one, two, three, later = (_line(FIRST + timedelta(minutes=n), f"/{n}") for n in (1, 2, 3, 70))
    report = _land_together(tmp_path, [[one, one, b"no line\n", two], [b"no line\n", two, two, three, later], [later]])
    assert _records(tmp_path) == {
        FIRST: {"/1": 2, "/2": 2, "/3": 1, "no line": 1},
        FIRST + timedelta(hours=1): {"/70": 1},
    }
    assert (report.lines, report.visits, report.rejected) == (10, 8, 2), "the report is of what was read"


@dataclass(frozen=True)
class Given:
    """A line of a file: after how many half hours of the log, or no line at all."""

    half_hours: int | None
    text: str

    @property
    def raw(self) -> bytes:
        if self.half_hours is None:
            return f"{self.shown}\n".encode()
        return _line(FIRST + timedelta(minutes=30 * self.half_hours), self.shown)

    @property
    def shown(self) -> str:
        return f"broken {self.text}" if self.half_hours is None else f"/{self.half_hours}{self.text}"

    @property
    def hour(self) -> int | None:
        return None if self.half_hours is None else self.half_hours // 2


def _oracle(files: Sequence[Sequence[Given]]) -> dict[int, Counter[str]]:
    """Each file by itself, line by line, and then of each line the file that has most of it."""
    together: dict[int, Counter[str]] = {}
    for number, lines in enumerate(files):
        older = [line.hour for file in files[:number] for line in file if line.hour is not None]
        newer = [line.hour for file in files[number + 1 :] for line in file if line.hour is not None]
        own: dict[int, Counter[str]] = {}
        for place, line in enumerate(lines):
            before = [each.hour for each in lines[:place] if each.hour is not None]
            behind = [each.hour for each in lines[place:] if each.hour is not None]
            # What stands before a file's first time is of the file before, unless that one goes on for longer.
            hour = (
                line.hour
                if line.hour is not None
                else (before[-1:] or [min([*older[-1:], *behind[:1]] or newer[:1])])[0]
            )
            own.setdefault(hour, Counter())[line.shown] += 1
        for hour, lines_of_hour in own.items():
            together[hour] = together.get(hour, Counter()) | lines_of_hour
    return together


_GIVEN = st.builds(Given, st.none() | st.integers(0, 7), st.sampled_from("abc"))


@configured(max_examples=80, deadline=None)
@given(st.lists(st.lists(_GIVEN, max_size=8), min_size=1, max_size=4))
def test_files_of_one_call_land_the_larger_number_of_copies(files: list[list[Given]]) -> None:
    if not any(line.hour is not None for file in files for line in file):
        return
    with tempfile.TemporaryDirectory() as folder:
        _land_together(Path(folder), [[line.raw for line in file] for file in files])
        landed = {hour: lines for hour, lines in _records(Path(folder)).items() if lines}
        assert landed == {FIRST + timedelta(hours=n): lines for n, lines in _oracle(files).items()}
        before = _fingerprint(Path(folder))
        for file in files:
            _land_together(Path(folder), [[line.raw for line in file if line.hour is not None]])
        assert _fingerprint(Path(folder)) == before, "file after file, they bring nothing that is not there"


def test_growing_prefixes_of_a_log_land_the_copies_of_the_whole(tmp_path: Path) -> None:
    log = _log([1, 0, 0, 2, 5, 30, 0, 1, 1, 5, 5, 0])
    for end in (3, 4, 7, 8, 12):
        _land(tmp_path / "parts", log[:end])
    _land(tmp_path / "whole", log)
    assert _records(tmp_path / "parts") == _records(tmp_path / "whole")


def test_an_absurd_hour_is_compared_in_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "BUCKET_BYTES", 1_000)
    lines = [_line(FIRST + timedelta(seconds=n), f"/{n}") for n in range(60)]
    _land(tmp_path, lines[:40])
    _land(tmp_path, lines[20:])
    assert _records(tmp_path) == {FIRST: {f"/{n}": 1 for n in range(60)}}


def test_a_landing_that_died_is_finished_by_the_next(tmp_path: Path) -> None:
    lines = [_line(FIRST + timedelta(minutes=n), f"/{n}") for n in range(3)]
    _land(tmp_path, lines[:2])
    (hour_folder(tmp_path, FIRST) / MARKER).unlink()
    assert _land(tmp_path, lines).changed_hours == [FIRST]
    (hour_folder(tmp_path, FIRST) / MARKER).unlink()
    assert _land(tmp_path, lines).changed_hours == [FIRST], (
        "all lines are there, and nobody may read them without a marker"
    )
    assert _records(tmp_path) == {FIRST: {"/0": 1, "/1": 1, "/2": 1}}


def test_files_of_other_producers_stay_and_count(tmp_path: Path) -> None:
    line = _line(FIRST)
    _land(tmp_path / "model", [line])
    record = (hour_folder(tmp_path / "model", FIRST) / PART).read_bytes()
    prepared = tmp_path / "prepared"
    prepared.write_bytes(record.rstrip(b"\n"))
    publish(hour_folder(tmp_path / "landing", FIRST), {"elsewhere.json": prepared})
    assert _land(tmp_path / "landing", [line]).changed_hours == []
    _land(tmp_path / "landing", [line, _line(FIRST, "/new")])
    assert [file.name for file in data_files(hour_folder(tmp_path / "landing", FIRST))] == ["elsewhere.json", PART]
    assert _records(tmp_path / "landing") == {FIRST: {"/": 1, "/new": 1}}


def test_an_hour_without_requests_inside_a_log_is_complete_and_empty(tmp_path: Path) -> None:
    day = timedelta(days=1)
    report = _land(tmp_path, [_line(FIRST), _line(FIRST + timedelta(hours=3)), _line(FIRST + 30 * day)])
    quiet = [FIRST + timedelta(hours=1), FIRST + timedelta(hours=2)]
    assert report.quiet_hours == quiet, "a month of silence is a log that is not here"
    assert ready_hours(tmp_path) == report.hours == [FIRST, *quiet, FIRST + timedelta(hours=3), FIRST + 30 * day]
    assert not data_files(hour_folder(tmp_path, quiet[0]))
    look = Arrivals(tmp_path).look(quiet[0])
    _land(tmp_path, [_line(quiet[0])])
    assert Arrivals(tmp_path).look(quiet[0]) not in (None, look), "what was quiet has a line now"
    contents = contents_of(hour_folder(tmp_path, quiet[0]))
    assert contents is not None
    assert len(contents.files) == 1


@pytest.mark.pattern("dead_letter")
def test_a_line_of_an_absurd_time_is_a_dead_letter(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    absurd = [datetime(2024, 1, 3, 8, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]
    log.write_bytes(b"".join(_line(moment) for moment in (FIRST, *absurd, FIRST + timedelta(hours=1))))
    report = land_access_log(tmp_path / "landing", [log], KEY, now=datetime(2024, 1, 2, 7, tzinfo=UTC))
    assert (report.visits, report.rejected) == (2, 3)
    assert {dead.reason for dead in report.dead_letters} == {"time is before the first web server, or in the future"}
    assert report.hours == [FIRST, FIRST + timedelta(hours=1)]


# A home, day after day ------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return Settings.from_environment({"DE_HOME": str(tmp_path / "home"), "DE_JARS": os.environ.get("DE_JARS", "")})


def _seed(home: Settings, name: str, *lines: bytes) -> Seeded:
    log = home.home.parent / name
    log.write_bytes(b"".join(lines))
    return seed_access_log(home, [str(log)], lambda _done, _total: None)[0]


def _hours(start: int, end: int) -> Calendar:
    return Calendar(FIRST + timedelta(hours=start), FIRST + timedelta(hours=end))


def test_the_calendar_of_logs_grows_and_never_shrinks(home: Settings) -> None:
    _seed(home, "access.log.1", _line(FIRST), _line(FIRST + timedelta(hours=2)))
    assert RecordedCalendar.find(home) == RecordedCalendar(_hours(0, 3), CalendarOrigin.LOGS)
    _seed(home, "access.log", _line(FIRST + timedelta(hours=5)))
    _seed(home, "access.log", _line(FIRST + timedelta(hours=1)))
    _seed(home, "access.log.2", _line(FIRST - timedelta(hours=4)))
    assert RecordedCalendar.find(home) == RecordedCalendar(_hours(-4, 6), CalendarOrigin.LOGS)
    assert len(_records(home.landing)) == 5, "nobody said that nothing was asked between the logs"


def test_an_open_calendar_stays_open(home: Settings) -> None:
    Calendar(FIRST, None).save(home, CalendarOrigin.LOGS)
    _seed(home, "access.log", _line(FIRST - timedelta(hours=1)))
    assert RecordedCalendar.find(home) == RecordedCalendar(
        Calendar(FIRST - timedelta(hours=1), None), CalendarOrigin.LOGS
    )


def test_the_devices_of_a_home_are_not_replaced_by_a_log(home: Settings) -> None:
    _seed(home, "access.log.1", _line(FIRST))
    (dump,) = data_files(home.landing / DEVICES)
    before = dump.stat().st_mtime_ns, dump.read_bytes()
    _seed(home, "access.log", _line(FIRST + timedelta(days=200)))
    assert (dump.stat().st_mtime_ns, dump.read_bytes()) == before


@pytest.mark.parametrize("days", [-800, 800])
def test_a_log_years_away_is_refused_and_leaves_nothing(home: Settings, days: int) -> None:
    _seed(home, "access.log", _line(FIRST))
    before = _fingerprint(home.landing)
    with pytest.raises(FarFromOtherLogs, match=r"more than 366 days .* Nothing was landed"):
        _seed(home, "access.log", _line(FIRST + timedelta(days=days)))
    assert (_fingerprint(home.landing), RecordedCalendar.find(home)) == (
        before,
        RecordedCalendar(_hours(0, 1), CalendarOrigin.LOGS),
    )


def test_a_file_that_is_no_log_is_refused_and_leaves_nothing(home: Settings) -> None:
    with pytest.raises(EmptyLog, match="Nothing was landed"):
        _seed(home, "letter.txt", b"Dear reader,\n", b"this is no log.\n")
    assert ready_hours(home.landing) == []
    assert RecordedCalendar.find(home) is None


def test_a_log_that_cannot_be_read_leaves_nothing_of_the_good_one_beside_it(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The good one is read first; its hour is new, and the unreadable one has lines of an hour that is landed."""
    _seed(home, "access.log.3", _line(FIRST))
    before = _fingerprint(home.landing)
    good, unreadable = home.home.parent / "access.log.2", home.home.parent / "access.log.1"
    good.write_bytes(_line(FIRST + timedelta(hours=1)))
    unreadable.write_bytes(gzip.compress(_line(FIRST)))

    def fail(_self: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(gzip._GzipReader, "_read_gzip_header", fail)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="Input/output"):
        seed_access_log(home, [str(good), str(unreadable)], lambda _done, _total: None)
    assert (_fingerprint(home.landing), RecordedCalendar.find(home)) == (
        before,
        RecordedCalendar(_hours(0, 1), CalendarOrigin.LOGS),
    )


@pytest.mark.parametrize("lines", [(), (b"\n", b"\r\n")], ids=["no byte", "blank lines"])
def test_a_log_without_a_line_yet_is_a_quiet_one_where_there_are_others(
    home: Settings, lines: tuple[bytes, ...]
) -> None:
    """What a server has just rotated is empty until somebody asks for a page."""
    with pytest.raises(EmptyLog, match="has no line yet"):
        _seed(home, "access.log", *lines)
    assert (ready_hours(home.landing), RecordedCalendar.find(home)) == ([], None)
    _seed(home, "access.log.1", _line(FIRST))
    before = _fingerprint(home.landing)
    assert _seed(home, "access.log", *lines).calendar == _hours(0, 1)
    assert (_fingerprint(home.landing), RecordedCalendar.find(home)) == (
        before,
        RecordedCalendar(_hours(0, 1), CalendarOrigin.LOGS),
    )
    with pytest.raises(EmptyLog, match="combined log format"):
        _seed(home, "letter.txt", b"Dear reader,\n")


def test_what_was_simulated_gives_way_to_a_log_and_is_kept(home: Settings) -> None:
    seed_simulation(home, _hours(0, 2), seed=7, visits=40, progress=lambda _done, _total: None, say=lambda _what: None)
    simulated = _records(home.landing)
    assert len(simulated) == 2
    assert _seed(home, "access.log", _line(FIRST, "/real")).took_the_place
    assert not _seed(home, "access.log", _line(FIRST, "/real")).took_the_place
    assert _records(home.landing) == {FIRST: {"/real": 1}}
    assert RecordedCalendar.find(home) == RecordedCalendar(_hours(0, 1), CalendarOrigin.LOGS)
    (home.landing / f"_{VISITS}-1").rename(home.home / VISITS)
    assert _records(home.home) == simulated
