"""The partitions that an output or an input consists of, which Dagster takes from the tags of the run alone."""

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.execution.context.system import StepExecutionContext

__all__ = ["StepExecutionContext", "narrow_input", "narrow_outputs", "partition_loading_context"]


def narrow_outputs(step: StepExecutionContext, keys: Sequence[str]) -> None:
    """From here on what the step stores consists of these keys, which may have gaps: so are its materialisations."""
    made = step.get_output_context

    def narrowed(*args: object, **more: object) -> dg.OutputContext:
        context: dg.OutputContext = made(*args, **more)  # type: ignore[arg-type]
        partitions = context.asset_partitions_def if context.has_asset_partitions else None
        if partitions is not None:
            context._asset_partitions_subset = partitions.subset_with_partition_keys(keys)
        return context

    step.get_output_context = narrowed  # type: ignore[method-assign]


def narrow_input(context: dg.InputContext, mapping: dg.PartitionMapping, keys: Sequence[str]) -> None:
    """The input consists of what these keys of its reader read, by their mapping, and of nothing else."""
    step, above = context.step_context, context.asset_partitions_def
    below = step.entity_partitions_def
    assert below is not None  # noqa: S101 - only partitions are left out
    wanted = below.subset_with_partition_keys(keys)
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(wanted, below, above)
    context._asset_partitions_subset = found.partitions_subset
