"""Where a run stands in the order of its pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import dagster as dg

from de_resources.compat.queueing import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    HIDDEN_TAG_PREFIX,
    PARTITION_NAME_TAG,
    RemoteWorkspaceAssetGraph,
    description_of,
    partitions_of,
)
from de_resources.errors import PermanentError

PIPELINE = "single_runner"
"""On an asset, and on its runs: the pipeline whose runs go in order."""
WAITS_FOR = f"{PIPELINE}/waits_for"
"""On a queued run, for people: what its turn waits for."""
TURN, WAITS, HAS_COME = f"{HIDDEN_TAG_PREFIX}{PIPELINE}_turn", "waits", "has come"
"""On a queued run, for the queue."""
PLACE = f"{HIDDEN_TAG_PREFIX}{PIPELINE}_place"


class SeveralPipelines(PermanentError):
    """A run of assets that go in several orders, which may contradict each other."""

    def __init__(self, pipelines: Sequence[str]) -> None:
        self.pipelines = tuple(pipelines)
        super().__init__(
            f"The run has assets of {len(self.pipelines)} pipelines whose runs go in order: {', '.join(self.pipelines)}. "
            "Nothing was queued. Launch the assets of each pipeline in a run of their own."
        )


def in_order(pipeline: str) -> dict[str, str]:
    """The tags of an asset whose runs go one at a time and in the order of their partitions.

    Assets that name the same pipeline wait for each other.
    """
    return {PIPELINE: pipeline}


@dataclass(frozen=True)
class Place:
    """The partitions of a run, and which assets of its pipeline it computes."""

    pipeline: str
    assets: tuple[str, ...]
    first: str | None = None
    """The run's first partition, and its last; none of a run without partitions, whose place is that of its launch."""
    last: str | None = None
    begin: float = 0.0
    """Of the first partition: seconds since 1970, or its number where partitions are no times."""
    partitions: str = ""
    """Of a range: Dagster's own description of its partitions, from which those in between are known."""

    def tags(self) -> dict[str, str]:
        """What a run is given when it is queued; what a retry has copied from the run before is replaced."""
        return {PIPELINE: self.pipeline, TURN: WAITS, WAITS_FOR: "", PLACE: json.dumps(asdict(self))}

    def told(self) -> str:
        """The partitions, for people."""
        if self.first is None:
            return "one without partitions"
        return self.first if self.first == self.last else f"{self.first} to {self.last}"

    def rests(self) -> Iterator[Place]:
        """From each of its partitions on to the last one, in order; nothing of a run without partitions."""
        if self.first is None or self.last is None:
            return
        if not self.partitions:
            yield self
            return
        described = partitions_of(self.partitions)
        keys = described.get_partition_keys_in_range(dg.PartitionKeyRange(self.first, self.last))
        begin_of_first = _begin(described, self.first)
        for key in keys:
            yield replace(self, first=key, begin=self.begin + _begin(described, key) - begin_of_first)

    @classmethod
    def of_tags(cls, tags: Mapping[str, str]) -> Place:
        """The place of a queued run."""
        known: dict[str, Any] = json.loads(tags[PLACE])
        return cls(**{**known, "assets": tuple(known["assets"])})


def place_of(run: dg.DagsterRun, graph: RemoteWorkspaceAssetGraph, instance: dg.DagsterInstance) -> Place | None:
    """Where a run stands that is about to be queued; none for a run of other assets.

    Raises `SeveralPipelines`.
    """
    tags_of = {key: graph.get(key).tags for key in chosen_assets(run, graph)}
    ordered = {key: tags[PIPELINE] for key, tags in tags_of.items() if PIPELINE in tags}
    if not ordered:
        return None
    pipelines = sorted(set(ordered.values()))
    if len(pipelines) > 1:
        raise SeveralPipelines(pipelines)
    assets = sorted(ordered, key=dg.AssetKey.to_user_string)
    names = tuple(key.to_user_string() for key in assets)
    first, last = partition_range(run.tags)
    partitions = graph.get(assets[0]).partitions_def
    if first is None or partitions is None:
        return Place(pipelines[0], names)
    between = "" if first == last else described(partitions, first, str(last), instance)
    return Place(pipelines[0], names, first, last, _begin(partitions, first, instance), between)


def chosen_assets(run: dg.DagsterRun, graph: RemoteWorkspaceAssetGraph) -> set[dg.AssetKey]:
    """The assets of a run: those that were selected, or all of its job."""
    if run.asset_selection is not None:
        return {key for key in run.asset_selection if graph.has(key)}
    return {key for key in graph.materializable_asset_keys if run.job_name in graph.get(key).job_names}


def partition_range(tags: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The first and the last partition key that a run is for, by its tags; None twice where it names none."""
    if PARTITION_NAME_TAG in tags:
        return tags[PARTITION_NAME_TAG], tags[PARTITION_NAME_TAG]
    return tags.get(ASSET_PARTITION_RANGE_START_TAG), tags.get(ASSET_PARTITION_RANGE_END_TAG)


def _begin(partitions: dg.PartitionsDefinition[Any], key: str, instance: dg.DagsterInstance | None = None) -> float:
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return partitions.time_window_for_partition_key(key).start.timestamp()
    return float(partitions.get_partition_keys(dynamic_partitions_store=instance).index(key))


def described(
    partitions: dg.PartitionsDefinition[Any], first: str, last: str, instance: dg.DagsterInstance | None = None
) -> str:
    """What a place says of the partitions of a range: times by their rule, others by name, for they may change."""
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        keys = partitions.get_partition_keys(dynamic_partitions_store=instance)
        partitions = dg.StaticPartitionsDefinition(keys[keys.index(first) : keys.index(last) + 1])
    return description_of(partitions)
