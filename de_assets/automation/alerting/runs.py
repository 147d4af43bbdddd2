"""What ended runs say: which checks and assets are bad now, and which are good again.

A check is a state by partition: it is bad from its first bad verdict to the good one on the last of its bad partitions. A
failed run is bad until each asset that it did not write was written, by whatever run, for the same partitions.

Runs that fail because a service does not answer are one alert, that of the service, however many they are and however long it
is away. It is over when the service answers and what they missed is written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import UTC, datetime

import dagster as dg

from de_assets.automation.alerting.alert import PARTITIONS_SHOWN, Alert, printable, redacted
from de_resources.alerts.book import AlertCondition, OpenAlert
from de_resources.compat.queueing import WILL_RETRY_TAG

CHECK, RUN, SERVICE = "check ", "run ", "service "
"""How the subjects of bad checks, of failed runs, and of services begin."""
_AWAY = re.compile(r"^(?:[\w.]+\.)?(?:ServiceUnavailable|SessionLost): (?P<service>[\w-]+) at ")
"""What Dagster keeps of `ServiceUnavailable` and what is one: its text alone."""
_ENGINE_AWAY = {"EngineUnreachable", "EngineLost"}


def conditions_of(
    instance: dg.DagsterInstance, end: dg.EventLogRecord, opened: Collection[OpenAlert]
) -> Iterator[AlertCondition]:
    """What one ended run changes, in the order in which it has to be taken in."""
    run = instance.get_run_by_id(end.run_id)
    if run is None:  # deleted meanwhile, and its events with it
        return
    keys = _partitions(run)
    yield from _checks(instance, run, end, keys)
    written, planned = _written(instance, run), _planned_assets(instance, run)
    if end.event_log_entry.get_dagster_event().event_type == dg.DagsterEventType.RUN_SUCCESS:
        written |= {_part(run.job_name, "")} | {_part(asset, key) for asset in planned for key in keys or ("",)}
    for alert in opened:
        if alert.subject.startswith((RUN, SERVICE)) and (mended := written & set(alert.members)):
            yield AlertCondition(alert.subject, alert.said, good=frozenset(mended))
    if end.event_log_entry.get_dagster_event().event_type == dg.DagsterEventType.RUN_FAILURE:
        yield _failed_run(run, end, keys, planned, written)


def _checks(
    instance: dg.DagsterInstance, run: dg.DagsterRun, end: dg.EventLogRecord, keys: tuple[str, ...]
) -> Iterator[AlertCondition]:
    """One condition per check, with the last verdict on each partition."""
    verdicts: dict[dg.AssetCheckKey, dict[str, dg.AssetCheckEvaluation]] = defaultdict(dict)
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        evaluation = entry.get_dagster_event().asset_check_evaluation_data
        for key in (evaluation.partition,) if evaluation.partition else keys or ("",):
            verdicts[evaluation.asset_check_key][printable(key)] = evaluation
    for check, found in verdicts.items():
        bad = {key: each.severity.value for key, each in found.items() if not each.passed}
        partitions = sorted(key for key in bad if key)
        severity = "ERROR" if "ERROR" in bad.values() else "WARN"
        alert = Alert(
            kind="check_failed",
            severity=severity,
            run_id=run.run_id,
            time=_time(end),
            assets=(printable(check.asset_key.to_user_string()),),
            check=printable(check.name),
            partitions=tuple(partitions[:PARTITIONS_SHOWN]),
            partition_count=len(partitions),
        )
        subject = f"{CHECK}{printable(check.asset_key.to_user_string())}:{printable(check.name)}"
        good = frozenset(found.keys() - bad.keys())
        yield AlertCondition(subject, alert.body(), frozenset(bad), good, severity)


def _failed_run(
    run: dg.DagsterRun, end: dg.EventLogRecord, keys: tuple[str, ...], planned: tuple[str, ...], written: set[str]
) -> AlertCondition:
    failure = end.event_log_entry.get_dagster_event().job_failure_data
    step = failure.first_step_failure_event
    error = step.step_failure_data.error if step else failure.error
    while error is not None and error.cause is not None:
        error = error.cause  # Dagster wraps the error of the asset in its own
    away = _service_away(error.cls_name, error.message) if error else None
    retried = run.tags.get(WILL_RETRY_TAG) == "true"
    alert = Alert(
        kind="service_failed" if away else "run_failed",
        # A crashed worker that the instance starts again is no news to wake up for.
        severity="WARN" if retried and not away else "ERROR",
        run_id=run.run_id,
        time=_time(end),
        assets=planned,
        partitions=keys,
        partition_count=len(keys),
        step=printable(step.step_key) if step and step.step_key else None,
        error=printable(error.cls_name) if error and error.cls_name else None,
        message=redacted(_without_class(error.message, error.cls_name)) if error else None,
    )
    missing = {_part(asset, key) for asset in planned for key in keys or ("",)} - written
    # A run that wrote everything and failed afterwards, in a check, is one that has to succeed.
    bad = frozenset(missing or {_part(run.job_name, "")})
    subject = f"{SERVICE}{away}" if away else f"{RUN}{', '.join(planned) or printable(run.job_name)}"
    return AlertCondition(subject, alert.body(), bad, severity=alert.severity)


def _service_away(error: str | None, message: str) -> str | None:
    """The service that did not answer, where that is why a run failed."""
    if error in _ENGINE_AWAY:
        return "spark_connect"
    found = _AWAY.match(message)
    return found["service"] if found else None


def _written(instance: dg.DagsterInstance, run: dg.DagsterRun) -> set[str]:
    found = set()
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        event = entry.get_dagster_event()
        if event.asset_key is not None:
            found.add(_part(printable(event.asset_key.to_user_string()), printable(event.partition or "")))
    return found


def _part(asset: str, key: str) -> str:
    return f"{asset}|{key}"


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
