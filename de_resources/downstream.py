"""Which partitions downstream were computed from partitions that have changed since.

Source: pattern *Dead-Letter*, whose replay has to say what it made outdated. Partition mappings decide, as for automation.
"""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from de_resources.compat.graph import AssetGraph, BaseAssetGraph

Partitions = set[str] | None
"""Partition keys, or None for an asset without partitions."""


def stale_downstream(
    graph: AssetGraph, instance: dg.DagsterInstance, changed: dg.AssetKey, keys: Iterable[str]
) -> dict[dg.AssetKey, Partitions]:
    """The materialised partitions that were computed, directly or not, from these partitions; upstream assets first.

    What was never materialised is missing and not stale, and left out; what lies behind it is looked at all the same.
    """
    reached = downstream(graph, changed, keys)
    stale: dict[dg.AssetKey, Partitions] = {}
    for asset, partitions in reached.items():
        if partitions is None:
            if instance.get_latest_materialization_event(asset) is not None:
                stale[asset] = None
        elif there := partitions & instance.get_materialized_partitions(asset):
            stale[asset] = there
    return stale


def downstream(graph: AssetGraph, changed: dg.AssetKey, keys: Iterable[str]) -> dict[dg.AssetKey, Partitions]:
    """All partitions that depend on these, directly or not, in topological order; without the changed asset itself."""
    reached: dict[dg.AssetKey, Partitions] = {changed: set(keys)}
    for asset in graph.toposorted_asset_keys:
        node = graph.get(asset)
        upstream = [parent for parent in node.parent_keys if parent in reached and parent != asset]
        if asset == changed or not upstream:
            continue
        if node.partitions_def is None:
            reached[asset] = None
            continue
        found: set[str] = set()
        for parent in upstream:
            found |= _children(graph, parent, reached[parent], asset)
        # A partition that builds on the one before it is as stale as that one.
        while node.has_self_dependency and (further := _children(graph, asset, found, asset) - found):
            found |= further
        if found:
            reached[asset] = found
    del reached[changed]
    return reached


def _children(graph: BaseAssetGraph, parent: dg.AssetKey, keys: Partitions, child: dg.AssetKey) -> set[str]:
    """The child's partitions that depend on these of the parent; all of them where the parent has no partitions."""
    above, below = graph.get(parent).partitions_def, graph.get(child).partitions_def
    if below is None:
        return set()
    if above is None or keys is None:
        return set(below.get_partition_keys())
    mapping = graph.get_partition_mapping(child, parent)
    subset = above.empty_subset().with_partition_keys(keys)
    found = mapping.get_downstream_partitions_for_partitions(subset, above, downstream_partitions_def=below)
    return set(found.get_partition_keys())
