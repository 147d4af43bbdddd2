"""The job `maintenance`: every table of the lake compacted and vacuumed, with its figures on the asset's own page.

Pattern: Compactor. The tables are those that the assets declare. Each gets an observation whose numbers the UI plots;
what could not be maintained is named with its reason while the others go on. A rerun finds nothing to do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from deltalake.exceptions import DeltaError
from pydantic import Field

from de_assets.automation.maintenance.lake_tables import LakeTables, stamp_for
from de_assets.automation.maintenance.versions import retention_op
from de_assets.automation.nightly import job_of, nightly
from de_resources.delta.log.retention import OVERRIDE, agreed, hours
from de_resources.delta.log.versions import ranges
from de_resources.delta.maintenance import EmptyTable, Report, maintain
from de_resources.delta.maintenance.tombstones import Forgetting, forget
from de_resources.delta.metadata import markdown_table
from de_resources.delta.table import TableMissing
from de_resources.delta.write.lock import TableBusy
from de_resources.delta.write.refusals import ConcurrentWrite
from de_resources.engine.errors import ENGINE_ERRORS, causes
from de_resources.errors import PermanentError, PlatformError
from de_resources.lake import Lake

JOB = "maintenance"


_FAILURES: tuple[type[Exception], ...] = (PlatformError, *ENGINE_ERRORS)


class MaintenanceFailed(PermanentError):
    """Tables on which the engine failed; all others were maintained."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)
        told = "; ".join(f"`{name}`: {reason}" for name, reason in failures.items())
        super().__init__(f"{len(failures)} table(s) could not be maintained, all others were. {told}")


class MaintenanceConfig(dg.Config):
    """What to maintain, and how long removed files stay."""

    tables: list[str] = Field(default=[], description="Asset keys such as `bronze/devices`; none: all tables.")
    retention_hours: float | None = Field(
        default=None, description="How long removed files stay; default: each table's own promise, 7 days if unset."
    )
    retention_override: str = Field(default="", description=f'To keep files for less than promised: "{OVERRIDE}".')
    query_runs: int = Field(default=3, ge=0, description="Runs of the query on a sample of each version; 0: none.")
    lock_seconds: float = Field(default=60, ge=0, description="How long to wait for writers of a table.")

    @property
    def retention(self) -> timedelta | None:
        """The retention that was asked for."""
        return None if self.retention_hours is None else timedelta(hours=self.retention_hours)


@dataclass(frozen=True)
class MaintenanceOutcome:
    """What became of one table: `state` is maintained, in order, missing, vanished, empty, busy, foreign, versions, failed."""

    table: str
    state: str
    report: Report | None = None
    reason: str = ""
    forgotten: int = 0
    """Deleted rows that were kept for as long as their asset says."""


def maintenance_job(
    assets: Sequence[dg.AssetsDefinition | dg.AssetSpec],
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    then: Sequence[dg.OpDefinition] = (),
) -> dg.JobDefinition:
    """The job over the Delta tables among `assets`. `clock` says how old deleted rows are; `then` runs when all is done."""
    tables = LakeTables.of(assets)

    @dg.op(out=dg.Out(dg.Nothing), description="Compacts and vacuums the tables one after another.")
    def maintain_tables(context: dg.OpExecutionContext, config: MaintenanceConfig, lake: Lake) -> dg.Output[None]:
        chosen = {name: tables.named(name) for name in config.tables} or tables.own
        _refuse_too_short(chosen, config, lake)
        outcomes = []
        for name, spec in chosen.items():
            outcome = _maintained(context, config, lake, name, spec, clock())
            context.log.info("%s: %s. %s", name, outcome.state, outcome.reason)
            context.log_event(dg.AssetObservation(asset_key=spec.key, metadata=observed(outcome)))
            outcomes.append(outcome)
        if not config.tables:
            outcomes += [MaintenanceOutcome(t, "foreign", reason="kept by another environment") for t in tables.foreign]
            outcomes += [
                MaintenanceOutcome(t, "versions", reason="immutable; see `retain_versions`") for t in tables.versioned
            ]
        failures = {o.table: o.reason for o in outcomes if o.state == "failed"}
        if failures:
            raise MaintenanceFailed(failures)
        return dg.Output(None, metadata=_summary(outcomes))

    retain_versions = retention_op(tables)

    return job_of(
        JOB,
        [maintain_tables, retain_versions],
        then=then,
        description="Compacts and vacuums the lake's tables, and removes versions that nobody can go back to.",
        patterns=["compactor", "proxy"],
    )


# Hours land at full hours and devices at four: half past two is between the loads.
schedule = nightly(
    JOB,
    "30 2 * * *",
    description="Compacts and vacuums the lake's tables at night, between the loads.",
    patterns=["compactor"],
)


