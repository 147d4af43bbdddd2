"""Which partitions of a run a gate upstream holds back: they are left out, and the others go on.

Dagster runs the steps behind a blocking check for all partitions of a run or for none. In a range run one bad hour would
therefore stop the good ones beside it. Here a check that finds some keys good and others bad lets its run go on
(`goes_on`), and each asset behind it leaves out what is held (`own_keys`): it does not read these partitions, does not
write them, and records no materialisation of them. They stay missing, or as they were, until the gate passes.

The same holds of one partition, and of assets without partitions, where promises differ (`de_resources/promises.py`): where
something of the run does not need what the red gate guards, the run goes on with it, and what needs it fails by name. In a
pipeline whose partitions go in order the next ones wait all the same (`de_resources/run_queue/failures.py`).

An asset says by `metadata={"held": "left out"}` that it does so; the IO managers of the platform do it for the frames that
they read and write. A check lets a run go on only if every asset behind it says so: others are skipped as Dagster does it.

Which partition waits for which follows from time alone, as it does for `de run`: a bad hour holds back its hour and its
day, and not the days that look back on it. An asset that reads itself builds each partition on the one before: there all
that come after a held one wait as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import dagster as dg

from de_resources.compat.graph import AssetGraph, whole_graph
from de_resources.compat.narrowing import (
    StepExecutionContext,
    narrow_input,
    narrow_outputs,
    partition_loading_context,
)
from de_resources.errors import PermanentError
from de_resources.gates import refused, refused_whole
from de_resources.promises import gates_of, needed
from de_resources.run_queue.places import PIPELINE

HELD, LEFT_OUT = "held", "left out"
"""Metadata of an asset that leaves out what a gate upstream holds back."""

_BACKFILL = "dagster/backfill"
_SAME_TIME = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
_SHOWN = 3


class HeldBack(PermanentError):
    """All that a run is for waits for a gate upstream."""

    def __init__(self, asset: str, reasons: Mapping[str, str]) -> None:
        self.asset, self.reasons = asset, dict(reasons)
        told = "; ".join(f"{key}: {why}" for key, why in list(reasons.items())[:_SHOWN])
        more = f"; and {len(reasons) - _SHOWN:,} more" if len(reasons) > _SHOWN else ""
        super().__init__(
            f"`{asset}` was not computed, for what it reads did not pass ({told}{more}). "
            "Do what the red check wants, and materialise the partitions again when it is green."
        )


def in_the_time_of(above: dg.PartitionsDefinition, keys: Iterable[str], below: dg.PartitionsDefinition) -> set[str]:
    """The partitions below whose time has some in common with these above."""
    subset = above.empty_subset().with_partition_keys(keys)
    found = _SAME_TIME.get_downstream_partitions_for_partitions(subset, above, downstream_partitions_def=below)
    return set(found.get_partition_keys())


def own_keys(context: dg.AssetExecutionContext) -> list[str]:
    """The partitions that the asset's function computes: those of the run without what is held back upstream, in order.

    To be asked for in place of `context.partition_keys` wherever something upstream has a gate. Materialisations are
    recorded of these only. Raises `HeldBack` where none is left.
    """
    return keys_of_step(context.op_execution_context.get_step_execution_context())


def keys_of_step(step: StepExecutionContext) -> list[str]:
    """The same for the step: what its IO managers read and write. Of an asset without partitions: none."""
    if step not in _KEYS:
        _KEYS[step] = _keys_of_step(step)
    return _KEYS[step]


def keys_asked(step: StepExecutionContext) -> list[str]:
    """The partitions that the run asks the step for, in order, whatever is held back."""
    return _Run.of(step).keys


def leaves_out_held(asset: dg.AssetsDefinition) -> bool:
    """Whether everything that the definition writes says that it leaves out what is held back."""
    return all(spec.metadata.get(HELD) == LEFT_OUT for spec in asset.specs)


def leave_out(context: dg.InputContext) -> None:
    """Let an input consist of what the step's own keys read; before it is loaded. Raises `HeldBack` where none is left."""
    step = context.step_context
    keys, run = keys_of_step(step), _Run.of(step)
    if context.has_asset_partitions and len(keys) < len(run.keys):
        reader = run.asset_of(step)
        narrow_input(context, run.graph.get_partition_mapping(reader, parent_asset_key=context.asset_key), keys)


