"""Durations and deadlines in real runs, on a real event log: retries, ranges, the queue, and a step that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from instances import silent_instance
from waiting import PATIENCE

from de_assets.automation.sla import sla_checks, watched
from de_assets.catalogue import load_locations
from de_assets.definitions import alerting
from de_checks.sla import deadline_check, duration_check, missing_partitions, overdue_steps, step_duration_check
from de_checks.sla.duration import LEAST_RUNS, NAME
from de_checks.sla.running import limit_of
from de_resources.contract.sla import Sla

pytestmark = pytest.mark.pattern("sla_misses_detector")

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01")
MINUTE = timedelta(minutes=1)


@dataclass
class World:
    """An asset that does what the test says, with a check of its duration."""

    instance: dg.DagsterInstance
    sla: Sla | None = None
    work: list[Any] = field(default_factory=list)
    make: Callable[[dg.AssetsDefinition, Sla | None], dg.AssetChecksDefinition] = duration_check

    def __post_init__(self) -> None:
        @dg.asset(
            key=["gold", "sales"],
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            retry_policy=dg.RetryPolicy(max_retries=1),
        )
        def sales() -> None:
            if self.work:
                self.work.pop(0)()

        self.asset = sales

    def run(self, first: str, last: str | None = None, **tags: str) -> list[dg.AssetCheckEvaluation]:
        check = self.make(self.asset, self.sla)
        span = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last or first}
        done = dg.materialize([self.asset, check], instance=self.instance, tags={**span, **tags})
        return done.get_asset_check_evaluations()

    def judge_again(self, day: str, **tags: str) -> dg.AssetCheckEvaluation:
        """The check alone, as a person executes it."""
        check = self.make(self.asset, self.sla)
        everything = dg.Definitions([self.asset], asset_checks=[check]).resolve_implicit_global_asset_job_def()
        alone = everything.get_subset(asset_selection=set(), asset_check_selection=set(check.check_keys))
        done = alone.execute_in_process(instance=self.instance, partition_key=day, tags=tags)
        (found,) = done.get_asset_check_evaluations()
        return found


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with silent_instance() as instance:
        yield instance


Lasts = Callable[[float], Callable[[], None]]
"""Work that takes so many minutes."""


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> Lasts:
    """By the clock of the event log, which work moves on and no machine, however busy: minutes that pass in no time."""
    real, passed = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + sum(passed))
    return lambda number: lambda: passed.append(60.0 * number)


def told(evaluation: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


def test_a_retried_step_is_as_long_as_its_last_attempt(instance: dg.DagsterInstance, minutes: Lasts) -> None:
    def fails() -> None:
        minutes(6)()
        raise RuntimeError("once")

    (found,) = World(instance, Sla(takes_at_most=5 * MINUTE), [fails]).run("2026-01-01")
    assert found.passed, "the attempt that failed took longer"
    assert told(found)["sla/attempt"] == 2
    assert told(found)["sla/step_seconds"] < 300


def test_a_range_is_judged_by_its_time_per_partition(instance: dg.DagsterInstance, minutes: Lasts) -> None:
    found = World(instance, Sla(takes_at_most=4 * MINUTE), [minutes(8)]).run("2026-01-01", "2026-01-10")
    assert len(found) == 10
    assert all(each.passed for each in found)
    assert {told(each)["sla/partitions"] for each in found} == {10}
    assert told(found[0])["sla/step_seconds"] > 480 > 240 > told(found[0])["sla/seconds"]


def test_a_promise_that_is_broken_is_an_error(instance: dg.DagsterInstance, minutes: Lasts) -> None:
    (found,) = World(instance, Sla(takes_at_most=3 * MINUTE), [minutes(5)]).run("2026-01-01")
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)


@pytest.mark.red_check("takes_no_longer_than_usual")
def test_slow_runs_are_not_learnt_from_until_a_person_says_so(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, minutes: Lasts
) -> None:
    monkeypatch.setattr("de_checks.sla.duration.LEAST_RUNS", 3)
    monkeypatch.setattr("de_checks.sla.duration.FLOOR", 3 * MINUTE)
    world = World(instance)
    for day in (1, 2, 3):
        assert world.run(f"2026-01-0{day}")[0].passed
    world.work = [minutes(10)] * 3
    first, second = world.run("2026-01-04")[0], world.run("2026-01-05")[0]
    assert [(each.passed, each.severity) for each in (first, second)] == [(False, dg.AssetCheckSeverity.WARN)] * 2
    assert not world.judge_again("2026-01-05").passed, "the same attempt, judged in the same way"
    accepted = world.judge_again("2026-01-05", **{"de/duration_accepted": "twice the shops"})
    assert accepted.passed
    assert told(accepted)["accepted"] == "twice the shops"
    assert world.run("2026-01-06")[0].passed, "the new normal"
    assert LEAST_RUNS == 20


def test_a_step_that_hangs_is_told_while_it_hangs(instance: dg.DagsterInstance) -> None:
    """The clock is the caller's: two minutes pass in no time. Another asset of the same length promises more."""
    begun, released = threading.Event(), threading.Event()

    @dg.asset(key=["gold", "stuck"])
    def stuck() -> None:
        begun.set()
        released.wait(PATIENCE)

    run = threading.Thread(target=dg.materialize, args=([stuck],), kwargs={"instance": instance})
    run.start()
    assert begun.wait(PATIENCE)
    promised = {"gold/stuck": Sla(takes_at_most=MINUTE)}
    now = datetime.now(UTC)
    young = overdue_steps(instance, now, promised)
    old = overdue_steps(instance, now + 2 * MINUTE, promised)
    of_three = overdue_steps(instance, now + 2 * MINUTE, promised, keys_of=lambda *_: 3)
    patient = overdue_steps(instance, now + 2 * MINUTE, {"gold/stuck": Sla(takes_at_most=5 * MINUTE)})
    set_back = overdue_steps(instance, now - timedelta(days=1), promised)
    unknown = overdue_steps(instance, now + 2 * MINUTE, {"gold/stuck": None})
    released.set()
    run.join(PATIENCE)
    assert (young, of_three, patient, set_back, unknown) == ([], [], [], [], [])
    (found,) = old
    assert (found.assets, found.limit, found.is_promised) == (("gold/stuck",), 60, True)
    assert 119 < found.seconds < 180
    assert overdue_steps(instance, now + 2 * MINUTE, promised) == [], "it has ended"


