"""Of how many of its inputs a partition was made that gathers several of another asset. Pattern: Aligned Fan-In.

Told in one place for every asset: where the input is read. What is read a moment later is what was there then, whoever asked
for the run. A day without one of its hours says so in the metadata of its materialisation, and no longer when it is computed
with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg

from de_resources.compat.graph import whole_graph
from de_resources.compat.narrowing import StepExecutionContext
from de_resources.fan_in import FanIn, fan_in
from de_resources.held_back import in_the_time_of, keys_asked, keys_of_step, leaves_out_held

_TOLD: WeakKeyDictionary[StepExecutionContext, dict[str, FanIn]] = WeakKeyDictionary()
"""What a step gathers from the inputs that it has read so far, by its own partition."""


def tell_completeness(context: dg.InputContext) -> None:
    """Record at each partition of the step how complete this input of it is, beside those that were read before.

    What counts is the input in the partition's own time; what it looks back or ahead to comes and goes for itself. Two
    questions to the event log for all partitions of the run; none where the input has no partitions in time, or the same.
    """
    step = context.step_context
    below, above = step.entity_partitions_def, context.asset_partitions_def if context.has_asset_partitions else None
    in_time = all(isinstance(each, dg.TimeWindowPartitionsDefinition) for each in (below, above))
    if step.assets_def is None or below is None or above is None or not in_time or below == above:
        return
    parts = _parts(context, below, above)
    if not any(len(each) > 1 for each in parts.values()):
        return
    graph, told = whole_graph(step.job_def), _TOLD.setdefault(step, {})
    inputs = fan_in(step.instance, graph, context.asset_key, [part for each in parts.values() for part in each])
    readers = [each for each in step.assets_def.keys if context.asset_key in graph.get(each).parent_keys]
    for key, own in ((key, inputs.of(each)) for key, each in parts.items()):
        told[key] = told[key].beside(own) if key in told else own
        for reader in readers:
            step.add_asset_metadata(told[key].told, reader, key)


def _parts(
    context: dg.InputContext, below: dg.PartitionsDefinition[Any], above: dg.PartitionsDefinition[Any]
) -> dict[str, Sequence[str]]:
    """What each partition of the step reads of the input in its own time."""
    step = context.step_context
    assert step.assets_def is not None  # noqa: S101 - asked by assets only
    keys = keys_of_step(step) if leaves_out_held(step.assets_def) else keys_asked(step)
    read = {str(key) for key in context.asset_partition_keys}
    return {key: sorted(in_the_time_of(below, [key], above) & read) for key in keys}