def goes_on(step: StepExecutionContext, check: dg.AssetCheckKey, *, some_pass: bool) -> bool:
    """Whether a red gate may let its run go on.

    It may where something of the run lies behind its asset, all of that leaves out what is held, and there is something to
    go on with: partitions that pass, or an asset that does not need what this gate guards.
    """
    run = _Run.of(step)
    behind = run.behind(check.asset_key)
    if not behind or not all(run.graph.get(key).metadata.get(HELD) == LEFT_OUT for key in behind):
        return False
    return (run.is_judged and some_pass) or check in run.not_needed_by_all(check.asset_key)


def holds_the_next(step: StepExecutionContext, asset: dg.AssetKey) -> bool:
    """Whether partitions of the asset that did not pass hold the next ones: it is of a pipeline that goes in order."""
    return PIPELINE in _Run.of(step).graph.get(asset).tags


def left_out(step: StepExecutionContext, asset: dg.AssetKey, keys: Collection[str]) -> dict[str, str]:
    """The keys of the asset that this very run leaves out, with what holds them back; of assets of other runs none."""
    run = _Run.of(step)
    leaves_out = run.is_judged and asset in run.assets and run.graph.get(asset).metadata.get(HELD) == LEFT_OUT
    return run.held(asset, keys) if leaves_out else {}


_KEYS: WeakKeyDictionary[StepExecutionContext, list[str]] = WeakKeyDictionary()


def _keys_of_step(step: StepExecutionContext) -> list[str]:
    run = _Run.of(step)
    asset = run.asset_of(step)
    held = run.held(asset, run.keys)
    keys = [key for key in run.keys if key not in held]
    if held and not keys:
        raise HeldBack(asset.to_user_string(), held)
    if held:
        step.log.warning(f"Left out, for what they read did not pass: {held}")
        narrow_outputs(step, keys)
    return keys


@dataclass(frozen=True)
class _Run:
    """A run over partitions, and the graph around it."""

    instance: dg.DagsterInstance
    graph: AssetGraph
    assets: frozenset[dg.AssetKey]
    """What the run materialises."""
    keys: list[str]
    """The partitions of the step, in order; none for an asset without partitions."""
    range: dg.PartitionKeyRange | None
    """Of the run, also where the step has no partitions."""
    is_judged: bool
    """A range or a part of a backfill. About a single partition, who asked for it decides."""

    @classmethod
    def of(cls, step: StepExecutionContext) -> _Run:
        layer, partitions = step.job_def.asset_layer, step.entity_partitions_def
        ends = step.partition_key_range if step.has_partitions else None
        is_range = step.has_partition_key_range and not step.has_partition_key
        return cls(
            step.instance,
            whole_graph(step.job_def),
            frozenset(layer.selected_asset_keys),
            [] if partitions is None or ends is None else _between(partitions, ends, step.instance),
            ends,
            is_range or _BACKFILL in step.dagster_run.tags,
        )

    def asset_of(self, step: StepExecutionContext) -> dg.AssetKey:
        """One asset that the step writes, which stands for all of them."""
        assert step.assets_def is not None  # noqa: S101 - asked by assets only
        return min(step.assets_def.keys)

    def behind(self, asset: dg.AssetKey) -> set[dg.AssetKey]:
        """What this run materialises from the asset, directly or not."""
        found: set[dg.AssetKey] = set()
        coming = [asset]
        while coming:
            children = (self.graph.get(coming.pop()).child_keys & self.assets) - found - {asset}
            found |= children
            coming += children
        return found

    def not_needed_by_all(self, asset: dg.AssetKey) -> set[dg.AssetCheckKey]:
        """The asset's gates that something of this run does not need though it reads the asset."""
        children = self.graph.get(asset).child_keys & self.assets
        readers = (self.graph.get(key).execution_set_asset_keys for key in children)
        return {
            gate
            for together in readers
            if asset not in together
            for gate in gates_of(self.graph, asset) - self._needed(together, asset)
        }

    def _needed(self, together: Collection[dg.AssetKey], parent: dg.AssetKey) -> frozenset[dg.AssetCheckKey]:
        return needed(self.graph, [each for each in together if parent in self.graph.get(each).parent_keys], parent)

    def _asks(self, parent: dg.AssetKey) -> bool:
        """Whether a red gate of the parent can hold back a step of this run.

        In a run for a single partition, or without any, its own ones, and those only that it can have gone on with.
        """
        node = self.graph.get(parent)
        if not node.is_materializable:
            return False
        goes_on = parent in self.assets and bool(self.not_needed_by_all(parent))
        return goes_on or (self.is_judged and node.is_partitioned)

    def held(self, asset: dg.AssetKey, keys: Collection[str]) -> dict[str, str]:
        """Those of the asset's keys that wait for a gate, with what it said; `""` is an asset without partitions.

        What one step writes waits together.
        """
        found: dict[str, str] = {}
        together = self.graph.get(asset).execution_set_asset_keys
        for parent in sorted({up for each in together for up in self.graph.get(each).parent_keys} - together):
            if self._asks(parent):
                for below, why in self._by_parent(asset, keys, parent):
                    found.setdefault(below, why)
        return {**found, **self._built_on(asset, keys, found)} if found else {}

    def _built_on(self, asset: dg.AssetKey, keys: Collection[str], held: Mapping[str, str]) -> dict[str, str]:
        """Of an asset that reads itself, the keys after the first that is held, for its reason."""
        partitions = self.graph.get(asset).partitions_def
        if not (
            self.graph.get(asset).has_self_dependency and isinstance(partitions, dg.TimeWindowPartitionsDefinition)
        ):
            return {}
        ordered = sorted(keys, key=partitions.start_time_for_partition_key)
        first = next(key for key in ordered if key in held)
        later = ordered[ordered.index(first) + 1 :]
        return {key: f"it builds on {first}, {held[first]}" for key in later if key not in held}

    def _by_parent(self, asset: dg.AssetKey, keys: Collection[str], parent: dg.AssetKey) -> Iterator[tuple[str, str]]:
        below, above = self.graph.get(asset).partitions_def, self.graph.get(parent).partitions_def
        gates = self._needed(self.graph.get(asset).execution_set_asset_keys, parent)
        if above is None:
            if check := refused_whole(self.instance, parent, gates):
                yield from ((key, f"{parent.to_user_string()}, {check}") for key in keys or [""])
            return
        if below is None:
            if parent in self.assets and self.range is not None:
                bad = self._bad(parent, _between(above, self.range, self.instance), gates)
                yield from (("", why) for why in bad.values())
            return
        with partition_loading_context(dynamic_partitions_store=self.instance):
            lies_in = _Times(below, above, self.graph.get_partition_mapping(asset, parent_asset_key=parent))
            for key, why in self._bad(parent, lies_in.above_of(keys), gates).items():
                yield from ((found, why) for found in sorted(lies_in.below_of(key) & {*keys}))

    def _bad(self, asset: dg.AssetKey, keys: Collection[str], gates: Collection[dg.AssetCheckKey]) -> dict[str, str]:
        """Those of the keys that did not pass these gates, or that are not there because something above them did not."""
        found = refused(self.instance, self.graph, asset, keys, gates)
        not_passed = {key: f"{asset.to_user_string()} {key}, {check}" for key, check in found.items()}
        there = set() if asset in self.assets else self.instance.get_materialized_partitions(asset)
        waiting = [key for key in keys if key not in not_passed and key not in there]
        return not_passed | (self.held(asset, waiting) if waiting else {})


