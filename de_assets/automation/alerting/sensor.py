"""One sensor that tells what is wrong: failed checks and runs of all code locations, steps that hang, partitions that do not
come, services that died.

Each tick brings the book of alerts up to date and hands every channel what it has not accepted yet. How far the runs were read
is kept in the book, in the transaction that changes the states: a restart or a crash repeats nothing and leaves nothing out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import cache

import dagster as dg

from de_assets.automation.alerting.alert import PARTITIONS_SHOWN, Alert
from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.alerting.runs import conditions_of
from de_assets.dataset import pattern_tags
from de_checks.freshness.clock import duration
from de_checks.sla import missing_partitions, overdue_steps
from de_checks.sla.attempts import Attempt, attempts
from de_checks.sla.missing import MissingPartitions
from de_checks.sla.running import OverdueStep
from de_resources.alerts.book import AlertCondition, OpenAlert

RUNS_PER_TICK = 50
FIRST_LOOK_BACK_SECONDS = 24 * 3600
"""How old news may be for a sensor that starts for the first time."""
_STEP, _DEADLINE = "step ", "deadline "

_ENDS: tuple[dg.DagsterEventType, ...] = (
    dg.DagsterEventType.RUN_SUCCESS,
    dg.DagsterEventType.RUN_FAILURE,
    dg.DagsterEventType.RUN_CANCELED,
)


@dg.sensor(
    name="alerts",
    description="Tells the channels of alerts what turned bad and what is good again: once each.",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=pattern_tags("sla_misses_detector"),
)
def alerts(context: dg.SensorEvaluationContext, alerting: dg.ResourceParam[Alerting]) -> dg.SensorResult:
    """Take in the runs that ended since the last tick, at most `RUNS_PER_TICK`, and look at what runs and serves now."""
    book, now = alerting.book, alerting.now()
    source = _source(context.instance)
    cursor, told = book.position(source) or context.cursor, 0
    for end in ended_runs(context.instance, cursor):
        cursor = str(end.storage_id)
        conditions = list(conditions_of(context.instance, end, book.open_alerts()))
        news, _ = alerting.tell(conditions, {source: cursor}, now)
        told += len(news)
    opened = book.open_alerts()
    late = overdue_steps(context.instance, now, alerting.promises, alerting.keys_of)
    absent = missing_partitions(context.instance, now, alerting.promises, alerting.assets)
    conditions = [
        *overdue(late, opened, now, running_attempts(context.instance)),
        *missing(absent, opened, now, alerting.is_there(context.instance)),
    ]
    news, failed = alerting.tell([*conditions, *alerting.health(now)], now=now)
    for channel, why in failed.items():
        context.log.error("The channel `%s` is behind: %s", channel, why)
    open_now = len(book.open_alerts())
    behind = f" Behind: {', '.join(failed)}." if failed else ""
    return dg.SensorResult(cursor=cursor, skip_reason=f"News: {told + len(news)}. Open: {open_now}.{behind}")


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


RunningAttempt = Callable[[str, str], str | None]
"""By run and step: which attempt of it is at work, by number; None where none is."""


def running_attempts(instance: dg.DagsterInstance) -> RunningAttempt:
    """Looks once for each run."""

    @cache
    def of_run(run_id: str) -> Mapping[str, Attempt]:
        run = instance.get_run_by_id(run_id)
        # A run that was killed leaves steps without an end.
        return {} if run is None or run.is_finished else attempts(instance, run_id)

    def running(run_id: str, step: str) -> str | None:
        attempt = of_run(run_id).get(step)
        return str(attempt.number) if attempt and attempt.runs else None

    return running


def overdue(
    late: Collection[OverdueStep], opened: Collection[OpenAlert], now: datetime, running: RunningAttempt
) -> Iterator[AlertCondition]:
    """Steps that run too long, and those that did and have ended; the parts of an alert are a step's attempts.

    Only its end is a recovery. A clock that was set back, or a promise that was changed, makes a step that hangs no shorter.
    """
    for step in late:
        attempt = running(step.run_id, step.step)
        if attempt is None:
            continue
        measure = "promised" if step.is_promised else "usual at most"
        alert = Alert(
            kind="step_overdue",
            severity="ERROR" if step.is_promised else "WARN",
            run_id=step.run_id,
            time=now.isoformat(timespec="seconds"),
            assets=step.assets,
            step=step.step,
            message=f"Runs for {duration(step.seconds)}, {measure} are {duration(step.limit)}",
        )
        subject = f"{_STEP}{step.run_id} {step.step}"
        yield AlertCondition(subject, alert.body(), frozenset({attempt}), severity=alert.severity)
    for each in opened:
        if each.subject.startswith(_STEP):
            run_id, _, name = each.subject.removeprefix(_STEP).partition(" ")
            ended = frozenset(each.members) - {running(run_id, name)}
            yield AlertCondition(each.subject, each.said, good=ended)


def missing(
    absent: Collection[MissingPartitions],
    opened: Collection[OpenAlert],
    now: datetime,
    is_there: Callable[[str, str], bool],
) -> Iterator[AlertCondition]:
    """Partitions that are not there at their deadline, one alert for each dataset; and those that have come since."""
    found = {f"{_DEADLINE}{each.asset}": each for each in absent}
    for subject, each in found.items():
        yield AlertCondition(subject, _not_there(each, now).body(), frozenset(each.keys))
    for alert in opened:
        if alert.subject.startswith(_DEADLINE):
            asset = alert.subject.removeprefix(_DEADLINE)
            come = frozenset(key for key in alert.members if is_there(asset, key))
            yield AlertCondition(alert.subject, alert.said, good=come)


def _not_there(missing: MissingPartitions, now: datetime) -> Alert:
    ours = len(missing.keys) - len(missing.waiting)
    parts = [
        f"{len(missing.waiting):,} of which the input is not there either (event time)" if missing.waiting else "",
        f"{ours:,} that could have been computed (processing time)" if ours else "",
    ]
    return Alert(
        kind="partition_missing",
        severity="ERROR",
        run_id=None,
        time=now.isoformat(timespec="seconds"),
        assets=(missing.asset,),
        partitions=missing.keys[:PARTITIONS_SHOWN],
        partition_count=len(missing.keys),
        message=f"Not there at the deadline: {', '.join(filter(None, parts))}",
    )


def _source(instance: dg.DagsterInstance) -> str:
    """By the identity of the storage, where it has one: the numbers of another instance's events begin again."""
    identity = getattr(instance.run_storage, "get_run_storage_id", str)()
    return f"runs of {identity}"
