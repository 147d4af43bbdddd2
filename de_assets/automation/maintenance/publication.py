"""The jobs `publish_partition` and `roll_back_partition`: what a person decides about staged slices, from the UI.

Pattern: Audit-Write-Audit-Publish. Nothing is computed or copied. What readers see from then on is recorded as a
materialisation of the partition, and the check `is_published` passes on it, so that what is downstream goes on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import dagster as dg
from pydantic import Field

from de_assets.automation.maintenance.lake_tables import LakeTables
from de_assets.dataset import pattern_tags
from de_checks.per_key import latest_materializations
from de_checks.publication import NAME
from de_checks.publication import judged as judged_by
from de_resources.compat.checks import AssetCheckEvaluationTargetMaterializationData as Target
from de_resources.delta.metadata import VERSION
from de_resources.delta.publish.decisions import publish_held, roll_back
from de_resources.delta.publish.publication import Shown
from de_resources.delta.publish.staging import Key
from de_resources.delta.publish.stream_writer import AuditedWindows, WindowStanding, told_of_windows
from de_resources.delta.publish.verdicts import Judged
from de_resources.delta.publish.windows import WINDOWS, windows_of
from de_resources.delta.publish.writer import PUBLISHED, STATE, VERDICT, AuditedPublish, told_of
from de_resources.delta.slices import Slice, make_slice
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.writer import WRITER
from de_resources.errors import PermanentError
from de_resources.lake import Lake
from de_resources.retries import RETRY_TRANSIENT

PUBLISH, ROLL_BACK = "publish_partition", "roll_back_partition"
AUDITED, AUDITED_WINDOWS = (f"de_resources.delta.publish:{each.__name__}" for each in (AuditedPublish, AuditedWindows))

Told = Iterator[dg.AssetMaterialization | dg.Output[None]]
Decide = Callable[[Table, Slice | None, CommitInfo], tuple[Shown, Judged]]


class KeepsNoStage(PermanentError):
    """A dataset that is not published after audits."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"`{name[:80]}` is not audited before it is published. Those that are: {', '.join(known) or 'none'}."
        )


class NoSuchPartition(PermanentError):
    """A partition, or a window of a stream, that the dataset does not have, or one too few."""

    def __init__(self, name: str, partition: str, what: str = "partition") -> None:
        self.name, self.partition = name, partition
        super().__init__(f"`{name}` has no {what} {partition[:80]!r}. Write one as the UI shows it.")


class PublishConfig(dg.Config):
    """Which staged slice to show, and why."""

    table: str = Field(description="The asset key, such as `gold/visits_cube_daily`.")
    partition: str = Field(
        default="", description="The partition, or window of a stream, that was held; none for an asset without either."
    )
    reason: str = Field(description="Why it is published against its audits. Kept in the log; no personal data.")


class RollBackSliceConfig(dg.Config):
    """Which slice to take back, to what, and why."""

    table: str = Field(description="The asset key, such as `gold/visits_cube_daily`.")
    partition: str = Field(
        default="", description="The partition, or window of a stream, to take back; none for an asset without either."
    )
    reason: str = Field(description="Why. Kept in the log; no personal data.")
    version: int = Field(default=-1, description="The table's version in which it was published; -1: the one before.")


def publication_jobs(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.JobDefinition]:
    """The jobs over the audited tables among `assets`.

    They refuse what is not audited, unknown partitions, and decisions without a reason. A rerun commits and records
    nothing, and says so in the metadata of its output.
    """
    tables = LakeTables.of(assets)

    @dg.op(out=dg.Out(dg.Nothing), description="Shows a staged slice that an audit held.")
    def publish_one(context: dg.OpExecutionContext, config: PublishConfig, lake: Lake) -> Told:
        spec = audited(tables, config.table)
        yield from _decided(
            context, spec, config.partition, lake, lambda t, s, by: publish_held(t, s, by, reason=config.reason),
            f"Published by a person: {config.reason}",
        )  # fmt: skip

    @dg.op(out=dg.Out(dg.Nothing), description="Shows what an earlier publication of a slice showed.")
    def roll_back_one(context: dg.OpExecutionContext, config: RollBackSliceConfig, lake: Lake) -> Told:
        spec = audited(tables, config.table)
        version = None if config.version < 0 else config.version
        yield from _decided(
            context,
            spec,
            config.partition,
            lake,
            lambda t, s, by: roll_back(t, s, by, reason=config.reason, version=version),
            f"Rolled back by a person: {config.reason}",
        )

    tags = pattern_tags("audit_write_audit_publish")

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name=PUBLISH,
        tags=tags,
        description="Publishes a partition that an audit held for nothing.",
    )
    def publish_job() -> None:
        publish_one()

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name=ROLL_BACK,
        tags=tags,
        description="Takes a published partition back to an earlier publication.",
    )
    def roll_back_job() -> None:
        roll_back_one()

    return [publish_job, roll_back_job]


