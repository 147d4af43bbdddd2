"""The job `restore_table`: take an unpartitioned table back to an earlier version, from the UI.

Part of the Full Loader: a bad load that its check held back is undone by version number. The restored state is recorded
as a materialisation of the asset, so that its checks can be run on it and what follows from it is computed again.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from de_assets.automation.maintenance.lake_tables import LakeTables, stamp_for
from de_assets.dataset import pattern_tags
from de_resources.delta.maintenance.restore import restore
from de_resources.delta.metadata import VERSION
from de_resources.delta.table import TableMissing
from de_resources.errors import PermanentError
from de_resources.lake import Lake
from de_resources.retries import RETRY_TRANSIENT

JOB = "restore_table"


class PartitionedTable(PermanentError):
    """A restore that would take back every partition of a table at once."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"`{table}` has partitions, and a restore would take all of them back, the good ones too. Materialise the "
            "wrong partitions again instead: a rerun replaces exactly them."
        )


class RestoreConfig(dg.Config):
    """Which table, and which of its versions."""

    table: str = Field(description="The asset key, such as `bronze/devices`.")
    version: int = Field(description="The Delta version to go back to, as in the metadata `delta/version`.")


def restore_job(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> dg.JobDefinition:
    """The job over the Delta tables among `assets`.

    Refuses unknown tables, partitioned ones, versions that cannot be read, and to go back behind a stream that has fed the
    table since, whose position would not go back; each error names what is available.
    A rerun with the same version commits nothing, records nothing and says so in the output's metadata.
    """
    tables = LakeTables.of(assets)

    @dg.op(out=dg.Out(dg.Nothing), description="Takes one table back to an earlier version.")
    def restore_to_version(context: dg.OpExecutionContext, config: RestoreConfig, lake: Lake) -> dg.Output[None]:
        spec = tables.named(config.table)
        if spec.partitions_def is not None:
            raise PartitionedTable(config.table)
        table = lake.table(spec.key, spec.metadata)
        if table.log() is None:
            raise TableMissing(table.name)
        stamp = stamp_for(context.run, table.name, JOB)
        written = restore(lake.spark.spark_session, table, config.version, stamp)
        metadata: dict[str, Any] = {VERSION: written.version, "restored_from": config.version}
        if written.skipped:
            context.log.info("%s: %s", config.table, written.skipped)
            return dg.Output(None, metadata={**metadata, "skipped": written.skipped})
        log = table.log()
        if log is not None:
            metadata["dagster/row_count"] = sum(log.rows_by_partition().values())
        metadata |= {"delta/operation": "RESTORE", "duration_seconds": round(written.seconds, 3)}
        context.log_event(
            dg.AssetMaterialization(
                asset_key=spec.key,
                description=f"Restored to version {config.version}.",
                metadata=metadata,
                tags={"dagster/data_version": str(written.version)},
            )
        )
        return dg.Output(None, metadata=metadata)

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name=JOB,
        tags=pattern_tags("full_loader"),
        description="Takes a table back to an earlier version.",
    )
    def job() -> None:
        restore_to_version()

    return job
