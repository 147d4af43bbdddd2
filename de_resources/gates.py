"""What a gate refuses: partitions whose newest content a blocking check has judged bad."""

from __future__ import annotations

from collections.abc import Collection

import dagster as dg

from de_resources.compat.checks import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecordStatus,
    AssetCheckPartitionInfo,
    PartitionKeyFilter,
)
from de_resources.compat.graph import AssetGraph
from de_resources.promises import gates_of

_FAILED, _PASSED = AssetCheckExecutionRecordStatus.FAILED, AssetCheckExecutionRecordStatus.SUCCEEDED


def refused(
    instance: dg.DagsterInstance,
    graph: AssetGraph,
    asset: dg.AssetKey,
    keys: Collection[str],
    needed: Collection[dg.AssetCheckKey] | None = None,
) -> dict[str, str]:
    """Those of the asset's partitions that a gate refuses as they are now, with the check's name. What only warns lets pass.

    `needed` are the gates that are asked, all of them where it is not given.
    """
    asked = gates_of(graph, asset) if needed is None else needed
    gates = sorted(key for key in asked if graph.get(key).partitions_def is not None)
    if not gates or not keys:
        return {}
    found = instance.event_log_storage.get_asset_check_partition_info(gates, partition_keys=sorted(keys))
    return {
        str(each.partition_key): each.check_key.name
        for each in found
        if each.latest_execution_status == _FAILED and each.is_current and _is_error(instance, each)
    }


def refused_whole(instance: dg.DagsterInstance, asset: dg.AssetKey, gates: Collection[dg.AssetCheckKey]) -> str | None:
    """The name of one of these gates that refuses an asset without partitions as it is now. What only warns lets pass."""
    written = instance.fetch_materializations(asset, limit=1).records
    for gate in sorted(gates):
        verdict = _newest_verdict(instance, gate)
        judged = verdict.target_materialization_data if verdict else None
        is_current = judged is not None and bool(written) and judged.storage_id == written[0].storage_id
        if verdict and is_current and not verdict.passed and verdict.severity == dg.AssetCheckSeverity.ERROR:
            return gate.name
    return None


def passed(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey], keys: Collection[str] | None = None
) -> set[tuple[dg.AssetCheckKey, str | None]]:
    """Which of the checks have judged which partitions good as they are now; of these `keys`, or of all there are."""
    asked = None if keys is None else sorted(keys)
    found = instance.event_log_storage.get_asset_check_partition_info([*checks], partition_keys=asked)
    return {(i.check_key, i.partition_key) for i in found if i.is_current and i.latest_execution_status == _PASSED}


def _is_error(instance: dg.DagsterInstance, verdict: AssetCheckPartitionInfo) -> bool:
    evaluation = _newest_verdict(instance, verdict.check_key, PartitionKeyFilter(key=verdict.partition_key))
    return evaluation is None or evaluation.severity == dg.AssetCheckSeverity.ERROR


def _newest_verdict(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, of: PartitionKeyFilter | None = None
) -> dg.AssetCheckEvaluation | None:
    records = instance.event_log_storage.get_asset_check_execution_history(
        check, limit=1, status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES, partition_filter=of
    )
    return records[0].evaluation if records else None