def audited(tables: LakeTables, name: str) -> dg.AssetSpec:
    """The asset of an audited table. Raises `KeepsNoStage`, which lists them."""
    known = audited_tables(tables)
    if name not in known:
        raise KeepsNoStage(name, list(known))
    return known[name]


def audited_tables(tables: LakeTables) -> dict[str, dg.AssetSpec]:
    """The audited ones among the lake's tables."""
    return {name: spec for name, spec in tables.own.items() if {AUDITED, AUDITED_WINDOWS} & set(_writers(spec))}


def _writers(spec: dg.AssetSpec) -> Sequence[str]:
    named = spec.metadata.get(WRITER) or ()
    return [named] if isinstance(named, str) else named


def slice_of_partition(spec: dg.AssetSpec, partition: str) -> Slice | None:
    """The slice of one partition, or of one window of a stream. Raises `NoSuchPartition`."""
    name = spec.key.to_user_string()
    if WINDOWS in spec.metadata:
        windows = windows_of(name, spec.metadata)
        if windows.key_of(partition) is None:
            raise NoSuchPartition(name, partition, "window")
        return windows.slice_of([partition])
    partitions = spec.partitions_def
    if partitions is None:
        if partition:
            raise NoSuchPartition(name, partition)
        return None
    try:
        known = partitions.has_partition_key(partition)
    except ValueError:
        known = False
    if not known:
        raise NoSuchPartition(name, partition)
    return make_slice([partition], partitions, spec.metadata["partition_expr"])


def _decided(
    context: dg.OpExecutionContext, spec: dg.AssetSpec, partition: str, lake: Lake, decide: Decide, told: str
) -> Told:
    slice_ = slice_of_partition(spec, partition)
    table, run = lake.table(spec.key, spec.metadata), context.run
    where = slice_.describe() if slice_ else "all"
    attempt = f"{run.run_id}/{context.op.name}"
    stamp = CommitInfo(table.name, spec.key.to_user_string(), where, run.run_id, run.run_id, attempt)
    shown, judged = decide(table, slice_, stamp)
    metadata: dict[str, Any] = {
        **_verdict_told(spec, table, partition, judged, told),
        VERSION: shown.version,
        "dagster/uri": table.uri,
        "publication/seconds": round(shown.seconds, 4),
        "publication/bytes_written": shown.bytes_written,
    }
    if not shown.committed:
        yield dg.Output(None, metadata={**metadata, "skipped": "readers see that already; nothing was published"})
        return
    key: Key = None if WINDOWS in spec.metadata else partition or None
    # Recorded when the step goes on: the verdict is then aimed at it.
    yield dg.AssetMaterialization(
        spec.key,
        description=told,
        partition=key,
        metadata=metadata,
        tags={"dagster/data_version": str(shown.version)},
    )
    context.log_event(cast("dg.AssetObservation", _verdict(context.instance, spec, key, metadata)))
    yield dg.Output(None, metadata=metadata)


def _verdict_told(spec: dg.AssetSpec, table: Table, partition: str, judged: Judged, told: str) -> dict[str, Any]:
    """What the materialisation says of what is shown: the decision, and of a stream how all of its windows are then."""
    if WINDOWS not in spec.metadata:
        return {**told_of(partition or None, judged), STATE: PUBLISHED, VERDICT: told}
    windows = windows_of(spec.key.to_user_string(), spec.metadata)
    standing = told_of_windows(table, WindowStanding.of(table, windows), {partition: judged})
    return {**standing, VERDICT: f"{partition}: {told} {standing[VERDICT]}"}


def _verdict(
    instance: dg.DagsterInstance, spec: dg.AssetSpec, key: Key, metadata: dict[str, Any]
) -> dg.AssetCheckEvaluation:
    """What is downstream waits for a verdict on the newest materialisation: the one that was recorded just now."""
    plain = {name: getattr(value, "value", value) for name, value in metadata.items()}
    verdict = judged_by(plain)
    newest = latest_materializations(instance, spec.key, [key])[key]
    target = Target(storage_id=newest.storage_id, run_id=newest.run_id, timestamp=newest.timestamp)
    return dg.AssetCheckEvaluation(
        asset_key=spec.key,
        check_name=NAME,
        partition=key,
        passed=verdict.passed,
        description=verdict.description,
        metadata=verdict.metadata,
        blocking=WINDOWS not in spec.metadata,
        target_materialization_data=target,
    )
