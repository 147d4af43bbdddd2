"""Of how many of its inputs a partition was made that gathers several of another asset. Pattern: Aligned Fan-In.

Told in one place for every asset: where the input is read. What is read a moment later is what was there then, whoever asked
for the run. A day without one of its hours says so in the metadata of its materialisation, and no longer when it is computed
with it. What is made of such a day says it too: a week, a page, a table for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg

from de_resources.compat.graph import AssetGraph, whole_graph
from de_resources.compat.narrowing import StepExecutionContext
from de_resources.fan_in import FanIn, fan_in, lacking
from de_resources.held_back import in_the_time_of, keys_asked, keys_of_step, leaves_out_held
from de_resources.promises import needed


@dataclass
class _Gathered:
    """What a step gathers from the inputs that it has read so far, by its own partition, in order.

    `carried` is what a partition goes on from that the same step writes: known when all inputs are read, in whatever order.
    `deep`: where that is a total, which lacks for good what it lacked once.
    """

    inputs: dict[str, FanIn] = field(default_factory=dict)
    carried: Mapping[str, Sequence[str]] = field(default_factory=dict)
    deep: bool = False

    def whole(self) -> Mapping[str, FanIn]:
        """With what is carried."""
        found: dict[str, FanIn] = {}
        for key in dict.fromkeys([*self.carried, *self.inputs]):
            before = {part: self._lacks(found[part]) for part in self.carried.get(key, ()) if part in found}
            lacks = {part: lacked for part, lacked in before.items() if lacked}
            own = self.inputs.get(key, FanIn())
            found[key] = own.beside(FanIn().lacks(lacks, lacks)) if lacks else own
        return {key: each for key, each in found.items() if key in self.inputs or each.lacking}

    def _lacks(self, before: FanIn) -> Mapping[str, str]:
        inherited = {what: why for lacks in before.lacking.values() for what, why in lacks.items()} if self.deep else {}
        return {**inherited, **before.missing}


_TOLD: WeakKeyDictionary[StepExecutionContext, _Gathered] = WeakKeyDictionary()


def tell_completeness(context: dg.InputContext) -> None:
    """Record at each partition of the step how complete this input of it is, beside those that were read before.

    What counts as missing is the input in the partition's own time; what it looks back or ahead to comes and goes for itself.
    An input that was made without something passes that on; one that is carried from the partition before, only what it
    lacked itself, unless it is a total of all that came before. A few questions to the event log for all partitions of the
    run; none where nothing above the input gathers anything.
    """
    step = context.step_context
    below, above = step.entity_partitions_def, context.asset_partitions_def if context.has_asset_partitions else None
    in_time = all(isinstance(each, dg.TimeWindowPartitionsDefinition) for each in (below, above))
    if step.assets_def is None or below is None or above is None or not in_time:
        return
    graph, told = whole_graph(step.job_def), _TOLD.setdefault(step, _Gathered())
    readers = [each for each in step.assets_def.keys if context.asset_key in graph.get(each).parent_keys]
    for key, own in _inputs(context, graph, below, above, told).items():
        told.inputs[key] = told.inputs[key].beside(own) if key in told.inputs else own
    for key, each in told.whole().items():
        for reader in readers:
            step.add_asset_metadata(each.told, reader, key)


def completeness_of(context: dg.AssetExecutionContext, key: str) -> Mapping[str, object]:
    """The same as metadata, for who tells of a partition itself (`de_resources/told.py`): of the inputs read so far."""
    told = _TOLD.get(context.op_execution_context.get_step_execution_context(), _Gathered()).whole()
    return told[key].told if key in told else {}


def _inputs(
    context: dg.InputContext,
    graph: AssetGraph,
    below: dg.PartitionsDefinition[Any],
    above: dg.PartitionsDefinition[Any],
    told: _Gathered,
) -> Mapping[str, FanIn]:
    """What each partition of the step gathers of the input; nothing where there is nothing to tell."""
    step, source = context.step_context, context.asset_key
    parts = _same_length(context, graph, below, above) if below == above else _parts(context, below, above)
    is_carried = below == above and any(key not in each for key, each in parts.items())
    deep = not is_carried or bool(graph.get(source).metadata.get("stateful"))
    read = sorted({part for each in parts.values() for part in each})
    if source in _assets(context):
        told.carried, told.deep = parts, deep
        read = [part for part in read if part not in parts]
    lacks = lacking(step.instance, source, read, deep=deep) if read and _may_lack(graph, source) else {}
    if not _gathers(below, above, parts):
        found = {key: FanIn().lacks(lacks, each) for key, each in parts.items()}
        return {key: own for key, own in found.items() if own.lacking}
    readers = [each for each in _assets(context) if source in graph.get(each).parent_keys]
    inputs = fan_in(step.instance, graph, source, read, needed(graph, readers, source))
    return {key: inputs.of(each).lacks(lacks, each) for key, each in parts.items()}


def _gathers(
    below: dg.PartitionsDefinition[Any], above: dg.PartitionsDefinition[Any], parts: Mapping[str, Sequence[str]]
) -> bool:
    """Whether the step's partitions are longer than those of the input, however few of these the calendar has."""
    return any(parts.values()) and length_of(below) > length_of(above)


