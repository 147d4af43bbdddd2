"""What the instance knows about a consumer of a changing table: runs over its partitions, gates of its source.

Part of *Dynamic Late Data Integrator*. Everything is asked of Dagster's own records, so that it does not matter who
started a run: the integrator, an automation condition, or a person.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import dagster as dg

from de_resources.contract import Contract
from de_resources.delta.log.changed_partitions import ChangedPartitions, PartitionChange
from de_resources.delta.read_versions import version_read
from de_resources.errors import PermanentError
from de_resources.gates import passed
from de_resources.late_data.state import Processed
from de_resources.promises import needed

if TYPE_CHECKING:
    from de_resources.compat.graph import AssetGraph

CLAIM_TAG = "late/claim"
"""Run tag: the claim that a run was requested for."""

RECORDS_PER_TICK = 500
"""A record of a materialisation has all of its metadata."""


class Fate(StrEnum):
    """What became of a claim's run."""

    NO_RUN = "no run"
    UNDER_WAY = "under way"
    ENDED = "ended"


class NotByTime(PermanentError):
    """A consumer or a source without time partitions: there is no order in which anything could be late."""

    def __init__(self, asset: str) -> None:
        self.asset = asset
        super().__init__(
            f"`{asset}` has no time partitions, so that nothing of it can be late. Give it `partitions_def`."
        )


class NotStoredBy(PermanentError):
    """A source whose log cannot tell which partitions of a consumer a commit is about."""

    def __init__(self, source: str, column: str) -> None:
        self.source, self.column = source, column
        super().__init__(
            f"`{source}` is not stored by `{column}`, so that its log does not tell what changed. Name the column in "
            "`partitioned_by` of its contract; a table from before that is removed, and its partitions are materialised again."
        )


class AgeUnsaid(PermanentError):
    """A consumer of which nobody said up to what age it takes late changes in."""

    def __init__(self, asset: str) -> None:
        self.asset = asset
        super().__init__(
            f"Nobody says up to what age `{asset}` takes in what comes late. Say `late_for` in the `Config.metadata` of its "
            "contract; without a contract, give the sensor a policy with `max_age`."
        )


@dataclass(frozen=True)
class Consumer:
    """An asset whose partitions are computed from the partitions of a source, as the graph declares both.

    `column` is for a source that keeps rows by another time than that of the consumer's partitions, as late rows by the time at
    which they came: the column, one of those by which it is stored, that says to which partition of the consumer they belong.
    """

    key: dg.AssetKey
    source: dg.AssetKey
    graph: AssetGraph
    column: str = ""

    @property
    def name(self) -> str:
        """The asset's key as people write it, by which its state is kept; of a second source there is another state."""
        name = self.key.to_user_string()
        return f"{name} of {self.source.to_user_string()}" if self.column else name

    @property
    def is_stateful(self) -> bool:
        """Whether its partitions build on each other: rows of a stateful merge, or an asset that reads itself."""
        node = self.graph.get(self.key)
        return bool(node.metadata.get("stateful")) or bool(node.has_self_dependency)

    @property
    def takes_ranges(self) -> bool:
        """Whether one run may compute several partitions."""
        policy = self.graph.get(self.key).backfill_policy
        return policy is not None and policy.max_partitions_per_run is None and not self.is_stateful

    def late_for(self, otherwise: timedelta | None = None) -> timedelta:
        """How long after its time a partition still takes in what comes late, as its contract says; else `otherwise`.

        Raises `AgeUnsaid`.
        """
        contract = self.graph.get(self.key).metadata.get("contract")
        said = (Contract.load(str(contract)).late_for if contract else None) or otherwise
        if said is None:
            raise AgeUnsaid(self.name)
        return said

    @cached_property
    def partitions(self) -> dg.TimeWindowPartitionsDefinition:
        """The consumer's partitions."""
        return self._by_time(self.key)

    @cached_property
    def source_partitions(self) -> dg.TimeWindowPartitionsDefinition:
        """The source's."""
        return self._by_time(self.source)

    def end_of(self, key: str) -> datetime:
        """The end of a partition's time."""
        return self.partitions.time_window_for_partition_key(key).end

    def by_partition(
        self, found: ChangedPartitions, columns: Sequence[str]
    ) -> dict[str, tuple[datetime, PartitionChange]]:
        """Changes of the source as partitions of the consumer: the last one of each. Others' times are left out.

        `columns` are those by which the source is stored; the one that carries its Dagster partition tells the time, or
        `column`. Raises `NotStoredBy`.
        """
        wanted = self.column or self.graph.get(self.source).metadata["partition_expr"]
        if wanted not in columns:
            raise NotStoredBy(self.source.to_user_string(), wanted)
        place = columns.index(wanted)
        latest: dict[str, tuple[datetime, PartitionChange]] = {}
        for values, change in found.changed.items():
            key = self._key_at(values[place])
            if key is not None and (key not in latest or latest[key][1].version < change.version):
                latest[key] = self.end_of(key), change
        return latest

    def source_keys(self, key: str) -> list[str]:
        """The source's partitions within the time of a partition of the consumer."""
        window = self.partitions.time_window_for_partition_key(key)
        return list(self.source_partitions.get_partition_keys_in_time_window(window))

    def existing_source_keys(self, key: str) -> list[str]:
        """Those of them that the source has: a calendar may begin and end in the middle of a day."""
        return [part for part in self.source_keys(key) if self.source_partitions.has_partition_key(part)]

    def _key_at(self, value: str | None) -> str | None:
        if value is None:
            return None
        moment = datetime.fromisoformat(value)
        moment = moment.replace(tzinfo=self.partitions.start.tzinfo) if moment.tzinfo is None else moment
        # A wrong clock may say any year, and not every one has a key.
        first, last = self.partitions.get_first_partition_window(), self.partitions.get_last_partition_window()
        if first is None or last is None or not first.start <= moment < last.end:
            return None
        key = self.partitions.get_partition_key_for_timestamp(moment.timestamp())
        return key if self.partitions.has_partition_key(key) else None

    def _by_time(self, key: dg.AssetKey) -> dg.TimeWindowPartitionsDefinition:
        partitions = self.graph.get(key).partitions_def
        if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
            raise NotByTime(key.to_user_string())
        return partitions