def _between(
    partitions: dg.PartitionsDefinition, ends: dg.PartitionKeyRange, instance: dg.DagsterInstance
) -> list[str]:
    with partition_loading_context(dynamic_partitions_store=instance):
        return [str(key) for key in partitions.get_partition_keys_in_range(ends)]


@dataclass(frozen=True)
class _Times:
    """Which partitions of two assets lie in the same time; of partitions that are no times, which belong together."""

    below: dg.PartitionsDefinition
    above: dg.PartitionsDefinition
    mapping: dg.PartitionMapping

    def above_of(self, keys: Collection[str]) -> set[str]:
        """What these partitions read in their own time."""
        if self._are_the_same:
            return {*keys}
        if self._are_times:
            return in_the_time_of(self.below, keys, self.above)
        wanted = self.below.subset_with_partition_keys(keys)
        found = self.mapping.get_upstream_mapped_partitions_result_for_partitions(wanted, self.below, self.above)
        return {str(key) for key in found.partitions_subset.get_partition_keys()}

    def below_of(self, key: str) -> set[str]:
        """What reads this partition in its own time."""
        if self._are_the_same:
            return {key}
        if self._are_times:
            return in_the_time_of(self.above, [key], self.below)
        wanted = self.above.subset_with_partition_keys([key])
        found = self.mapping.get_downstream_partitions_for_partitions(wanted, self.above, self.below)
        return {str(each) for each in found.get_partition_keys()}

    @property
    def _are_the_same(self) -> bool:
        return self._are_times and self.below == self.above

    @property
    def _are_times(self) -> bool:
        both = (self.below, self.above)
        return all(isinstance(each, dg.TimeWindowPartitionsDefinition) for each in both)
