"""What queues runs: the coordinator of the instance, what it is told of a run, and the tags in which runs name partitions."""

from typing import Any, cast

import dagster as dg
from dagster._core.definitions.assets.graph.remote_asset_graph import RemoteWorkspaceAssetGraph
from dagster._core.definitions.partitions.snap import PartitionsSnap
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.run_coordinator.queued_run_coordinator import RunQueueConfig
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    AUTO_RETRY_RUN_ID_TAG,
    HIDDEN_TAG_PREFIX,
    PARTITION_NAME_TAG,
    ROOT_RUN_ID_TAG,
    WILL_RETRY_TAG,
)
from dagster._serdes import ConfigurableClassData

__all__ = [
    "ASSET_PARTITION_RANGE_END_TAG",
    "ASSET_PARTITION_RANGE_START_TAG",
    "AUTO_RETRY_RUN_ID_TAG",
    "HIDDEN_TAG_PREFIX",
    "PARTITION_NAME_TAG",
    "ROOT_RUN_ID_TAG",
    "WILL_RETRY_TAG",
    "ConfigurableClassData",
    "RemoteWorkspaceAssetGraph",
    "RunQueueConfig",
    "SubmitRunContext",
    "description_of",
    "partitions_of",
]


def description_of(partitions: dg.PartitionsDefinition[Any]) -> str:
    """What the UI's process is told of partitions, as text."""
    return dg.serialize_value(cast("Any", PartitionsSnap.from_def(partitions)))


def partitions_of(description: str) -> dg.PartitionsDefinition[Any]:
    """The partitions that `description_of` has described."""
    # Dagster's types do not say that a snap is one of the values that it writes and reads.
    snap: PartitionsSnap = dg.deserialize_value(description, cast("Any", PartitionsSnap))
    return snap.get_partitions_definition()
