"""The job `offline_observer`: each new version of each table is looked at once, apart from what writes it.

Pattern: Offline Observer. What is new is profiled by one aggregate per table; the profile is a page of HTML under
`$DE_HOME/profiles`, and an observation on the asset's own page, whose numbers the UI plots. A table that cannot be read now is
told, and looked at the next time. A rerun finds nothing new.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from deltalake.exceptions import DeltaError
from pydantic import Field

from de_assets.automation.maintenance.lake_tables import LakeTables
from de_assets.automation.nightly import job_of, nightly
from de_checks.per_key import Key, judged_before
from de_resources.delta.metadata import markdown_table
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.errors import PlatformError
from de_resources.lake import Lake
from de_resources.observers.figures_shown import numbers
from de_resources.observers.offline import Look, OfflineObserver, Refused
from de_resources.observers.page import markdown_of
from de_resources.observers.profile import HistoryPoint
from de_resources.page_link import page_link
from de_resources.settings import Settings

JOB = "offline_observer"
PREFIX = "profile"

_CANNOT_LOOK: tuple[type[Exception], ...] = (PlatformError, DeltaError, OSError, *ENGINE_ERRORS)


class ObserverConfig(dg.Config):
    """What to look at."""

    tables: list[str] = Field(default=[], description="Asset keys such as `gold/sessions`; none: all tables.")
    accept: str = Field(
        default="",
        description="Your reason to take what is outside of its bounds in these tables for usual from now on.",
    )


@dataclass(frozen=True)
class ObservationOutcome:
    """What became of one table: `state` is seen, nothing new, or not readable."""

    table: str
    state: str
    look: Look | None = None
    reason: str = ""


def offline_observer_job(
    assets: Sequence[dg.AssetsDefinition | dg.AssetSpec],
    checks: Sequence[dg.AssetChecksDefinition] = (),
    folder: Callable[[], Path] = lambda: Settings.from_environment().home / "profiles",
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> dg.JobDefinition:
    """The job over the Delta tables among `assets`. `folder` is where pages and what was learnt are kept.

    What a blocking one of the `checks` has refused is shown, and not learnt from.
    """
    tables = LakeTables.of(assets)
    gates = [spec.key for check in checks for spec in check.check_specs if spec.blocking]

    @dg.op(out=dg.Out(dg.Nothing), description="Profiles what is new in the tables, one after another.")
    def profile_tables(context: dg.OpExecutionContext, config: ObserverConfig, lake: Lake) -> dg.Output[None]:
        chosen = {name: tables.named(name) for name in config.tables} or tables.own
        observer = OfflineObserver(folder())
        outcomes = []
        for name, spec in chosen.items():
            own = [gate for gate in gates if gate.asset_key == spec.key]
            judge = partial(_refused, context.instance, own, spec)
            outcome = _looked_at(config, observer, lake, name, spec, judge, clock())
            context.log.info("%s: %s. %s", name, outcome.state, outcome.reason)
            if outcome.look is not None:
                context.log_event(dg.AssetObservation(asset_key=spec.key, metadata=observed(outcome.look)))
            outcomes.append(outcome)
        return dg.Output(None, metadata=_summary(outcomes))

    return job_of(
        JOB,
        [profile_tables],
        description="Profiles each new version of the lake's tables once, and compares it with their own accepted history.",
        patterns=["offline_observer"],
    )


# After the maintenance, which moves rows between files and changes none.
schedule = nightly(
    JOB,
    "30 3 * * *",
    description="Profiles at night what is new in the lake's tables since the night before.",
    patterns=["offline_observer"],
)


def observed(look: Look) -> dict[str, Any]:
    """The metadata of a table's observation: the page, the profile in short, and the newest point's figures as numbers."""
    drifts = look.judgement.of(look.newest.key)
    return {
        f"{PREFIX}/page": page_link(look.page),
        f"{PREFIX}/report": dg.MetadataValue.md(markdown_of(look.dataset, look.memory, look.judgement)),
        f"{PREFIX}/point": look.newest.key,
        f"{PREFIX}/points": len(look.memory.points),
        f"{PREFIX}/outside": len(drifts),
        "delta/version": look.memory.version,
        **numbers(look.newest.figures, PREFIX),
    }


def _looked_at(
    config: ObserverConfig,
    observer: OfflineObserver,
    lake: Lake,
    name: str,
    spec: dg.AssetSpec,
    refused: Refused,
    now: datetime,
) -> ObservationOutcome:
    try:
        table = lake.table(spec.key, spec.metadata)
        look = observer.look(lambda: lake.spark.spark_session, name, table, now, refused, config.accept)
    except _CANNOT_LOOK as error:
        # It is looked at the next time: who only looks, stops nobody.
        return ObservationOutcome(
            name, "not readable", reason=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
        )
    if look is None:
        return ObservationOutcome(name, "nothing new")
    return ObservationOutcome(name, "seen", look, "; ".join(map(str, look.judgement.of(look.newest.key)))[:1000])


def _refused(
    instance: dg.DagsterInstance, gates: Sequence[dg.AssetCheckKey], spec: dg.AssetSpec, point: HistoryPoint
) -> str:
    """The blocking checks whose newest verdict on the point's partition is bad."""
    key = _partition_key(spec, point)
    verdicts = {gate.name: next(iter(judged_before(instance, gate, key, limit=1)), None) for gate in gates}
    return ", ".join(f"{name} failed" for name, verdict in verdicts.items() if verdict and not verdict.passed)


def _partition_key(spec: dg.AssetSpec, point: HistoryPoint) -> Key:
    """The Dagster partition of a point, by its time; None where there is none."""
    partitions = spec.partitions_def
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        for value in point.partition:
            try:
                at = datetime.fromisoformat(value or "").replace(tzinfo=UTC)
                return partitions.get_partition_key_for_timestamp(at.timestamp())
            except ValueError:
                continue
    return point.key if isinstance(partitions, dg.StaticPartitionsDefinition) else None


def _summary(outcomes: Sequence[ObservationOutcome]) -> Mapping[str, Any]:
    return {
        "report": dg.MetadataValue.md(
            markdown_table(["table", "state", "new points", "told"], list(_rows(outcomes)), None)
        ),
        "tables/seen": sum(o.state == "seen" for o in outcomes),
        "tables/not_readable": sum(o.state == "not readable" for o in outcomes),
    }


def _rows(outcomes: Sequence[ObservationOutcome]) -> Iterator[Mapping[str, Any]]:
    for outcome in outcomes:
        new = len(outcome.look.new) if outcome.look else 0
        yield {"table": outcome.table, "state": outcome.state, "new points": new, "told": outcome.reason}
