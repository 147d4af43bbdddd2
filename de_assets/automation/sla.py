"""Checks of what the contracts promise about time. Pattern: SLA Misses Detector.

A promise is written in the contract (`sla`) and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from de_checks.sla import deadline_check, duration_check
from de_resources.contract import Contract
from de_resources.contract.sla import Sla

Assets = Sequence[dg.AssetsDefinition | dg.AssetSpec]


def sla_checks(assets: Assets) -> list[dg.AssetChecksDefinition]:
    """For each dataset with a promise a check of how long it takes, and where it promises that, one of when it is there."""
    known = {spec.key: spec for spec in _specs(assets)}
    return [check for spec in known.values() if (sla := promise(spec)) for check in _checks(spec, sla, known)]


def promises(assets: Assets) -> dict[str, Sla]:
    """By asset, what its contract promises."""
    return {spec.key.to_user_string(): sla for spec in _specs(assets) if (sla := promise(spec))}


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


def _checks(spec: dg.AssetSpec, sla: Sla, known: dict[dg.AssetKey, dg.AssetSpec]) -> Iterator[dg.AssetChecksDefinition]:
    yield duration_check(spec, sla)
    if sla.ready_within is not None:
        yield deadline_check(spec, sla, [known[dep.asset_key] for dep in spec.deps if dep.asset_key in known])


def _specs(assets: Assets) -> Iterator[dg.AssetSpec]:
    for definition in assets:
        yield from [definition] if isinstance(definition, dg.AssetSpec) else definition.specs
