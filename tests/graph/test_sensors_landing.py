"""Readiness Marker: which hours the sensor `visits_hour_landed` requests, and which it reports."""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import dagster as dg
import pytest

from de_assets.automation import landing as sensing
from de_assets.automation.landing import DEAD_LETTERS, VISITS, make_plan, visits_hour_landed
from de_assets.partitions import CALENDAR, hourly
from de_assets.sources.landing import MARKER, PART, hour_folder
from de_assets.sources.landing_zone import LandingZone

START = CALENDAR.start
pytestmark = pytest.mark.pattern("readiness_marker")


@dg.multi_asset(
    specs=[dg.AssetSpec(DEAD_LETTERS), dg.AssetSpec(VISITS)],
    partitions_def=hourly,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def landed_visits(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
    """The real keys and calendar without the engine."""
    if "breaks" in context.run.tags:
        raise dg.Failure("broken on purpose")
    yield dg.MaterializeResult(asset_key=DEAD_LETTERS)
    yield dg.MaterializeResult(asset_key=VISITS)


DEFS = dg.Definitions(assets=[landed_visits], sensors=[visits_hour_landed])


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def key(number: int) -> str:
    return hour(number).strftime(hourly.fmt)


class Drop:
    """A drop folder, the instance, and the sensor with its cursor."""

    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.root, self.instance, self.cursor = root, instance, None
        self.clock = 1_700_000_000
        self.readiness: str | None = None

    def land(self, number: int, text: str = "{}\n", *, marked: bool = True) -> None:
        """Write an hour's file, and the marker; each landing is a second later than the one before."""
        folder = hour_folder(self.root, hour(number))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).unlink(missing_ok=True)
        self.clock += 1
        for name in (PART, MARKER) if marked else (PART,):
            (folder / name).write_text(text if name == PART else "")
            os.utime(folder / name, (self.clock, self.clock))

    def tick(self) -> dg.SensorResult:
        context = dg.build_sensor_context(
            instance=self.instance,
            definitions=DEFS,
            cursor=self.cursor,
            resources={"landing": LandingZone(root=str(self.root), visits_readiness=self.readiness)},
        )
        result = visits_hour_landed(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        return result

    def launch(self, request: dg.RunRequest, **tags: str) -> bool:
        """Execute what was requested, as the daemon would have."""
        return dg.materialize(
            [landed_visits],
            partition_key=request.partition_key,
            tags={**request.tags, **tags},
            instance=self.instance,
            raise_on_error=False,
        ).success

    def queue(self, request: dg.RunRequest) -> None:
        """Create the run without executing it."""
        tags = {**request.tags, **({"dagster/partition": request.partition_key} if request.partition_key else {})}
        self.instance.create_run_for_job(DEFS.resolve_implicit_global_asset_job_def(), tags=tags)


@pytest.fixture
def drop(tmp_path: Path) -> Iterator[Drop]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Drop(tmp_path, instance)


def requested(result: dg.SensorResult) -> list[tuple[str, str]]:
    """First and last hour of each request."""
    ranges = [(r.tags.get("dagster/asset_partition_range_start"), r) for r in result.run_requests or []]
    return [
        (start or r.partition_key, r.tags.get("dagster/asset_partition_range_end") or r.partition_key)
        for start, r in ranges
    ]


def test_half_written_folder_is_never_requested(drop: Drop) -> None:
    drop.land(0, marked=False)
    assert requested(drop.tick()) == []
    drop.land(0)
    assert requested(drop.tick()) == [(key(0), key(0))]


def test_contiguous_hours_become_one_run(drop: Drop) -> None:
    for number in (0, 1, 2, 5):
        drop.land(number)
    result = drop.tick()
    assert requested(result) == [(key(0), key(2)), (key(5), key(5))]
    assert all(drop.launch(request) for request in result.run_requests)
    assert requested(drop.tick()) == []


@pytest.mark.parametrize("forgetful", [False, True], ids=["with its cursor", "after losing its cursor"])
def test_hour_is_requested_once(drop: Drop, forgetful: bool) -> None:
    drop.land(0)
    drop.land(1)
    [request] = drop.tick().run_requests
    drop.queue(request)
    drop.land(2)
    if forgetful:
        drop.cursor = None
    assert requested(drop.tick()) == [(key(2), key(2))]


def test_same_landing_has_the_same_run_key(drop: Drop) -> None:
    drop.land(0)
    first, again = drop.tick().run_requests[0], drop.tick().run_requests[0]  # the daemon died before it launched
    assert first.run_key == again.run_key
    drop.land(0, "other\n")
    assert drop.tick().run_requests[0].run_key != first.run_key


def test_hours_materialised_by_hand_are_left_alone(drop: Drop) -> None:
    drop.land(0)
    drop.launch(dg.RunRequest(partition_key=key(0)))
    assert requested(drop.tick()) == []


def test_closed_hour_that_changes_is_reported_and_not_read_again(drop: Drop) -> None:
    drop.land(0)
    drop.launch(drop.tick().run_requests[0])
    drop.tick()
    drop.land(0, "rewritten\n")
    result = drop.tick()
    assert requested(result) == []
    assert [(e.asset_key.to_user_string(), e.partition) for e in result.asset_events] == [
        ("sources/landed_visits", key(0))
    ]
    assert drop.tick().asset_events == []  # once


def test_hour_that_is_being_rewritten_is_reported_when_it_is_complete_again(drop: Drop) -> None:
    drop.land(0)
    drop.launch(drop.tick().run_requests[0])
    drop.land(0, "rewritten\n", marked=False)
    assert drop.tick().asset_events == []
    drop.land(0, "rewritten\n")
    assert len(drop.tick().asset_events) == 1


def test_without_markers_the_arrival_of_a_later_hour_closes_an_hour(drop: Drop) -> None:
    drop.readiness = "next_hour"
    drop.land(0, marked=False)
    assert requested(drop.tick()) == []
    drop.land(1, marked=False)
    [request] = drop.tick().run_requests
    assert (request.partition_key, drop.launch(request)) == (key(0), True)
    drop.land(4, marked=False)
    [request] = drop.tick().run_requests  # the hours that brought nothing are closed, too
    assert requested(dg.SensorResult(run_requests=[request])) == [(key(1), key(3))]
    assert drop.launch(request)
    assert requested(drop.tick()) == []


def test_without_markers_a_file_that_comes_late_is_reported_and_not_read(drop: Drop) -> None:
    drop.readiness = "next_hour"
    for number in (0, 1):
        drop.land(number, marked=False)
    drop.launch(drop.tick().run_requests[0])
    drop.land(0, "late\n", marked=False)
    result = drop.tick()
    assert requested(result) == []
    assert [event.partition for event in result.asset_events] == [key(0)]


def test_failed_hour_waits_for_people_or_for_a_new_landing(drop: Drop) -> None:
    drop.land(0)
    assert not drop.launch(drop.tick().run_requests[0], breaks="")
    assert requested(drop.tick()) == []
    drop.land(0, "repaired\n")  # nobody has read it: not a change of something published
    result = drop.tick()
    assert requested(result) == [(key(0), key(0))]
    assert result.asset_events == []


def test_an_hour_that_changes_while_its_run_is_under_way_is_not_forgotten_when_that_fails() -> None:
    first = make_plan({START: "old"}, {}, set(), set(), set())
    running = make_plan({START: "new"}, first.seen, set(), {START}, set())
    assert (running.ranges, running.changed) == ([], [])
    assert make_plan({START: "new"}, running.seen, set(), set(), {START}).ranges == [[START]], "nobody has read it"
    assert make_plan({START: "new"}, running.seen, {START}, set(), set()).changed == [START]


@pytest.mark.parametrize("forgetful", [False, True], ids=["cursor kept", "cursor lost at every tick"])
def test_a_week_of_late_failing_and_rewritten_hours(forgetful: bool) -> None:
    """Ticks of a minute over a week. Every hour is read; none that was read is requested again."""
    random = Random(7)  # noqa: S311 - the same week every time
    lands = {hour(n): n * 60 + 60 + random.choice([0, 1, 5, 600]) for n in range(168)}
    fails = {h for h in lands if random.random() < 0.1}
    seen: dict[datetime, str] = {}
    requests: Counter[datetime] = Counter()
    running: dict[datetime, int] = {}
    read: set[datetime] = set()
    failed: set[datetime] = set()
    for minute in range(168 * 60 + 800):
        for h in [h for h, end in running.items() if end == minute]:
            del running[h]
            (failed if h in fails and requests[h] == 1 else read).add(h)
        # A failed hour is landed anew half an hour later, as another folder.
        looks = {h: f"{minute >= at + 30 and h in fails}" for h, at in lands.items() if minute >= at}
        plan = make_plan(looks, {} if forgetful else seen, read & set(looks), running, failed - read)
        seen = plan.seen
        for h in (h for hours in plan.ranges for h in hours):
            requests[h] += 1
            failed.discard(h)
            running[h] = minute + 3
    if forgetful:
        assert set(requests.values()) == {1}
        assert read == set(lands) - fails, "whether a failed hour is another folder, only the cursor knows"
    else:
        assert read == set(lands)
        assert {h for h, count in requests.items() if count > 1} == fails
        assert max(requests.values()) == 2


def test_hours_outside_the_calendar_are_skipped(drop: Drop) -> None:
    drop.land(-1)
    result = drop.tick()
    assert requested(result) == []
    assert "1 outside the calendar" in result.skip_reason.skip_message


def test_requests_of_one_tick_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensing, "HOURS_PER_RUN", 3)
    monkeypatch.setattr(sensing, "RUNS_PER_TICK", 2)
    looks = {hour(n): "x" for n in range(10)}
    first = make_plan(looks, {}, read=set(), running=set(), failed=set())
    assert [len(r) for r in first.ranges] == [3, 3]
    taken = {h for r in first.ranges for h in r}
    assert [len(r) for r in make_plan(looks, first.seen, set(), taken, set()).ranges] == [3, 1]


def test_cursor_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensing, "WATCHED_HOURS", 2)
    looks = {datetime(2024, 10, 10, n, tzinfo=UTC): "x" for n in range(5)}
    assert list(make_plan(looks, {}, set(looks), set(), set()).seen) == sorted(looks)[-2:]
