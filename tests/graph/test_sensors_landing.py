"""Readiness Marker: which hours the sensor `visits_hour_landed` requests, and which it reports."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import dagster as dg
import pytest

from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.alerting.sinks import LogAlertSink
from de_assets.automation.alerting.stray_hours import outside, visits_outside_calendar
from de_assets.automation.triggers import landing as sensing
from de_assets.automation.triggers.landing import DEAD_LETTERS, VISITS, make_plan, visits_hour_landed
from de_assets.calendar import Calendar
from de_assets.partitions import CALENDAR, hourly
from de_assets.sources.arrivals import Arrivals
from de_assets.sources.landing import MARKER, PART, hour_folder
from de_assets.sources.landing_zone import LandingZone
from de_checks.damaged_files import DAMAGED_FILES

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
    yield dg.MaterializeResult(
        asset_key=DEAD_LETTERS,
        metadata={
            "dagster/partition_row_count": int(context.run.tags.get("letters", "0")),
            **({DAMAGED_FILES: dg.MetadataValue.json({"a.gz": "damaged"})} if "damaged" in context.run.tags else {}),
        },
    )
    rows = int(context.run.tags.get("rows", "1"))
    yield dg.MaterializeResult(asset_key=VISITS, metadata={"dagster/partition_row_count": rows})


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

    def land(self, number: int, text: str = "{}\n", *, marked: bool = True, marker: str = "") -> None:
        """Write an hour's file, and the marker; each landing is a second later than the one before."""
        folder = hour_folder(self.root, hour(number))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).unlink(missing_ok=True)
        self.clock += 1
        for name in (PART, MARKER) if marked else (PART,):
            (folder / name).write_text(text if name == PART else marker)
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


