"""One sensor that turns failed checks and failed runs, of all code locations, into alerts.

A run is judged when it has ended, whatever its end: checks fail in successful runs too. The cursor is the storage id of
the last end of a run whose alerts the sink has all accepted. Ids only grow, so a restart repeats nothing; a sink that
fails keeps the cursor where it is, so nothing is lost. Only a crash between the sink's acceptance and Dagster's record
of the tick repeats an alert, under the same id.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg

from de_assets.automation.alerting.alert import PARTITIONS_SHOWN, Alert, printable, redacted
from de_assets.automation.alerting.sinks import AlertSink
from de_resources.errors import PlatformError

RUNS_PER_TICK = 50
FIRST_LOOK_BACK_SECONDS = 24 * 3600
"""How old news may be for a sensor that starts for the first time."""

_ENDS: tuple[dg.DagsterEventType, ...] = (
    dg.DagsterEventType.RUN_SUCCESS,
    dg.DagsterEventType.RUN_FAILURE,
    dg.DagsterEventType.RUN_CANCELED,
)


@dg.sensor(
    name="alerts",
    description="Tells the alert sink of failed checks and failed runs, once each.",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alerts(context: dg.SensorEvaluationContext, alert_sink: AlertSink) -> dg.SensorResult:
    """Deliver the alerts of the runs that ended since the last tick, in that order; at most `RUNS_PER_TICK` runs."""
    cursor, delivered = context.cursor, 0
    for end in ended_runs(context.instance, cursor):
        try:
            for alert in alerts_of(context.instance, end):
                alert_sink.deliver(alert)
                delivered += 1
        except PlatformError as error:
            if cursor == context.cursor:
                raise
            # What was delivered counts; the next tick begins with this run and fails visibly if the sink still does.
            context.log.error("Stopped at run %s: %s", end.run_id, error)
            break
        cursor = str(end.storage_id)
    return dg.SensorResult(
        cursor=cursor, skip_reason=f"Alerts delivered: {delivered}." if delivered else "No bad news."
    )


def ended_runs(instance: dg.DagsterInstance, cursor: str | None) -> list[dg.EventLogRecord]:
    """The next ends of runs after the cursor, in the order in which they were stored."""
    after_time = time.time() - FIRST_LOOK_BACK_SECONDS if cursor is None else None
    records: list[dg.EventLogRecord] = []
    for event_type in _ENDS:
        wanted = dg.RunStatusChangeRecordsFilter(
            event_type,  # type: ignore[arg-type]
            after_storage_id=int(cursor) if cursor else None,
            after_timestamp=after_time,
        )
        records += instance.fetch_run_status_changes(wanted, limit=RUNS_PER_TICK, ascending=True).records
    return sorted(records, key=lambda record: record.storage_id)[:RUNS_PER_TICK]


def alerts_of(instance: dg.DagsterInstance, end: dg.EventLogRecord) -> Iterator[Alert]:
    """The alerts of one ended run: one per failed check with all its partitions, and one if the run failed."""
    run = instance.get_run_by_id(end.run_id)
    if run is None:  # deleted meanwhile, and its events with it
        return
    keys = _partitions(run)
    yield from _failed_checks(instance, run, end, keys)
    if end.event_log_entry.get_dagster_event().event_type == dg.DagsterEventType.RUN_FAILURE:
        yield _failed_run(run, end, keys, _planned_assets(instance, run))


def _failed_checks(
    instance: dg.DagsterInstance, run: dg.DagsterRun, end: dg.EventLogRecord, keys: tuple[str, ...]
) -> Iterator[Alert]:
    failed: dict[tuple[dg.AssetCheckKey, str], list[str]] = defaultdict(list)
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        evaluation = entry.get_dagster_event().asset_check_evaluation_data
        if not evaluation.passed:
            judged = (evaluation.partition,) if evaluation.partition else keys
            failed[evaluation.asset_check_key, evaluation.severity.value].extend(judged)
    for (check, severity), found in failed.items():
        partitions = sorted(set(found))
        yield Alert(
            id=_id(run.run_id, "check_failed", check.to_user_string(), severity),
            kind="check_failed",
            severity=severity,
            run_id=run.run_id,
            time=_time(end),
            assets=(printable(check.asset_key.to_user_string()),),
            check=printable(check.name),
            partitions=tuple(printable(key) for key in partitions[:PARTITIONS_SHOWN]),
            partition_count=len(partitions),
        )


def _failed_run(run: dg.DagsterRun, end: dg.EventLogRecord, keys: tuple[str, ...], assets: tuple[str, ...]) -> Alert:
    failure = end.event_log_entry.get_dagster_event().job_failure_data
    step = failure.first_step_failure_event
    error = step.step_failure_data.error if step else failure.error
    while error is not None and error.cause is not None:
        error = error.cause  # Dagster wraps the error of the asset in its own
    return Alert(
        id=_id(run.run_id, "run_failed"),
        kind="run_failed",
        # A crashed worker that the instance starts again is no news to wake up for.
        severity="WARN" if run.tags.get("dagster/will_retry") == "true" else "ERROR",
        run_id=run.run_id,
        time=_time(end),
        assets=assets,
        partitions=keys,
        partition_count=len(keys),
        step=printable(step.step_key) if step and step.step_key else None,
        error=printable(error.cls_name) if error and error.cls_name else None,
        message=redacted(_without_class(error.message, error.cls_name)) if error else None,
    )


def _planned_assets(instance: dg.DagsterInstance, run: dg.DagsterRun) -> tuple[str, ...]:
    """What the run meant to write. The run itself names it only when it was launched for a part of its job."""
    planned = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    keys = {entry.get_dagster_event().asset_key for entry in planned}
    return tuple(sorted(printable(key.to_user_string()) for key in keys if key is not None))


def _without_class(message: str, cls_name: str | None) -> str:
    head, _, rest = message.partition(": ")
    return rest if cls_name and head.split(".")[-1] == cls_name else message


def _partitions(run: dg.DagsterRun) -> tuple[str, ...]:
    single = run.tags.get("dagster/partition")
    if single is not None:
        return (printable(single),)
    first, last = (run.tags.get(f"dagster/asset_partition_range_{end}") for end in ("start", "end"))
    return (f"{printable(first)}...{printable(last)}",) if first and last else ()


def _time(end: dg.EventLogRecord) -> str:
    return datetime.fromtimestamp(end.timestamp, UTC).isoformat(timespec="seconds")


def _id(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
