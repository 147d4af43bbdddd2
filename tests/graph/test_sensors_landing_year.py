"""Readiness Marker over a year of hours: a tick looks into few folders, and finds what a look into all of them finds."""

import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from de_assets.automation.triggers import landing as sensing
from de_assets.automation.triggers.landing import Taken, looks_to_take, make_plan
from de_assets.sources.arrivals import Arrivals
from de_assets.sources.landing import MARKER, PART, Readiness, hour_folder

START = datetime(2024, 1, 1, tzinfo=UTC)
YEAR = [START + timedelta(hours=n) for n in range(8760)]
pytestmark = pytest.mark.pattern("readiness_marker")

_calls: Counter[str] | None = None


def _count(event: str, _arguments: tuple[object, ...]) -> None:
    if _calls is not None and event in ("open", "os.listdir", "os.scandir"):
        _calls[event] += 1


sys.addaudithook(_count)


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """What the interpreter asks of the file system meanwhile."""
    global _calls
    _calls = Counter()
    try:
        yield _calls
    finally:
        _calls = None


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A year of closed hours with a file each."""
    landing = tmp_path_factory.mktemp("year")
    for hour in YEAR:
        folder = hour_folder(landing, hour)
        folder.mkdir(parents=True)
        (folder / PART).write_bytes(b"{}\n")
        (folder / MARKER).write_bytes(b"")
    return landing


@pytest.mark.parametrize("readiness", ["marker", "next_hour"])
def test_a_tick_over_a_year_of_closed_hours_asks_the_file_system_little(year: Path, readiness: Readiness) -> None:
    read = set(YEAR)
    with counted_calls() as calls:
        arrivals = Arrivals(year, readiness)
        looks = looks_to_take(arrivals.hours, {}, Taken(read, set(), set()), arrivals.look)
        plan = make_plan(looks, {}, read & looks.keys(), set(), set())
        days = len(YEAR) // 24
        assert calls["os.listdir"] == days + 1
        assert calls["os.scandir"] <= sensing.WATCHED_HOURS + 2
        assert calls["open"] <= sensing.WATCHED_HOURS + 2
    assert (plan.ranges, plan.changed, len(plan.seen)) == ([], [], sensing.WATCHED_HOURS)
    with counted_calls() as calls:
        arrivals = Arrivals(year, readiness)
        again = looks_to_take(arrivals.hours, plan.seen, Taken(read, set(), set()), arrivals.look)
        assert make_plan(again, plan.seen, read & again.keys(), set(), set()) == plan
        assert sum(calls.values()) <= days + 1 + 2 * (sensing.WATCHED_HOURS + 2)


def test_a_backlog_of_a_year_is_looked_into_as_far_as_one_tick_requests_it(year: Path) -> None:
    with counted_calls() as calls:
        arrivals = Arrivals(year)
        looks = looks_to_take(arrivals.hours, {}, Taken(set(), set(), set()), arrivals.look)
        assert calls["os.scandir"] == sensing.HOURS_PER_RUN * sensing.RUNS_PER_TICK + 1
    plan = make_plan(looks, {}, set(), set(), set())
    assert [len(hours) for hours in plan.ranges] == [sensing.HOURS_PER_RUN] * sensing.RUNS_PER_TICK
    assert plan.ranges[0][0] == START


class Looker:
    """Looks that are known, and whom somebody asked for."""

    def __init__(self, looks: dict[datetime, str | None]) -> None:
        self.looks, self.asked = looks, Counter[datetime]()

    def __call__(self, hour: datetime) -> str | None:
        self.asked[hour] += 1
        return self.looks[hour]


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from([0.05, 0.5, 0.95]), st.booleans())
def test_the_few_looks_make_the_plan_that_all_of_them_make(seed: int, settled: float, forgetful: bool) -> None:
    """Hours in every state, with little room in the cursor and in a tick."""
    random = Random(seed)  # noqa: S311 - hypothesis chooses the seed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensing, "WATCHED_HOURS", 6)
        patch.setattr(sensing, "HOURS_PER_RUN", 3)
        patch.setattr(sensing, "RUNS_PER_TICK", 2)
        hours = sorted(random.sample(YEAR[:60], random.randint(0, 50)))
        states = {hour: random.choice("rrrxf") if random.random() < settled else "-" for hour in hours}
        read, running, failed = ({h for h, state in states.items() if state == wanted} for wanted in "rxf")
        now: dict[datetime, str | None] = {hour: random.choice(["a", "a", "b", None]) for hour in hours}
        remembered = [] if forgetful else random.sample(YEAR[:60], 6)
        seen = {hour: random.choice("ab") for hour in sorted(remembered)}
        everything = {hour: look for hour, look in now.items() if look is not None}
        full = make_plan(everything, seen, *({*hours_} & everything.keys() for hours_ in (read, running, failed)))
        looker = Looker(now)
        looks = looks_to_take(hours, seen, Taken(read, running, failed), looker)
        plan = make_plan(looks, seen, *(hours_ & looks.keys() for hours_ in (read, running, failed)))
    assert plan == full


# How the hours and their looks were found when every folder was looked into: the definition.


def closed_by_definition(landing: Path, readiness: Readiness) -> list[datetime]:
    folders = {_hour(f): f for f in (landing / "visits").glob("date=*/hour=*") if f.is_dir()}
    marked = {hour for hour, folder in folders.items() if _ready(folder)}
    arrived = {hour for hour, folder in folders.items() if _files(folder)}
    if readiness == "marker" or not arrived:
        return sorted(marked)
    first, newest = min(arrived), max(arrived)
    return sorted(marked | {first + timedelta(hours=n) for n in range((newest - first) // timedelta(hours=1))})


def look_by_definition(landing: Path, hour: datetime, readiness: Readiness) -> str:
    folder = hour_folder(landing, hour)
    covered = [*_files(folder), *([folder / MARKER] if readiness == "marker" else [])]
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in covered]
    return hashlib.blake2b(repr(facts).encode(), digest_size=6).hexdigest()


def _hour(folder: Path) -> datetime:
    return datetime.strptime(f"{folder.parent.name} {folder.name} +0000", "date=%Y-%m-%d hour=%H %z")


def _files(folder: Path) -> list[Path]:
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if path.is_file() and path.name[0] not in "_."]


def _ready(folder: Path) -> bool:
    if not (folder / MARKER).is_file():
        return False
    sizes = {path.name: path.stat().st_size for path in _files(folder)}
    try:
        covered = dict(json.loads((folder / MARKER).read_text())["files"])
    except (ValueError, KeyError, TypeError):
        # Everything here was written a moment ago: only what is as old as the marker is still.
        return all(path.stat().st_mtime_ns <= (folder / MARKER).stat().st_mtime_ns for path in _files(folder))
    return all(name in sizes and sizes[name] == size for name, size in covered.items())


def disturb(landing: Path, hour: datetime, random: Random) -> None:
    """What producers and people do to a folder, the closed ones included."""
    folder = hour_folder(landing, hour)
    part, marker = folder / random.choice([PART, "part-00001.json"]), folder / MARKER
    folder.mkdir(parents=True, exist_ok=True)
    match random.randrange(9):
        case 0 | 1 | 2:
            part.write_bytes(b"{}\n" * random.randint(1, 3))
            marker.write_text(json.dumps({"files": {file.name: file.stat().st_size for file in _files(folder)}}))
        case 3:
            part.write_bytes(b"late\n")  # added or rewritten beside the marker as it was
        case 4:
            marker.unlink(missing_ok=True)
        case 5:
            marker.write_text(random.choice(["", "done", '{"files": {}}', "[]"]))
        case 6:
            part.unlink(missing_ok=True)
        case 7:
            shutil.rmtree(folder)
        case 8:
            (folder / f"_{part.name}").write_bytes(b"half")
            (folder.parent / "notes").touch()
            (landing / "visits" / "date=tomorrow").mkdir(exist_ok=True)


@pytest.mark.parametrize("readiness", ["marker", "next_hour"])
@pytest.mark.parametrize("seed", range(6))
def test_every_disturbance_is_seen_as_by_looking_into_all_folders(
    tmp_path: Path, readiness: Readiness, seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - the same disturbances every time
    hours = [START + timedelta(hours=n) for n in (0, 1, 2, 3, 7, 22, 23, 24, 25, 50)]
    for _ in range(40):
        disturb(tmp_path, random.choice(hours), random)
        closed = closed_by_definition(tmp_path, readiness)
        arrivals = Arrivals(tmp_path, readiness)
        looks = {hour: look for hour in arrivals.hours if (look := arrivals.look(hour)) is not None}
        assert looks == {hour: look_by_definition(tmp_path, hour, readiness) for hour in closed}
        assert [hour for hour in arrivals.hours if arrivals.is_closed(hour)] == closed