def test_of_a_run_that_was_told_of_in_part_no_hour_is_requested_again(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon died after the first hour of the run that it made; the next one launches the run as it is."""
    for number in (0, 1, 2):
        drop.land(number)
    [request] = drop.tick().run_requests
    store, told = drop.instance.event_log_storage.store_event, []

    def dies_after_the_first(event: dg.EventLogEntry) -> None:
        if told:
            raise KeyboardInterrupt
        told.append(event.get_dagster_event().partition)
        store(event)

    asked = dg.RunRequest(tags={**request.tags, "dagster/sensor_name": visits_hour_landed.name})
    monkeypatch.setattr(drop.instance.event_log_storage, "store_event", dies_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        drop.queue(asked)
    monkeypatch.undo()
    assert told == [key(0)]
    (run,) = drop.instance.get_runs()
    drop.instance.report_dagster_event(
        dg.DagsterEvent(dg.DagsterEventType.RUN_STARTING.value, run.job_name), run.run_id
    )
    drop.land(3)
    assert requested(drop.tick()) == [(key(3), key(3))]
    drop.instance.report_run_failed(run)
    drop.instance.add_run_tags(run.run_id, {"dagster/will_retry": "true"})
    assert requested(drop.tick()) == [(key(3), key(3))], "the daemon is about to start it again"
    drop.instance.add_run_tags(run.run_id, {"dagster/will_retry": "false"})
    assert requested(drop.tick()) == [(key(1), key(3))], "a run that failed is for no hour any more"


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


def _grown(text: str) -> str:
    return json.dumps({"files": {PART: len(text)}, "grown": True})


@pytest.mark.parametrize("numbers", [[0], [0, 1, 2]], ids=["an hour", "some hours"])
def test_closed_hour_that_has_only_grown_is_reported_and_read_again(drop: Drop, numbers: list[int]) -> None:
    for number in (0, 1, 2):
        drop.land(number)
    drop.launch(drop.tick().run_requests[0])
    drop.tick()
    for number in numbers:
        drop.land(number, "{}\n{}\n", marker=_grown("{}\n{}\n"))
    result = drop.tick()
    assert requested(result) == [(key(numbers[0]), key(numbers[-1]))]
    assert [event.partition for event in result.asset_events] == [key(number) for number in numbers]
    assert all(drop.launch(request) for request in result.run_requests)
    again = drop.tick()
    assert (requested(again), again.asset_events) == ([], []), "once"
    drop.land(0, "rewritten\n")
    assert requested(drop.tick()) == [], "what does not say that it has grown is for people"


def test_an_hour_whose_files_were_damaged_is_read_again_when_they_change(drop: Drop) -> None:
    for number in (0, 1):
        drop.land(number)
        [request] = drop.tick().run_requests
        assert drop.launch(request, **({"damaged": ""} if number == 0 else {}))
    assert requested(drop.tick()) == [], "as long as nobody repairs it"
    for number in (0, 1):
        drop.land(number, "repaired\n")
    result = drop.tick()
    assert requested(result) == [(key(0), key(0))], "what was read to its end is for people"
    assert [event.partition for event in result.asset_events] == [key(0), key(1)]
    assert drop.launch(result.run_requests[0])
    drop.land(0, "changed\n")
    assert requested(drop.tick()) == [], "it was read to its end since"


@pytest.mark.parametrize(("rows", "letters", "again"), [("0", "1", True), ("0", "0", False), ("1", "1", False)])
def test_an_hour_that_comes_after_its_error_page_is_read(drop: Drop, rows: str, letters: str, *, again: bool) -> None:
    drop.land(0, "<html><body>503, try later</body></html>\n")
    assert drop.launch(drop.tick().run_requests[0], rows=rows, letters=letters)
    assert requested(drop.tick()) == []
    drop.land(0, "{}\n" * 40)
    assert requested(drop.tick()) == ([(key(0), key(0))] if again else [])


def test_more_grown_hours_than_a_tick_requests_are_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensing, "HOURS_PER_RUN", 1)
    monkeypatch.setattr(sensing, "RUNS_PER_TICK", 2)
    plan = make_plan(
        {hour(n): "new" for n in range(3)}, {hour(n): "old" for n in range(3)}, {hour(n) for n in range(3)}, set(), set(),
        has_grown=lambda _hour: True,
    )  # fmt: skip
    assert plan.ranges == [[hour(0)], [hour(1)]]
    assert plan.changed == plan.grown == [hour(0), hour(1)]
    assert plan.seen == {hour(0): "new", hour(1): "new", hour(2): "old"}


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
        # A failed hour is landed again half an hour later, as another folder.
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


def test_hours_outside_the_calendar_are_one_alert_until_they_are_gone(drop: Drop, tmp_path: Path) -> None:
    sink, cursor = LogAlertSink(path=str(tmp_path / "alerts.jsonl")), None
    alerting = Alerting(tmp_path, {"log": sink})

    def tick() -> str | None:
        resources = {"landing": LandingZone(root=str(drop.root)), "alerting": alerting}
        context = dg.build_sensor_context(instance=drop.instance, cursor=cursor, resources=resources)
        result = visits_outside_calendar(context)
        assert isinstance(result, dg.SensorResult)
        return result.cursor

    drop.land(0)
    cursor = tick()
    assert not sink.file.exists()
    drop.land(-1)
    for _ in range(2):
        cursor = tick()
    drop.land(-2)
    cursor = tick()
    assert alerting.book.open_alerts()[0].members == (key(-2), key(-1))
    for number in (-1, -2):
        shutil.rmtree(hour_folder(drop.root, hour(number)))
    cursor = tick()
    told = [json.loads(line) for line in sink.file.read_text().splitlines() if line]
    assert [(alert["event"], alert["partitions"]) for alert in told] == [
        ("opened", [key(-1)]),
        ("recovered", [key(-1)]),
    ]
    assert told[0]["text"] == f"ERROR: Check `hours_are_in_the_calendar` failed for sources/landed_visits [{key(-1)}]"


def test_an_open_calendar_ends_with_the_hour_after_the_present_one() -> None:
    now = datetime(2026, 1, 1, 7, 30, tzinfo=UTC)
    hours = [
        datetime(year, 1, 1, hour, tzinfo=UTC) for year, hour in ((2020, 0), (2026, 7), (2026, 8), (2026, 9), (2099, 0))
    ]
    opened = Calendar(datetime(2025, 1, 1, tzinfo=UTC), None)
    assert outside(opened, hours, now) == [hours[0], hours[3], hours[4]]


def test_a_folder_of_the_future_closes_no_hour(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, 7, 30, tzinfo=UTC)
    hours = [now.replace(minute=0) + timedelta(hours=n) for n in (-3, -1)] + [datetime(2099, 1, 1, tzinfo=UTC)]
    for each in hours:
        folder = hour_folder(tmp_path, each)
        folder.mkdir(parents=True)
        (folder / PART).write_text("{}\n")
    arrivals = Arrivals(tmp_path, "next_hour", now=now)
    assert [each for each in arrivals.hours if arrivals.is_closed(each)] == [hours[0], hours[0] + timedelta(hours=1)]


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