def observed(outcome: MaintenanceOutcome) -> dict[str, Any]:
    """The metadata of a table's observation: plain numbers, so that the UI plots them from run to run."""
    report = outcome.report
    if report is None:
        return {"maintenance/state": outcome.state, "maintenance/reason": outcome.reason}
    figures: dict[str, Any] = {
        "maintenance/state": outcome.state,
        "files/live_before": report.live_before.files,
        "files/live_after": report.live_after.files,
        "files/stored_before": report.stored_before.files,
        "files/stored_after": report.stored_after.files,
        "bytes/live_before": report.live_before.bytes,
        "bytes/live_after": report.live_after.bytes,
        "bytes/stored_before": report.stored_before.bytes,
        "bytes/stored_after": report.stored_after.bytes,
        "versions/lost": len(report.lost),
        "versions/lost_list": ranges(report.lost) or "none",
        "versions/oldest_readable": report.oldest_readable,
        "seconds/compaction": round(report.compaction_seconds, 3),
        "seconds/vacuum": round(report.vacuum_seconds, 3),
        "retention_hours": hours(report.retention),
        "rows/forgotten": outcome.forgotten,
    }
    if report.query is not None:
        figures |= {
            "seconds/query_before": round(report.query.before, 4),
            "seconds/query_after": round(report.query.after, 4),
            "seconds/query_saved": round(report.query.before - report.query.after, 4),
        }
    return figures


def _refuse_too_short(chosen: Mapping[str, dg.AssetSpec], config: MaintenanceConfig, lake: Lake) -> None:
    """Refuse for all tables before the first one is touched; tables that cannot be read are told later."""
    for spec in chosen.values():
        table = lake.table(spec.key, spec.metadata)
        try:
            log = table.log()
        except DeltaError:
            continue
        if log is not None:
            agreed(table.name, log, config.retention, config.retention_override)


def _maintained(
    context: dg.OpExecutionContext,
    config: MaintenanceConfig,
    lake: Lake,
    name: str,
    spec: dg.AssetSpec,
    now: datetime,
) -> MaintenanceOutcome:
    table = lake.table(spec.key, spec.metadata)
    try:
        if table.log() is None:
            raise TableMissing(table.name)
        session, stamp = lake.spark.spark_session, stamp_for(context.run, table.name, JOB)
        rule = Forgetting.of(table.name, spec.metadata)
        forgotten = forget(session, table, rule, stamp, now=now, lock_seconds=config.lock_seconds) if rule else 0
        report = maintain(
            session,
            table,
            stamp_for(context.run, table.name, JOB),
            retention=config.retention,
            override=config.retention_override,
            query_runs=config.query_runs,
            lock_seconds=config.lock_seconds,
        )
    except TableMissing:
        if context.instance.get_latest_materialization_event(spec.key) is None:
            return MaintenanceOutcome(name, "missing", reason="Never materialised.")
        return MaintenanceOutcome(
            name, "vanished", reason="It was materialised, and there is no table. Materialise it again."
        )
    except EmptyTable as error:
        return MaintenanceOutcome(name, "empty", reason=str(error))
    except (TableBusy, ConcurrentWrite) as error:
        return MaintenanceOutcome(name, "busy", reason=str(error))
    except DeltaError as error:
        return MaintenanceOutcome(
            name, "foreign", reason=f"Not a table of ours: {type(error).__name__}: {_first_line(error)}"
        )
    except _FAILURES as error:
        return MaintenanceOutcome(name, "failed", reason=f"{type(error).__name__}: {_first_line(error)}")
    in_order = report.did_nothing and not forgotten
    return MaintenanceOutcome(name, "in order" if in_order else "maintained", report, forgotten=forgotten)


def _first_line(error: Exception) -> str:
    said = next((cause.message for cause in causes(error)), str(error))
    return (said.splitlines() or [""])[0][:300]


def _summary(outcomes: Sequence[MaintenanceOutcome]) -> dict[str, Any]:
    columns = ["table", "state", "files", "stored bytes", "versions lost", "query", "reason"]
    rows = [dict(zip(columns, _row(outcome), strict=True)) for outcome in outcomes]
    reports = [o.report for o in outcomes if o.report]
    return {
        "report": dg.MetadataValue.md(markdown_table(columns, rows, None)),
        "tables": len(reports),
        "files/stored_before": sum(r.stored_before.files for r in reports),
        "files/stored_after": sum(r.stored_after.files for r in reports),
        "bytes/stored_before": sum(r.stored_before.bytes for r in reports),
        "bytes/stored_after": sum(r.stored_after.bytes for r in reports),
        "not_maintained": ", ".join(f"{o.table} ({o.state})" for o in outcomes if o.report is None) or "none",
    }


def _row(outcome: MaintenanceOutcome) -> list[str]:
    report = outcome.report
    if report is None:
        return [outcome.table, outcome.state, "", "", "", "", outcome.reason]
    query = f"{report.query.before:.3f} s → {report.query.after:.3f} s" if report.query else ""
    return [
        outcome.table,
        outcome.state,
        f"{report.stored_before.files} → {report.stored_after.files}",
        f"{report.stored_before.bytes} → {report.stored_after.bytes}",
        ranges(report.lost),
        query,
        "",
    ]
