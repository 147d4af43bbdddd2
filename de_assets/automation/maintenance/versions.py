"""Jobs on datasets that are written as immutable versions, pattern Proxy: `roll_back`, `switch_version`, and retention.

A switch copies and computes nothing. What it changed is recorded as materialisations of the partitions it concerns, so
that their checks can be run and what follows from them is computed again.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from de_assets.automation.maintenance.lake_tables import LakeTables
from de_assets.dataset import pattern_tags
from de_resources.delta.metadata import VERSION, markdown_table
from de_resources.delta.write.lock import TableBusy, commit_lock
from de_resources.lake import Lake
from de_resources.proxy.manifest import WHOLE, Manifest
from de_resources.proxy.retention import RetentionPolicy, retain
from de_resources.proxy.store import VersionStore
from de_resources.proxy.switching import publish, roll_back
from de_resources.proxy.table import NoImmutableStore, NotVersioned, ProxiedTable
from de_resources.retries import RETRY_TRANSIENT

ROLL_BACK, SWITCH = "roll_back", "switch_version"
_SHOWN = 20


class RollBackConfig(dg.Config):
    """Which dataset, and which of its states."""

    table: str = Field(description="The asset key, such as `gold/users_snapshot`.")
    manifest: int = Field(description="The number of the manifest to go back to, as in the metadata `delta/version`.")
    partitions: list[str] = Field(default=[], description="Only these partitions; none: all of them.")
    lock_seconds: float = Field(default=60, ge=0, description="How long to wait for a retention that is at work.")


class SwitchConfig(dg.Config):
    """Which complete version to show."""

    table: str = Field(description="The asset key, such as `gold/users_snapshot`.")
    version: str = Field(description="The version's id, a folder below `versions`.")
    lock_seconds: float = Field(default=60, ge=0, description="How long to wait for a retention that is at work.")


class RetentionConfig(dg.Config):
    """How many states stay, and for how long: a state stays if either says so. The live one always does."""

    keep: int = Field(default=10, description="The newest states that stay, at least 1.")
    days: float = Field(default=30, description="A state that was live within so many days stays.")
    unfinished_hours: float = Field(default=24, description="Versions that no run completed or showed go after this.")
    lock_seconds: float = Field(default=60, ge=0, description="How long to wait for writers of a dataset.")

    @property
    def promise(self) -> RetentionPolicy:
        """The same, for the store. Raises `PermanentError` for what would remove the live state."""
        return RetentionPolicy(self.keep, timedelta(days=self.days), timedelta(hours=self.unfinished_hours))


def version_jobs(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.JobDefinition]:
    """The jobs over the datasets with versions among `assets`."""
    tables = LakeTables.of(assets)

    @dg.op(out=dg.Out(dg.Nothing), description="Shows what an earlier manifest showed.")
    def roll_back_to(context: dg.OpExecutionContext, config: RollBackConfig, lake: Lake) -> dg.Output[None]:
        spec = tables.with_versions(config.table)
        table = _table(lake, spec)
        with commit_lock(table.uri, table=table.name, shared=True, timeout=config.lock_seconds):
            now = datetime.now(UTC)
            manifest, changes = roll_back(table.store, config.manifest, partitions=config.partitions, now=now)
        facts = {"rolled_back_to": config.manifest, "partitions_taken_out": _taken_out(changes)}
        return _switched(context, spec, table.store, manifest, changes, facts)

    @dg.op(out=dg.Out(dg.Nothing), description="Shows a version that was completed and never shown.")
    def switch_to(context: dg.OpExecutionContext, config: SwitchConfig, lake: Lake) -> dg.Output[None]:
        spec = tables.with_versions(config.table)
        table = _table(lake, spec)
        with commit_lock(table.uri, table=table.name, shared=True, timeout=config.lock_seconds):
            before = table.store.live()
            manifest = publish(table.store, config.version, now=datetime.now(UTC))
        again = before is not None and before.number == manifest.number
        changes: dict[str, str | None] = {} if again else {k: config.version for k in _keys(table.store, config)}
        return _switched(context, spec, table.store, manifest, changes, {"switched_to": config.version})

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name=ROLL_BACK,
        tags=pattern_tags("proxy"),
        description="Takes a dataset back to an earlier state.",
    )
    def roll_back_job() -> None:
        roll_back_to()

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name=SWITCH,
        tags=pattern_tags("proxy"),
        description="Shows a version whose switch did not happen.",
    )
    def switch_job() -> None:
        switch_to()

    return [roll_back_job, switch_job]


def retention_op(tables: LakeTables) -> dg.OpDefinition:
    """The op `retain_versions`, which keeps the promise of `RetentionConfig` for all datasets with versions."""

    @dg.op(out=dg.Out(dg.Nothing), description="Removes versions that nobody can go back to.")
    def retain_versions(context: dg.OpExecutionContext, config: RetentionConfig, lake: Lake) -> dg.Output[None]:
        promise = config.promise
        totals: dict[str, Any] = {}
        for name, spec in tables.versioned.items():
            table = _table(lake, spec)
            try:
                # Nobody writes or switches meanwhile: what looks unfinished then belongs to no run.
                with commit_lock(table.uri, table=table.name, shared=False, timeout=config.lock_seconds):
                    removed = retain(table.store, promise, datetime.now(UTC))
            except (TableBusy, NotVersioned, NoImmutableStore) as error:
                totals[name] = f"left alone: {error}"
                continue
            figures = {
                "versions/stored": len(table.store.complete_versions()),
                "versions/removed": len(removed.versions),
                "versions/unfinished_removed": len(removed.unfinished),
                "manifests/removed": len(removed.manifests),
            }
            context.log_event(
                dg.AssetObservation(asset_key=spec.key, metadata={**figures, **listing(table.store, datetime.now(UTC))})
            )
            totals[name] = f"{len(removed.versions)} version(s) removed, {figures['versions/stored']} stored"
        return dg.Output(None, metadata=totals)

    return retain_versions


def listing(store: VersionStore, now: datetime) -> dict[str, Any]:
    """The newest states and versions as tables for people: which is live, how old, how many rows and partitions."""
    manifests, versions = store.manifests()[::-1], store.complete_versions()[::-1]
    live = manifests[0] if manifests else None
    states = [
        {
            "manifest": m.number,
            "live": "live" if m is live else "",
            "since": m.at.isoformat(timespec="seconds"),
            "why": m.why,
            "partitions": len(m.live),
            "versions": len(m.versions),
        }
        for m in manifests[:_SHOWN]
    ]
    stored = [
        {
            "version": v.id,
            "live": f"{sum(id_ == v.id for id_ in live.live.values()) if live else 0} of {len(v.predicates)} partitions",
            "age in hours": round((now - v.completed).total_seconds() / 3600, 1),
            "rows": sum(v.rows.values()) if v.rows else "",
            "run": v.run,
        }
        for v in versions[:_SHOWN]
    ]
    return {"states": dg.MetadataValue.md(_markdown(states)), "versions": dg.MetadataValue.md(_markdown(stored))}


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    return markdown_table(list(rows[0]), rows, None) if rows else "none"


def _table(lake: Lake, spec: dg.AssetSpec) -> ProxiedTable:
    table = lake.table(spec.key, spec.metadata)
    assert isinstance(table, ProxiedTable)  # noqa: S101 - what the metadata of its IO manager's assets says
    return table


def _keys(store: VersionStore, config: SwitchConfig) -> list[str]:
    return list(store.version(config.version).predicates)


def _taken_out(changes: Mapping[str, str | None]) -> str:
    return ", ".join(key for key, version in changes.items() if version is None) or "none"


def _switched(
    context: dg.OpExecutionContext,
    spec: dg.AssetSpec,
    store: VersionStore,
    manifest: Manifest,
    changes: Mapping[str, str | None],
    facts: Mapping[str, Any],
) -> dg.Output[None]:
    """Record the partitions that have another version now, and tell what can be gone back to."""
    for key, id_ in changes.items():
        if id_ is not None:
            context.log_event(_materialised(spec, store, manifest, key, id_, facts))
    told = {VERSION: manifest.number, **facts, "partitions_switched": len(changes)}
    if not changes:
        told["skipped"] = "readers see that already; nothing was switched"
    return dg.Output(None, metadata={**told, **listing(store, datetime.now(UTC))})


def _materialised(
    spec: dg.AssetSpec, store: VersionStore, manifest: Manifest, key: str, id_: str, facts: Mapping[str, Any]
) -> dg.AssetMaterialization:
    rows = store.version(id_).rows.get(key)
    counted = "dagster/row_count" if key == WHOLE else "dagster/partition_row_count"
    return dg.AssetMaterialization(
        asset_key=spec.key,
        partition=None if key == WHOLE else key,
        description=manifest.why,
        metadata={VERSION: manifest.number, "proxy/version": id_, **facts, **({} if rows is None else {counted: rows})},
        tags={"dagster/data_version": str(manifest.number)},
    )