def length_of(partitions: dg.PartitionsDefinition[Any] | None) -> timedelta:
    """How long a partition is, whether one is over yet or not; nothing without partitions of time."""
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return timedelta(0)
    # By the bounds of the calendar a day that has begun in it would have no length until it is over.
    window = partitions.get_next_partition_window(partitions.start, respect_bounds=False)
    return window.end - window.start if window else timedelta(0)


def _may_lack(graph: AssetGraph, asset: dg.AssetKey, seen: frozenset[dg.AssetKey] = frozenset()) -> bool:
    """Whether the asset, or what it is made of, gathers partitions of other lengths."""
    own, parents = graph.get(asset).partitions_def, graph.get(asset).parent_keys - seen - {asset}
    above = {key: graph.get(key).partitions_def for key in parents}
    in_time = [key for key, each in above.items() if isinstance(each, dg.TimeWindowPartitionsDefinition)]
    return any(above[key] != own or _may_lack(graph, key, seen | {asset}) for key in in_time)


def _same_length(
    context: dg.InputContext,
    graph: AssetGraph,
    below: dg.PartitionsDefinition[Any],
    above: dg.PartitionsDefinition[Any],
) -> dict[str, Sequence[str]]:
    """What each partition of the step reads of an input with the same ones: itself, or the one before."""
    reader = next(each for each in _assets(context) if context.asset_key in graph.get(each).parent_keys)
    mapping = graph.get_partition_mapping(reader, parent_asset_key=context.asset_key)
    found: dict[str, Sequence[str]] = {}
    for key in _keys(context):
        upstream = mapping.get_upstream_mapped_partitions_result_for_partitions(
            below.subset_with_partition_keys([key]), below, above
        )
        found[key] = sorted(map(str, upstream.partitions_subset.get_partition_keys()))
    return found


def _parts(
    context: dg.InputContext, below: dg.PartitionsDefinition[Any], above: dg.PartitionsDefinition[Any]
) -> dict[str, Sequence[str]]:
    """What each partition of the step reads of the input in its own time."""
    read = {str(key) for key in context.asset_partition_keys}
    return {key: sorted(in_the_time_of(below, [key], above) & read) for key in _keys(context)}


def _keys(context: dg.InputContext) -> Sequence[str]:
    step = context.step_context
    assert step.assets_def is not None  # noqa: S101 - asked by assets only
    return keys_of_step(step) if leaves_out_held(step.assets_def) else keys_asked(step)


def _assets(context: dg.InputContext) -> Sequence[dg.AssetKey]:
    assets = context.step_context.assets_def
    assert assets is not None  # noqa: S101 - asked by assets only
    return sorted(assets.keys)
