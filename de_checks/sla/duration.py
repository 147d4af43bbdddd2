"""Did the step take longer than it promises, or than it usually takes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset, check_per_key
from de_checks.freshness.clock import duration
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.sla.attempts import Attempt, attempts, of_asset
from de_checks.subject import Subject
from de_resources.compat.checks import AssetCheckExecutionRecordStatus
from de_resources.contract.sla import Sla
from de_resources.delta.write.stream import BATCH_P95
from de_resources.lag import nearest_rank

NAME = "takes_no_longer_than_usual"
ACCEPT_TAG = "de/duration_accepted"
"""Run tag with the reason for which a person takes the duration for usual from now on."""

SECONDS, RUN, BATCH = "sla/seconds", "sla/run", "sla/batch_p95_seconds"
LEAST_RUNS, RUNS_KEPT = 20, 100
"""A 95th percentile of fewer than twenty runs is their maximum."""
SLACK, FLOOR = 1.5, timedelta(seconds=10)
"""One run in twenty lies above the percentile by its definition: news is what lies well above it."""
_READ = 400


def duration_check(asset: Subject, sla: Sla | None = None, *, name: str = NAME) -> dg.AssetChecksDefinition:
    """A check, per partition key, of how long the asset's own step took, from the start of its last attempt.

    Longer than `sla.takes_at_most` is an error. More than half above the 95th percentile of the last runs that this check
    has accepted, and at least ten seconds, is a warning: a slow run is thus never the measure of the next. With fewer than
    twenty accepted runs it passes and says so. A step over many partitions is judged by its time per partition. What a
    stream tells of its micro-batches is judged in the same way, by their own 95th percentile.

    When work did become slower for good, a person says so once: re-execute the check with the run tag
    `de/duration_accepted` and the reason. A rerun of the check alone judges the same attempt. Metadata: `sla/seconds` per
    partition, `sla/step_seconds`, `sla/partitions`, `sla/attempt`, `sla/waited_seconds` between the request of the run and the
    step's start, and `sla/usual_seconds` and `sla/promised_seconds` where there are such.
    """

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        accepted = accepted_before(run.instance, run.check.key)
        steps: dict[str, tuple[Attempt | None, float]] = {}
        verdicts = {}
        for key, current in materialized.items():
            if current.run_id not in steps:
                steps[current.run_id] = _step(run.instance, run.asset.key, current.run_id)
            attempt, requested = steps[current.run_id]
            batch = current.metadata.get(BATCH_P95)
            told = _told(attempt, requested, run.asset.key, current.run_id, batch)
            history = [each for each in accepted if each.get(RUN) != current.run_id]
            verdicts[key] = judge_duration(told, sla, history).accepted_for(run.tags.get(ACCEPT_TAG))
        return verdicts

    promised = f", and in at most {duration(sla.takes_at_most.total_seconds())}" if sla and sla.takes_at_most else ""
    return check_per_key(
        asset,
        name,
        judge,
        description=f"The step ran no longer than it usually does{promised}: measured from its own start.",
        patterns=["sla_misses_detector"],
    )


def step_duration_check(asset: Subject, *, name: str = NAME) -> dg.AssetChecksDefinition:
    """A check of how long the asset's last step took, for an asset that promises nothing: by its own history alone.

    As `duration_check`, with one verdict on the step, whatever it wrote: a verdict for each partition is an event for each, and
    a run over a month of hours would pay more for the verdicts than they say. The run's own step is judged; where a person
    executes the check alone, that of the last materialisation.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        last = run.instance.get_latest_materialization_event(run.asset.key)
        writer = run.context.run.run_id
        attempt, requested = _step(run.instance, run.asset.key, writer)
        if attempt is None and last is not None:
            writer = last.run_id
            attempt, requested = _step(run.instance, run.asset.key, writer)
        written = last.asset_materialization if last is not None and last.run_id == writer else None
        batch = written.metadata.get(BATCH_P95) if written else None
        told = _told(attempt, requested, run.asset.key, writer, batch.value if batch else None)
        history = [each for each in accepted_before(run.instance, run.check.key) if each.get(RUN) != writer]
        verdict = judge_duration(told, None, history).accepted_for(run.tags.get(ACCEPT_TAG))
        return dg.AssetCheckResult(
            passed=verdict.passed,
            severity=verdict.severity,
            description=verdict.description,
            metadata=verdict.metadata,
        )

    return check_of_asset(
        asset,
        name,
        judge,
        description="The step ran no longer than it usually does: measured from its own start.",
        patterns=["sla_misses_detector"],
    )


