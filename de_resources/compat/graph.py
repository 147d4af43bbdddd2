"""The asset graph and types of definitions."""

from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.declarative_automation.automation_condition import BuiltinAutomationCondition
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

__all__ = ["AssetGraph", "BaseAssetGraph", "BuiltinAutomationCondition", "UnresolvedAssetJobDefinition"]
