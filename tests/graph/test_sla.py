"""Durations and deadlines in real runs, on a real event log: retries, ranges, the queue, and a step that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from instances import silent_instance

from de_checks.sla import deadline_check, duration_check, overdue_steps
from de_checks.sla.duration import LEAST_RUNS
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
        check = duration_check(self.asset, self.sla)
        span = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last or first}
        done = dg.materialize([self.asset, check], instance=self.instance, tags={**span, **tags})
        return done.get_asset_check_evaluations()

    def judge_again(self, day: str, **tags: str) -> dg.AssetCheckEvaluation:
        """The check alone, as a person executes it."""
        check = duration_check(self.asset, self.sla)
        everything = dg.Definitions([self.asset], asset_checks=[check]).resolve_implicit_global_asset_job_def()
        alone = everything.get_subset(asset_selection=set(), asset_check_selection=set(check.check_keys))
        done = alone.execute_in_process(instance=self.instance, partition_key=day, tags=tags)
        (found,) = done.get_asset_check_evaluations()
        return found


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with silent_instance() as instance:
        yield instance


def told(evaluation: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


def fails() -> None:
    time.sleep(0.6)
    raise RuntimeError("once")


def test_a_retried_step_is_as_long_as_its_last_attempt(instance: dg.DagsterInstance) -> None:
    (found,) = World(instance, Sla(takes_at_most=timedelta(seconds=0.5)), [fails]).run("2026-01-01")
    assert found.passed, "the attempt that failed took longer"
    assert told(found)["sla/attempt"] == 2
    assert told(found)["sla/step_seconds"] < 0.5


def test_a_range_is_judged_by_its_time_per_partition(instance: dg.DagsterInstance) -> None:
    found = World(instance, Sla(takes_at_most=timedelta(seconds=0.4)), [lambda: time.sleep(0.8)]).run(
        "2026-01-01", "2026-01-10"
    )
    assert len(found) == 10
    assert all(each.passed for each in found)
    assert {told(each)["sla/partitions"] for each in found} == {10}
    assert told(found[0])["sla/step_seconds"] > 0.8 > 0.4 > told(found[0])["sla/seconds"]


def test_a_promise_that_is_broken_is_an_error(instance: dg.DagsterInstance) -> None:
    (found,) = World(instance, Sla(takes_at_most=timedelta(seconds=0.3)), [lambda: time.sleep(0.5)]).run("2026-01-01")
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)


@pytest.mark.red_check("takes_no_longer_than_usual")
def test_slow_runs_are_not_learnt_from_until_a_person_says_so(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("de_checks.sla.duration.LEAST_RUNS", 3)
    monkeypatch.setattr("de_checks.sla.duration.FLOOR", timedelta(seconds=0.3))
    world = World(instance)
    for day in (1, 2, 3):
        assert world.run(f"2026-01-0{day}")[0].passed
    slow = lambda: time.sleep(1.0)  # noqa: E731
    world.work = [slow, slow, slow]
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
        released.wait(60)

    run = threading.Thread(target=dg.materialize, args=([stuck],), kwargs={"instance": instance})
    run.start()
    assert begun.wait(60)
    promised = {"gold/stuck": Sla(takes_at_most=MINUTE)}
    now = datetime.now(UTC)
    young = overdue_steps(instance, now, promised)
    old = overdue_steps(instance, now + 2 * MINUTE, promised)
    of_three = overdue_steps(instance, now + 2 * MINUTE, promised, keys_of=lambda *_: 3)
    patient = overdue_steps(instance, now + 2 * MINUTE, {"gold/stuck": Sla(takes_at_most=5 * MINUTE)})
    set_back = overdue_steps(instance, now - timedelta(days=1), promised)
    unknown = overdue_steps(instance, now + 2 * MINUTE, {"gold/stuck": None})
    released.set()
    run.join(60)
    assert (young, of_three, patient, set_back, unknown) == ([], [], [], [], [])
    (found,) = old
    assert (found.assets, found.limit, found.is_promised) == (("gold/stuck",), 60, True)
    assert found.seconds == pytest.approx(120, abs=5)
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
