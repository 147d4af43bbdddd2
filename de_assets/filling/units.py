"""What is materialised together, what it reads and what it needs: told by the definitions of the code locations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import dagster as dg
from dagster import AssetKey, Definitions

from de_resources.compat.graph import AssetGraph
from de_resources.promises import gates_of, needed


@dataclass(frozen=True, eq=False)
class Unit:
    """Assets that one step writes, and that are therefore always materialised together."""

    assets: tuple[AssetKey, ...]
    location: Definitions
    parents: frozenset[AssetKey]
    """What has to be there, other units' assets and external ones."""
    optional: frozenset[AssetKey]
    """What is read where it is there: inputs that declare `if_missing: "empty"`."""
    services: frozenset[str]
    """Services that its resources talk to: their classes say so (`services`)."""
    partitions: dg.TimeWindowPartitionsDefinition | None = None
    one_by_one: bool = False
    """A run for each partition, in order: its backfill policy asks for it."""
    chained: bool = False
    """A partition builds on the one before it."""
    carries: bool = False
    """It reads what a chained one has carried from partition to partition, or is one."""
    checks_by_partition: tuple[dg.AssetCheckKey, ...] = ()
    """Checks that judge each partition by itself."""
    gates: frozenset[dg.AssetCheckKey] = frozenset()
    """Checks that hold back what lies behind them."""
    checks_of_all: tuple[dg.AssetCheckKey, ...] = ()
    """Checks that judge all partitions together, or what has none."""
    not_needed: frozenset[dg.AssetCheckKey] = frozenset()
    """Gates of what it reads whose promises it does not need."""

    @property
    def reads(self) -> frozenset[AssetKey]:
        """All that has to be settled before it runs."""
        return self.parents | self.optional

    def readers_of(self, parent: AssetKey, above: dg.PartitionsDefinition, key: str) -> set[str]:
        """The unit's partitions that read this partition of the parent, as their mapping says."""
        graph = self.location.resolve_asset_graph()
        reader = next(asset for asset in self.assets if parent in graph.get(asset).parent_keys)
        mapping = graph.get_partition_mapping(reader, parent_asset_key=parent)
        subset = above.empty_subset().with_partition_keys([key])
        below = cast("dg.TimeWindowPartitionsDefinition", self.partitions)
        found = mapping.get_downstream_partitions_for_partitions(subset, above, downstream_partitions_def=below)
        return set(found.get_partition_keys())

    @property
    def name(self) -> str:
        """For people: the asset, or all of them."""
        return ", ".join(key.to_user_string() for key in self.assets)


def units(locations: Iterable[Definitions]) -> list[Unit]:
    """All units of all locations, upstream first. A unit of one location may read what another one writes."""
    found = [unit for location in locations for unit in _of_location(location)]
    writers = {key: unit for unit in found for key in unit.assets}
    ordered: dict[Unit, None] = {}

    def visit(unit: Unit) -> None:
        if unit in ordered:
            return
        for parent in sorted(unit.reads & writers.keys()):
            if writers[parent] is not unit:
                visit(writers[parent])
        ordered[unit] = None

    for unit in found:
        visit(unit)
    return list(ordered)


def external_assets(locations: Iterable[Definitions]) -> dict[AssetKey, dg.AssetSpec]:
    """What the locations read and none of them writes: the systems outside."""
    specs: dict[AssetKey, dg.AssetSpec] = {}
    written: set[AssetKey] = set()
    for location in locations:
        graph = location.resolve_asset_graph()
        for spec in location.resolve_all_asset_specs():
            specs.setdefault(spec.key, spec)
        written |= {key for key in graph.get_all_asset_keys() if graph.get(key).is_executable}
    return {key: spec for key, spec in specs.items() if key not in written}


def _of_location(location: Definitions) -> list[Unit]:
    graph = location.resolve_asset_graph()
    found: dict[frozenset[AssetKey], Unit] = {}
    for key in graph.toposorted_asset_keys:
        if not graph.get(key).is_executable:
            continue
        # Also where a run could ask for some of them: the step reads once for all.
        together = frozenset(graph.get(key).assets_def.keys)
        if together not in found:
            found[together] = _unit(location, graph, tuple(sorted(together)))
    return list(found.values())


def _unit(location: Definitions, graph: AssetGraph, assets: tuple[AssetKey, ...]) -> Unit:
    nodes = [graph.get(key) for key in assets]
    definition = nodes[0].assets_def
    optional = {
        definition.keys_by_input_name[each.name]
        for each in definition.node_def.input_defs
        if each.name in definition.keys_by_input_name and each.metadata.get("if_missing") == "empty"
    }
    policy = nodes[0].backfill_policy
    checks = sorted(key for key in graph.asset_check_keys if key.asset_key in assets)
    return Unit(
        assets,
        location,
        frozenset(key for node in nodes for key in node.parent_keys) - optional - set(assets),
        frozenset(optional),
        frozenset(_services(location.resources or {}, definition.required_resource_keys)),
        cast("dg.TimeWindowPartitionsDefinition | None", nodes[0].partitions_def),
        one_by_one=policy is None or policy.max_partitions_per_run is not None,
        chained=any(node.has_self_dependency for node in nodes),
        carries=any(graph.get(key).has_self_dependency for node in nodes for key in node.parent_keys),
        checks_by_partition=tuple(key for key in checks if graph.get(key).partitions_def is not None),
        gates=frozenset(key for key in checks if graph.get(key).blocking),
        checks_of_all=tuple(key for key in checks if graph.get(key).partitions_def is None),
        not_needed=frozenset(
            gate
            for parent in {up for node in nodes for up in node.parent_keys} - set(assets)
            for gate in gates_of(graph, parent)
            - needed(graph, [node.key for node in nodes if parent in node.parent_keys], parent)
        ),
    )


def _services(resources: Mapping[str, Any], used: Iterable[str]) -> Iterable[str]:
    for key in used:
        yield from getattr(type(resources.get(key)), "services", ())


def longest_ways(ordered: Sequence[Unit]) -> dict[Unit, int]:
    """How many units follow one after the other from each on, in the order of `units`: what holds up most goes first."""
    ways: dict[Unit, int] = {}
    for unit in reversed(ordered):
        ways[unit] = 1 + max((way for other, way in ways.items() if not other.reads.isdisjoint(unit.assets)), default=0)
    return ways