@dataclass(frozen=True)
class Runs:
    """The instance's records of one consumer."""

    instance: dg.DagsterInstance
    consumer: Consumer

    def busy(self, keys: Collection[str]) -> set[str]:
        """Of these partitions, those that some run is writing or was created to write."""
        return _in_progress(self.instance, self.consumer.key, self.consumer.partitions, keys)

    def processed(
        self,
        keys: Collection[str] | None,
        known: Mapping[str, int | None],
        released: Collection[str],
        source: tuple[str, str],
    ) -> dict[str, Processed]:
        """What the last run over each partition had read of the source, where it is not the `known` one.

        `keys` None: all partitions. At most `RECORDS_PER_TICK`, those to be `released` and then the newest: others come
        next time. `source` is the name and the identity of the source's table.
        """
        wanted = set(keys) if keys is not None else None
        latest = self.instance.get_latest_storage_id_by_partition(
            self.consumer.key, dg.DagsterEventType.ASSET_MATERIALIZATION, wanted
        )
        unknown = [key for key, at in latest.items() if known.get(key) != at and self._exists(key)]
        unknown.sort(key=lambda key: (key in released, self.consumer.end_of(key)))
        ids = {key: latest[key] for key in unknown[-max(RECORDS_PER_TICK, len(released)) :]}
        read = {n: version_read(m.metadata, *source) for n, m in self._materialisations(ids.values())}
        return {key: Processed(self.consumer.end_of(key), read.get(at), at) for key, at in ids.items()}

    def fate(self, claim: str) -> Fate:
        """What became of the run that was requested under a claim."""
        runs = self.instance.get_runs(dg.RunsFilter(tags={CLAIM_TAG: claim}))
        if not runs:
            return Fate.NO_RUN
        return Fate.ENDED if all(run.is_finished for run in runs) else Fate.UNDER_WAY

    def held(self, keys: Iterable[str]) -> set[str]:
        """Of these partitions, those with a source partition that is being written, or that did not pass its gates."""
        within = {key: self.consumer.source_keys(key) for key in keys}
        asked = {part for parts in within.values() for part in parts}
        unsettled = _in_progress(self.instance, self.consumer.source, self.consumer.source_partitions, asked)
        in_the_way = unsettled | self._ungated(asked)
        return {key for key, parts in within.items() if in_the_way.intersection(parts)}

    def _ungated(self, parts: set[str]) -> set[str]:
        graph, source = self.consumer.graph, self.consumer.source
        asked = needed(graph, [self.consumer.key], source)
        gates = [check for check in asked if graph.get_check_spec(check).partitions_def is not None]
        if not gates or not parts:
            return set()
        written = self.instance.get_latest_storage_id_by_partition(
            source, dg.DagsterEventType.ASSET_MATERIALIZATION, parts
        )
        good = passed(self.instance, gates, written)
        return {key for key in written for gate in gates if (gate, key) not in good}

    def _exists(self, key: str) -> bool:
        return bool(self.consumer.partitions.has_partition_key(key))

    def _materialisations(self, ids: Collection[int]) -> Iterable[tuple[int, dg.AssetMaterialization]]:
        if not ids:
            return
        wanted = dg.AssetRecordsFilter(asset_key=self.consumer.key, storage_ids=sorted(ids))
        for record in self.instance.fetch_materializations(wanted, limit=len(ids)).records:
            if record.asset_materialization is not None:
                yield record.storage_id, record.asset_materialization


def _in_progress(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    partitions: dg.TimeWindowPartitionsDefinition,
    keys: Collection[str],
) -> set[str]:
    status = instance.get_status_by_partition(asset, list(keys), partitions) or {}
    return {key for key in keys if status.get(key) == dg.AssetPartitionStatus.IN_PROGRESS}
