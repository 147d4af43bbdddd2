"""Two locations, really served: theirs follows ours by a launch and by data, and lives while the other is broken or changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from two_locations import BROKEN, NEXT_VERSION, OURS, SECONDS, THEIRS, Locations
from web_ui import until

pytestmark = [pytest.mark.ui, pytest.mark.pattern("isolated_sequencer")]

MAINTENANCE, REDRAW = "maintenance", "redraw_dashboards"
DAY = dt.date(2024, 10, 10)
AUTOMATED = {"dagster/from_automation_condition": "true"}


@pytest.fixture(scope="module")
def locations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locations]:
    root = tmp_path_factory.mktemp("locations")
    numbers = {
        name: pa.array([number], pa.int64()) for name, number in {"visits": 120, "users": 30, "bot_visits": 5}.items()
    }
    cube = pa.table({"event_date": [DAY], "grouping": pa.array([7], pa.int32()), **numbers})
    write_deltalake(str(root / "lake" / "gold" / "visits_cube_daily"), cube, partition_by=["event_date"])
    write_deltalake(
        str(root / "lake" / "gold" / "sessions"),
        pa.table({"session_id": ["a"], "event_date": [DAY]}),
        partition_by=["event_date"],
    )
    with Locations.served(root) as locations:
        yield locations


def page(locations: Locations) -> Path:
    return locations.root / "dashboards" / "daily_traffic.html"


def test_our_job_launches_theirs_when_all_of_it_is_done(locations: Locations) -> None:
    ours = locations.launch("ours", MAINTENANCE)
    assert ours.is_success, locations.error(ours)
    (theirs,) = locations.runs(REDRAW)
    assert theirs.tags["launched_by/run"] == ours.run_id
    assert locations.ended(theirs.run_id).is_success
    assert "<td>120</td>" in page(locations).read_text()


@contextmanager
def under_way(locations: Locations, works: str) -> Iterator[Callable[[], bool]]:
    """A run of this location that lasts until the end and then ends well; whether it is still at work."""
    waits, go = locations.root / "waits", locations.root / "go"
    run = locations.begin(works, "patient")
    until(waits.exists, SECONDS, locations.web.process.output)
    try:
        yield lambda: not any(each.is_finished for each in locations.runs("patient") if each.run_id == run)
    finally:
        go.touch()
        ended = locations.ended(run)
        waits.unlink()
        go.unlink()
    assert ended.is_success


def test_their_location_is_broken_and_becomes_another_version_and_ours_goes_on(locations: Locations) -> None:
    before = len(locations.runs(REDRAW))
    with under_way(locations, "ours") as works_on:
        assert locations.code("dashboards", BROKEN) == "PythonError"
        ours = locations.launch("ours", MAINTENANCE)
        done = {"maintain_tables": "success", "retain_versions": "success"}
        assert locations.steps(ours) == {**done, "launch_readers": "failure"}
        assert "`redraw_dashboards` of the code location `dashboards` was not launched" in locations.error(ours)
        assert len(locations.runs(REDRAW)) == before

        assert locations.code("dashboards", THEIRS + NEXT_VERSION) == "RepositoryLocation"
        assert "of_the_next_version" in locations.jobs("dashboards")
        again = locations.again(ours)
        assert locations.steps(again) == {"launch_readers": "success"}, "what was done stays done"
        theirs, *earlier = locations.runs(REDRAW)
        assert len(earlier) == before
        assert locations.ended(theirs.run_id).is_success
        assert works_on(), "it began when theirs was another version, and saw nothing of all that"


def test_their_dashboard_follows_by_data_what_ours_has_written(locations: Locations) -> None:
    assert locations.launch("dashboards", REDRAW).is_success, "it was made before: what follows is about news"
    page(locations).unlink()
    with locations.daemon() as daemon:
        until(lambda: locations.looks("news_from_gold") > 1, SECONDS, daemon.output)
        assert locations.runs(**AUTOMATED) == [], "no news"
        assert locations.launch("ours", "write_gold").is_success
        until(lambda: locations.runs(**AUTOMATED), SECONDS, daemon.output)
        (theirs,) = locations.runs(**AUTOMATED)
        assert locations.ended(theirs.run_id).is_success
    assert "<td>120</td>" in page(locations).read_text()


@pytest.mark.parametrize(
    ("works", "changes", "text"),
    [("ours", "dashboards", THEIRS), ("dashboards", "ours", OURS)],
    ids=["theirs changes", "ours changes"],
)
def test_a_run_goes_on_while_the_other_location_becomes_another_version(
    locations: Locations, works: str, changes: str, text: str
) -> None:
    with under_way(locations, works) as works_on:
        assert locations.code(changes, text + NEXT_VERSION) == "RepositoryLocation"
        assert "of_the_next_version" in locations.jobs(changes)
        assert works_on()
    # The next version stays: it has all that the other tests ask for.


def test_our_location_is_broken_and_theirs_goes_on(locations: Locations) -> None:
    """The last one: it leaves ours broken, for to load it again takes longest of all."""
    page(locations).unlink(missing_ok=True)
    assert locations.code("ours", BROKEN) == "PythonError"
    assert locations.launch("dashboards", REDRAW).is_success
    assert page(locations).exists()
