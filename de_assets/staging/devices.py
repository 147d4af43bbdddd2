"""The table `silver.devices` with its transaction log: history and time travel are the source's own.

Grain: one device. Pattern: Passthrough Replicator (table) - files are copied, nothing is read into an engine.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from de_assets.automation.conditions import gated
from de_assets.contracts.devices import OWNER
from de_assets.staging.replica import replica
from de_checks.digest import Digests, digest_check
from de_resources.delta.log import TableLog
from de_resources.delta.read_versions import ReadVersions
from de_resources.lake import Lake
from de_resources.lineage.record import copied_columns
from de_resources.replication.environments import local_folder
from de_resources.replication.lake import ReplicaLake
from de_resources.replication.table import replicate_table, table_digests
from de_resources.retries import RETRY_TRANSIENT

SOURCE = dg.AssetKey(["silver", "devices"])


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **replica("devices", owner=OWNER, kind="deltalake", patterns=["passthrough_replicator"]),
    deps=[SOURCE],
    automation_condition=gated(),
)
def devices(context: dg.AssetExecutionContext, lake: Lake, staging_lake: ReplicaLake) -> dg.MaterializeResult[None]:
    """Bring the replica to the source's newest version."""
    folder = staging_lake.folder(context.asset_key)
    source = lake.table(SOURCE)
    done = replicate_table(local_folder(source.uri), folder)
    log, read = TableLog.open(str(folder)), ReadVersions()
    read.note(source, done.version)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(str(done.version)),
        metadata={
            "dagster/uri": str(folder),
            "delta/version": done.version,
            "files_copied": done.files_copied,
            "files_removed": done.files_removed,
            "bytes_copied": done.bytes_copied,
            **read.metadata(),
            **copied_columns(log.column_names() if log else (), SOURCE),
        },
    )


def _both_sides(resources: Any, _metadata: Mapping[str, Any]) -> tuple[Digests, Digests]:
    source = local_folder(resources.lake.table(SOURCE).uri)
    return table_digests(source, resources.staging_lake.folder(devices.key))


checks = [digest_check(devices, _both_sides, resources={"lake", "staging_lake"})]
