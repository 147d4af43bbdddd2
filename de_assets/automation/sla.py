"""How long the steps of all assets take, and what the contracts promise about time. Pattern: SLA Misses Detector.

A promise is written in the contract (`sla`) and nowhere else. An asset without one is measured by its own history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from de_checks.sla import deadline_check, duration_check, step_duration_check
from de_resources.contract import Contract
from de_resources.contract.sla import Sla

Assets = Sequence[dg.AssetsDefinition | dg.AssetSpec]


def sla_checks(assets: Assets) -> list[dg.AssetChecksDefinition]:
    """For each asset that is watched a check of how long its step takes; where it promises that, one of when it is there."""
    known = {spec.key: spec for spec in _specs(assets)}
    return [check for spec, sla in _watched(assets) for check in _checks(spec, sla, known)]


def watched(assets: Assets) -> dict[str, Sla | None]:
    """By asset, what its contract promises; None where its steps are measured by their own history alone.

    Of the outputs of one step those are left out whose duration another one tells: what is written together takes as long.
    """
    return {spec.key.to_user_string(): sla for spec, sla in _watched(assets)}


def datasets(assets: Assets) -> dict[str, dg.AssetSpec]:
    """The specs of all assets, by their keys."""
    return {spec.key.to_user_string(): spec for spec in _specs(assets)}


def keys_of(assets: Assets) -> Callable[[str, dg.DagsterRun], int]:
    """Says how many partitions of an asset a run writes, by its tags."""
    calendars = {spec.key.to_user_string(): spec.partitions_def for spec in _specs(assets)}

    def count(asset: str, run: dg.DagsterRun) -> int:
        calendar = calendars.get(asset)
        ends = [run.tags.get(f"dagster/asset_partition_range_{end}") for end in ("start", "end")]
        if calendar is None or not all(ends):
            return 1
        return len(calendar.get_partition_keys_in_range(dg.PartitionKeyRange(str(ends[0]), str(ends[1]))))

    return count


def promise(spec: dg.AssetSpec) -> Sla | None:
    """What the contract of an asset promises about time."""
    path = spec.metadata.get("contract")
    return Contract.load(str(path)).sla if path else None


def _watched(assets: Assets) -> Iterator[tuple[dg.AssetSpec, Sla | None]]:
    for definition in assets:
        if isinstance(definition, dg.AssetSpec) or not definition.is_materializable:
            continue
        own = [(spec, promise(spec)) for spec in definition.specs]
        promising = [(spec, sla) for spec, sla in own if sla]
        yield from own if definition.can_subset else promising or own[-1:]


def _checks(
    spec: dg.AssetSpec, sla: Sla | None, known: dict[dg.AssetKey, dg.AssetSpec]
) -> Iterator[dg.AssetChecksDefinition]:
    # A verdict by partition is for a promise: it costs an event for each.
    yield duration_check(spec, sla) if sla else step_duration_check(spec)
    if sla and sla.ready_within is not None:
        yield deadline_check(spec, sla, [known[dep.asset_key] for dep in spec.deps if dep.asset_key in known])


def _specs(assets: Assets) -> Iterator[dg.AssetSpec]:
    for definition in assets:
        yield from [definition] if isinstance(definition, dg.AssetSpec) else definition.specs
