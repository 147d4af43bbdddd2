"""How long, since when, and whose fault: from events and times that are written down here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from de_checks.sla.attempts import Attempt, StepEvent, from_events
from de_checks.sla.deadline import PartitionTimes, judge_times
from de_checks.sla.duration import judge_duration, usual_limit
from de_resources.contract.sla import Sla, UnusablePromise

pytestmark = pytest.mark.pattern("sla_misses_detector")

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
T = dg.DagsterEventType
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def happened(*events: tuple[T, float]) -> Attempt:
    asset = "gold/sales"
    told = [StepEvent(kind, "sales", NOON + timedelta(seconds=at), asset) for kind, at in events]
    return from_events(told)["sales"]


def test_a_step_is_measured_from_its_own_start() -> None:
    """The run was launched long before: no event of the step says so, and none counts."""
    attempt = happened((T.STEP_START, 900), (T.ASSET_MATERIALIZATION, 920), (T.STEP_SUCCESS, 921))
    assert (attempt.number, attempt.seconds) == (1, 21)


def test_a_retried_step_is_measured_from_its_last_attempt() -> None:
    attempt = happened((T.STEP_START, 0), (T.STEP_UP_FOR_RETRY, 600), (T.STEP_RESTARTED, 660), (T.STEP_SUCCESS, 690))
    assert (attempt.number, attempt.seconds) == (2, 30)


def test_partitions_of_an_attempt_that_failed_do_not_count() -> None:
    attempt = happened(
        (T.STEP_START, 0),
        (T.ASSET_MATERIALIZATION, 5),
        (T.STEP_UP_FOR_RETRY, 6),
        (T.STEP_RESTARTED, 10),
        (T.ASSET_MATERIALIZATION, 15),
        (T.ASSET_MATERIALIZATION, 16),
        (T.STEP_SUCCESS, 20),
    )
    assert attempt.written == {"gold/sales": 2}


def test_a_step_that_has_not_ended_runs_and_has_no_duration() -> None:
    attempt = happened((T.STEP_START, 0), (T.STEP_UP_FOR_RETRY, 6), (T.STEP_RESTARTED, 10))
    assert attempt.runs
    assert attempt.seconds is None


def test_a_clock_that_was_set_back_gives_no_negative_duration() -> None:
    assert happened((T.STEP_START, 100), (T.STEP_SUCCESS, 40)).seconds is None


def took(seconds: float, **more: float) -> dict[str, Any]:
    return {"sla/seconds": seconds, "sla/run": "r", **more}


def history(*seconds: float, **more: float) -> list[Mapping[str, Any]]:
    return [took(each, **more) for each in seconds]


@pytest.mark.parametrize("count", [0, 1, 19])
def test_fewer_than_twenty_accepted_runs_teach_nothing(count: int) -> None:
    verdict = judge_duration(took(9_999), None, history(*[10] * count))
    assert verdict.passed
    assert f"{count} of 20" in verdict.description


def test_the_limit_is_the_percentile_and_a_half_or_ten_seconds() -> None:
    """Of 20 values the 95th percentile by nearest rank is the 19th; the outlier teaches nothing."""
    assert usual_limit([*range(81, 100), 5_000.0]) == 99 * 1.5
    assert usual_limit([1.0] * 20) == 11


@pytest.mark.parametrize(("seconds", "passed"), [(148, True), (149, False)])
def test_well_above_its_own_percentile_is_a_warning(seconds: float, passed: bool) -> None:
    verdict = judge_duration(took(seconds), None, history(*range(80, 99), 99, 99))
    assert verdict.passed is passed
    assert passed or verdict.severity == WARN
    assert verdict.metadata["sla/usual_seconds"] == 99 * 1.5


def test_what_is_promised_is_an_error_whatever_is_usual() -> None:
    promise = Sla(takes_at_most=timedelta(minutes=5))
    verdict = judge_duration(took(301), promise, history(*[300] * 40))
    assert (verdict.passed, verdict.severity) == (False, ERROR)
    assert verdict.metadata["sla/promised_seconds"] == 300
    assert judge_duration(took(299), promise, []).passed


def test_micro_batches_have_a_percentile_of_their_own() -> None:
    """The run was short, for it had few batches; each of them was slow."""
    usual = history(*[100] * 20, **{"sla/batch_p95_seconds": 2.0})
    verdict = judge_duration(took(60, **{"sla/batch_p95_seconds": 30.0}), None, usual)
    assert (verdict.passed, verdict.severity) == (False, WARN)
    assert verdict.description == "Its micro-batches took 30 s, usually at most 12 s."


def test_a_step_that_nobody_recorded_is_not_judged() -> None:
    assert judge_duration({}, Sla(timedelta(minutes=1)), []).passed


SLA = Sla(ready_within=timedelta(minutes=90), input_within=timedelta(minutes=60))


def way(arrived: float, started: float, ready: float) -> PartitionTimes:
    """Minutes after the end of the window."""
    return PartitionTimes(NOON, *(NOON + timedelta(minutes=each) for each in (arrived, started, ready)))


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        (way(50, 51, 89), None),
        (way(-30, 60, 89), None),  # more than ours, but in time: nobody waited
        (way(75, 76, 95), "source"),
        (way(20, 21, 95), "platform"),
        (way(20, 90, 95), "platform"),  # the queue's wait is ours
        (way(-300, -290, 95), "platform"),  # inputs that were early give no time away
        (way(70, 71, 120), "source and platform"),
    ],
)
def test_whose_fault_a_miss_is(times: PartitionTimes, fault: str | None) -> None:
    verdict = judge_times(times, SLA)
    assert verdict.passed is (fault is None)
    assert verdict.metadata.get("sla/fault") == fault


def test_the_wait_is_told_apart_from_the_work() -> None:
    verdict = judge_times(way(20, 90, 95), SLA)
    assert verdict.metadata["sla/waited_seconds"] == 70 * 60
    assert "of which 1 h 10 min waiting" in verdict.description


@pytest.mark.parametrize(
    "said",
    [{"takes": 5}, {"takes_at_most": 0}, {"ready_within": 30, "input_within": 30}],
    ids=["unknown", "no time", "nothing left"],
)
def test_a_promise_that_cannot_be_kept_is_refused(said: dict[str, float]) -> None:
    with pytest.raises(UnusablePromise, match=r"gold\.sales"):
        Sla.of("gold.sales", said)


def test_no_promise_is_none() -> None:
    assert Sla.of("gold.sales", None) is None