def test_the_queue_is_not_the_steps_duration(instance: dg.DagsterInstance) -> None:
    """A run that was requested and not started is nobody's long step."""

    @dg.asset(key=["gold", "queued"])
    def queued() -> None: ...

    job = dg.Definitions([queued], jobs=[dg.define_asset_job("all")]).resolve_job_def("all")
    instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTING)
    promised = {"gold/queued": Sla(takes_at_most=MINUTE)}
    assert overdue_steps(instance, datetime.now(UTC) + timedelta(days=1), promised) == []


@pytest.mark.red_check("is_ready_in_time")
def test_a_deadline_knows_whose_fault_it_is_and_forgets_it_not(instance: dg.DagsterInstance) -> None:
    """Yesterday's partition: its input is recorded by the test, the moment it is there by the run."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = dg.DailyPartitionsDefinition(today - timedelta(days=9), fmt="%Y-%m-%d")
    source = dg.AssetSpec("landed", partitions_def=days)

    @dg.asset(partitions_def=days, deps=[source])
    def report() -> None: ...

    def verdict(key: str, sla: Sla, since: datetime | None = today - timedelta(days=9)) -> dict[str, Any]:
        check = deadline_check(report, sla, [source], since=since)
        done = dg.materialize([source, report, check], instance=instance, partition_key=key)
        (found,) = done.get_asset_check_evaluations()
        return {"passed": found.passed, **told(found)}

    key = (today - timedelta(days=3)).strftime("%Y-%m-%d")
    instance.report_runless_asset_event(dg.AssetMaterialization("landed", partition=key))
    hours = timedelta(hours=1)
    promise = Sla(ready_within=30 * hours, input_within=20 * hours)
    late, again = verdict(key, promise), verdict(key, promise)
    filled_in = verdict(key, promise, since=None)
    assert (late["passed"], late["sla/fault"]) == (False, "source")
    assert filled_in["passed"], "the window had ended before anything was there"
    assert late["sla/arrived_seconds"] > 48 * 3600 - 60
    assert again["sla/ready_seconds"] == late["sla/ready_seconds"], "written again, it was there when it was first"

    yesterday = (today - timedelta(days=1)).strftime("%Y-%m-%d")
    instance.report_runless_asset_event(dg.AssetMaterialization("landed", partition=yesterday))
    next_one = verdict(yesterday, promise)
    assert next_one["passed"], "its source delivers in time again"
    assert "sla/fault" not in next_one


def test_a_deadline_of_a_long_range_reads_its_run_once(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of a run over a month of hours has thousands of events: to read it for every hour takes minutes."""
    hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-02-00:00")

    @dg.asset(partitions_def=hours, backfill_policy=dg.BackfillPolicy.single_run())
    def landed() -> None: ...

    read: list[str] = []
    logs_of = type(instance.event_log_storage).get_logs_for_run
    monkeypatch.setattr(
        type(instance.event_log_storage),
        "get_logs_for_run",
        lambda self, run_id, *a, **k: (read.append(run_id), logs_of(self, run_id, *a, **k))[1],
    )
    check = deadline_check(landed, Sla(ready_within=timedelta(hours=1)), since=datetime(2026, 1, 1, 12, 30, tzinfo=UTC))
    span = {
        "dagster/asset_partition_range_start": "2026-01-01-00:00",
        "dagster/asset_partition_range_end": "2026-01-01-23:00",
    }
    read.clear()
    found = dg.materialize([landed, check], instance=instance, tags=span).get_asset_check_evaluations()
    assert len(found) == 24
    assert [each.partition for each in found if not each.passed] == [f"2026-01-01-{hour}:00" for hour in range(12, 24)]
    assert len(read) == 1


