"""What queues runs: the coordinator of the instance, what it is told of a run, and the tags in which runs name partitions."""

from dagster._core.definitions.assets.graph.remote_asset_graph import RemoteWorkspaceAssetGraph
from dagster._core.definitions.partitions.snap import PartitionsSnap
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.run_coordinator.queued_run_coordinator import RunQueueConfig
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    HIDDEN_TAG_PREFIX,
    PARTITION_NAME_TAG,
)
from dagster._serdes import ConfigurableClassData

__all__ = [
    "ASSET_PARTITION_RANGE_END_TAG",
    "ASSET_PARTITION_RANGE_START_TAG",
    "HIDDEN_TAG_PREFIX",
    "PARTITION_NAME_TAG",
    "ConfigurableClassData",
    "PartitionsSnap",
    "RemoteWorkspaceAssetGraph",
    "RunQueueConfig",
    "SubmitRunContext",
]
