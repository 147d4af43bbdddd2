"""The asset graph and types of definitions."""

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph, AssetNode
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.assets.job.asset_job import JobScopedAssetGraph
from dagster._core.definitions.declarative_automation.automation_condition import BuiltinAutomationCondition
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

__all__ = ["AssetGraph", "AssetNode", "BaseAssetGraph", "BuiltinAutomationCondition", "UnresolvedAssetJobDefinition"]


def whole_graph(job: dg.JobDefinition) -> AssetGraph:
    """The graph that a job is a part of: a run of one check knows the asset's other checks only by it."""
    graph: AssetGraph = job.asset_layer.asset_graph
    return graph.source_asset_graph if isinstance(graph, JobScopedAssetGraph) else graph