NOT_WATCHED = {
    "dashboards/daily_traffic": "another team's code location, which imports nothing of this one and promises nothing",
}
TOLD_BY = {
    # Outputs of one step take as long as each other: one of them tells it.
    "bronze/visits_dead_letter": "bronze/visits",
    "serving/daily_traffic": "serving/daily_traffic_by_country",
    "silver/visits_late": "silver/visits",
    "silver/visits_live": "silver/visits_live_state",
    "silver/visits_live_dead_letter": "silver/visits_live_state",
    "silver/visits_live_late": "silver/visits_live_state",
}


def test_every_asset_is_watched_or_excused_by_name() -> None:
    """Checks for what has ended, the alerts for what hangs: of each asset that a location can materialise."""
    graphs = [location.resolve_asset_graph() for location in load_locations()]
    assets = {key.to_user_string() for graph in graphs for key in graph.materializable_asset_keys}
    timed = {k.asset_key.to_user_string() for graph in graphs for k in graph.asset_check_keys if k.name == NAME}
    assert assets - timed == NOT_WATCHED.keys() | TOLD_BY.keys()
    assert timed == set(alerting.promises), "what hangs is told of the same assets"
    for told, by in TOLD_BY.items():
        steps = [
            {s.key.to_user_string() for s in d.specs} for graph in graphs for d in graph.assets_defs if not d.can_subset
        ]
        assert by in timed
        assert any({told, by} <= step for step in steps), f"{told} can be written without {by}"


def test_an_asset_without_a_promise_has_one_verdict_for_a_run_and_a_limit_by_its_own_history(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, minutes: Lasts
) -> None:
    """Three quick runs over ten days each, then a slow one: a warning. What hangs is measured by the same history."""
    monkeypatch.setattr("de_checks.sla.duration.LEAST_RUNS", 3)
    monkeypatch.setattr("de_checks.sla.duration.FLOOR", MINUTE)
    world = World(instance, make=lambda asset, _sla: step_duration_check(asset))
    assert limit_of(instance, "gold/sales", None) is None, "of what never ran nobody knows"
    for _ in range(3):
        (found,) = world.run("2026-01-01", "2026-01-10")
        assert (found.passed, told(found)["sla/partitions"]) == (True, 10)
    usual = limit_of(instance, "gold/sales", None)
    assert usual is not None
    assert (usual[0] < 600, usual[1]) == (True, False)
    world.work = [minutes(15)]
    (slow,) = world.run("2026-01-01")
    assert (slow.passed, slow.severity) == (False, dg.AssetCheckSeverity.WARN)
    (accepted,) = [world.judge_again("2026-01-01", **{"de/duration_accepted": "twice the shops"})]
    assert (accepted.passed, told(accepted)["sla/run"]) == (True, told(slow)["sla/run"])
    assert missing_partitions(instance, datetime.now(UTC), {"gold/sales": None}, {}) == [], "nothing is promised"


def test_a_promise_is_judged_by_partition_and_an_output_without_one_is_told_by_its_neighbour() -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("left"), dg.AssetSpec("right")])
    def both() -> tuple[None, None]: ...

    @dg.multi_asset(specs=[dg.AssetSpec("one"), dg.AssetSpec("other")], can_subset=True)
    def either() -> tuple[None, None]: ...

    assert watched([both, either, dg.AssetSpec("outside")]) == {"right": None, "one": None, "other": None}
    checked = {key.asset_key.to_user_string() for check in sla_checks([both, either]) for key in check.check_keys}
    assert checked == {"right", "one", "other"}
