"""Records of asset checks by partition."""

from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
    AssetCheckPartitionInfo,
)

__all__ = [
    "COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES",
    "AssetCheckEvaluationTargetMaterializationData",
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionRecordStatus",
    "AssetCheckPartitionInfo",
    "PartitionKeyFilter",
]