def judge_duration(told: Mapping[str, Any], sla: Sla | None, accepted: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict on one step. `accepted`: metadata of good verdicts before it, one for each run."""
    seconds = told.get(SECONDS)
    if seconds is None:
        return Verdict(True, "Not known: no step is recorded for it, or the clock was set back while it ran.")
    told = dict(told)
    if sla and sla.takes_at_most:
        told["sla/promised_seconds"] = sla.takes_at_most.total_seconds()
        if seconds > sla.takes_at_most.total_seconds():
            return Verdict(
                False,
                f"It took {duration(seconds)} per partition, and promises {duration(told['sla/promised_seconds'])}.",
                told,
            )
    unusual = []
    for figure, limit_name, what in (
        (SECONDS, "sla/usual_seconds", "It took"),
        (BATCH, "sla/usual_batch_seconds", "Its micro-batches took"),
    ):
        usual = usual_limit([each[figure] for each in accepted if each.get(figure) is not None])
        if usual is None or told.get(figure) is None:
            continue
        told[limit_name] = usual
        if told[figure] > usual:
            unusual.append(f"{what} {duration(told[figure])}, usually at most {duration(usual)}.")
    if unusual:
        return Verdict(False, " ".join(unusual), told, dg.AssetCheckSeverity.WARN)
    if "sla/usual_seconds" not in told:
        return Verdict(
            True, f"It took {duration(seconds)}. Still learning: {len(accepted)} of {LEAST_RUNS} accepted runs.", told
        )
    return Verdict(True, f"It took {duration(seconds)}, usually at most {duration(told['sla/usual_seconds'])}.", told)


def usual_limit(seconds: Sequence[float]) -> float | None:
    """What a step may take by its own history; None where there is too little of it."""
    if len(seconds) < LEAST_RUNS:
        return None
    usual = nearest_rank(sorted(seconds), 0.95)
    return max(usual * SLACK, usual + FLOOR.total_seconds())


def accepted_before(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> list[Mapping[str, Any]]:
    """Metadata of the newest good verdicts of whatever partition, one for each run: a run over a month is one."""
    records = instance.event_log_storage.get_asset_check_execution_history(
        check, limit=_READ, status={AssetCheckExecutionRecordStatus.SUCCEEDED}
    )
    found: dict[str, Mapping[str, Any]] = {}
    for record in records:
        if record.evaluation is not None and (run := record.evaluation.metadata.get(RUN)) is not None:
            found.setdefault(str(run.value), {k: v.value for k, v in record.evaluation.metadata.items()})
    return list(found.values())[:RUNS_KEPT]


def _step(instance: dg.DagsterInstance, asset: dg.AssetKey, run_id: str) -> tuple[Attempt | None, float]:
    record = instance.get_run_record_by_id(run_id)
    requested = record.create_timestamp.timestamp() if record else 0.0
    return of_asset(attempts(instance, run_id), asset), requested


def _told(attempt: Attempt | None, requested: float, asset: dg.AssetKey, run_id: str, batch: object) -> dict[str, Any]:
    if attempt is None or attempt.started is None or (seconds := attempt.seconds) is None:
        return {}
    partitions = max(attempt.written[asset.to_user_string()], 1)
    return {
        SECONDS: seconds / partitions,
        RUN: run_id,
        "sla/step_seconds": seconds,
        "sla/partitions": partitions,
        "sla/attempt": attempt.number,
        "sla/waited_seconds": max(attempt.started.timestamp() - requested, 0.0) if requested else 0.0,
        **({BATCH: float(batch) / 1000} if isinstance(batch, int | float) else {}),
    }
