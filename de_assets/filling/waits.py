"""Why a partition is not computed: which partitions above it are not there, or not passed, down to the first cause.

A day that waits says in the UI that it waits, and not for which hour. This looks it up: it follows the partition mappings
upwards, step by step, and tells "required and not there yet" from "nobody brought it". It asks Dagster's event log only: no
table is read, and nothing is requested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import dagster as dg

from de_assets.filling.units import Unit, units
from de_resources.errors import PermanentError
from de_resources.fan_in import LACKING, MISSING
from de_resources.gates import passed

_RUNNING = {dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED}


class Reason(StrEnum):
    """Why partitions are no input yet."""

    READY = "all that it reads is there: it was not computed yet"
    NOT_BROUGHT = (
        "never computed; nothing above it in the graph is missing, so its source has not brought it, or nobody asked"
    )
    FAILED = "its last run failed"
    RUNNING = "it is being computed"
    NOT_PASSED = "a blocking check has not passed on what is there"
    DONE_WITHOUT = "the partition is there, and was computed without them"


@dataclass(frozen=True)
class Cause:
    """Partitions of an asset (`""`: it has none) that something waits for; `told` names the run or the checks."""

    asset: str
    keys: tuple[str, ...]
    reason: Reason
    told: str = ""

    @property
    def why(self) -> str:
        """The reason, with the run or the checks."""
        return f"{self.reason} ({self.told})" if self.told else str(self.reason)

    def shown(self, most: int = 5) -> str:
        """The partitions, or the first of them and how many more there are."""
        more = f" and {len(self.keys) - most:,} more" if len(self.keys) > most else ""
        return f"{', '.join(self.keys[:most])}{more}"


class NoSuchAsset(PermanentError):
    """An asset that no code location computes."""

    def __init__(self, asset: str, known: Collection[str]) -> None:
        self.asset = asset
        near = sorted(each for each in known if each.split("/")[-1] == asset.split("/")[-1])
        hint = f" Is it `{near[0]}`?" if near else " `de starts` lists them."
        super().__init__(f"No code location computes `{asset}`.{hint}")


class NoSuchPartition(PermanentError):
    """A partition that the asset does not have, or not yet."""

    def __init__(self, asset: str, partition: str, last: str | None) -> None:
        self.asset, self.partition = asset, partition
        has = f"its newest one that is over is {last}" if last else "none of its partitions is over"
        super().__init__(f"`{asset}` has no partition {partition[:80]!r}: {has}.")


class Waits:
    """What holds partitions back, of all locations. Each asset is looked up once, when it is first asked for."""

    def __init__(self, instance: dg.DagsterInstance, locations: Iterable[dg.Definitions]) -> None:
        self._instance = instance
        self._known: dict[dg.AssetKey, Mapping[str, int]] = {}
        self._tries: dict[dg.AssetKey, Mapping[str, tuple[str, int]]] = {}
        self._good: dict[dg.AssetKey, Collection[tuple[dg.AssetCheckKey, str | None]]] = {}
        self._units = {key: unit for unit in units(locations) for key in unit.assets}

    def fan_ins(self) -> list[str]:
        """The assets of which a partition reads several of another asset's, upstream first."""
        return [key.to_user_string() for key, unit in self._units.items() if self._gathers(unit, key)]

    def _gathers(self, unit: Unit, key: dg.AssetKey) -> bool:
        newest = unit.partitions.get_last_partition_key() if unit.partitions else None
        parents = self._parents(unit, key)
        return newest is not None and any(
            self._units[parent].partitions and len(self._read(unit, key, parent, {newest})) > 1 for parent in parents
        )

    def open(self, asset: str) -> list[str]:
        """The partitions whose time is over and that are not there, in order. Raises `NoSuchAsset`."""
        unit, key = self._unit(asset)
        there = self._there(key)
        return [
            each for each in (unit.partitions.get_partition_keys() if unit.partitions else [""]) if each not in there
        ]

    def causes(self, asset: str, partition: str = "") -> list[Cause]:
        """Why the partition is not there, or what it was done without, nearest first; nothing: it is there and complete.

        Raises `NoSuchAsset`, `NoSuchPartition`.
        """
        unit, key = self._unit(asset)
        known = unit.partitions.get_partition_keys() if unit.partitions else [""]
        if partition not in known:
            raise NoSuchPartition(asset, partition, known[-1] if known else None)
        if partition in self._there(key):
            return [*self._not_passed(unit, key, {partition}), *self._done_without(unit, key, partition)]
        found = _merged(self._above(unit, key, {partition}, set()))
        return found or list(self._tried(key, {partition})) or [Cause(asset, (partition,), Reason.READY)]

    def _done_without(self, unit: Unit, key: dg.AssetKey, partition: str) -> Iterator[Cause]:
        """What the newest run of the partition has told that it was missing, and why that is not there now."""
        wanted = dg.AssetRecordsFilter(key, asset_partitions=[partition] if unit.partitions else None)
        records = self._instance.fetch_materializations(wanted, limit=1).records
        told = records[0].asset_materialization if records else None
        missing = cast("Mapping[str, str]", told.metadata[MISSING].value) if told and MISSING in told.metadata else {}
        if missing:
            yield Cause(key.to_user_string(), tuple(missing), Reason.DONE_WITHOUT)
            read = (
                (parent, each)
                for parent in self._parents(unit, key)
                for each in self._read(unit, key, parent, {partition})
            )
            yield from _merged(self._above(unit, key, {partition}, {each for each in read if each[1] not in missing}))
        yield from _merged(self._lacking_above(unit, key, partition, told))

    def _lacking_above(
        self, unit: Unit, key: dg.AssetKey, partition: str, told: dg.AssetMaterialization | None
    ) -> Iterator[Cause]:
        """What those were done without of which it was made, and which are there."""
        lacking = cast("Mapping[str, Any]", told.metadata[LACKING].value) if told and LACKING in told.metadata else {}
        for parent in self._parents(unit, key) if lacking else ():
            for each in sorted(self._read(unit, key, parent, {partition}) & lacking.keys()):
                yield from self._done_without(self._units[parent], parent, each)

    def _parents(self, unit: Unit, key: dg.AssetKey) -> list[dg.AssetKey]:
        """What the asset reads of the locations."""
        return sorted(unit.location.resolve_asset_graph().get(key).parent_keys & unit.parents & self._units.keys())

    def _unit(self, asset: str) -> tuple[Unit, dg.AssetKey]:
        key = dg.AssetKey(asset.split("/"))
        if key not in self._units:
            raise NoSuchAsset(asset, [each.to_user_string() for each in self._units])
        return self._units[key], key

    def _above(
        self, unit: Unit, key: dg.AssetKey, keys: set[str], seen: set[tuple[dg.AssetKey, str]]
    ) -> Iterator[Cause]:
        """What is missing above these partitions, or has not passed."""
        for parent in self._parents(unit, key):
            read = {each for each in self._read(unit, key, parent, keys) if (parent, each) not in seen}
            seen |= {(parent, each) for each in read}
            above, there = self._units[parent], self._there(parent)
            yield from self._not_passed(above, parent, read & there.keys(), unit.not_needed)
            if absent := read - there.keys():
                yield from self._missing(above, parent, absent, seen)

    def _missing(
        self, unit: Unit, key: dg.AssetKey, keys: set[str], seen: set[tuple[dg.AssetKey, str]]
    ) -> Iterator[Cause]:
        """Why these partitions are not there: what was tried, else what is above, else that nobody brought them."""
        tried = list(self._tried(key, keys))
        yield from tried
        left = keys - {each for cause in tried for each in cause.keys}
        alone = set()
        for each in sorted(left):
            higher = list(self._above(unit, key, {each}, seen))
            yield from higher
            alone |= set() if higher else {each}
        if alone:
            yield Cause(key.to_user_string(), tuple(sorted(alone)), Reason.NOT_BROUGHT)

    def _tried(self, key: dg.AssetKey, keys: set[str]) -> Iterator[Cause]:
        """Partitions that a run means, or meant, to write."""
        storage = self._instance.event_log_storage
        runs: dict[str, set[str]] = {}
        if keys == {""}:
            for record in self._instance.get_asset_records([key]):
                if record.asset_entry.last_run_id:
                    runs[record.asset_entry.last_run_id] = {""}
        else:
            if key not in self._tries:
                self._tries[key] = storage.get_latest_asset_partition_materialization_attempts_without_materializations(
                    key
                )
            tries = self._tries[key]
            for each in sorted(keys & tries.keys()):
                runs.setdefault(tries[each][0], set()).add(each)
        for run_id, own in runs.items():
            run = self._instance.get_run_by_id(run_id)
            if run is not None:
                reason = Reason.RUNNING if run.status in _RUNNING else Reason.FAILED
                yield Cause(key.to_user_string(), tuple(sorted(own)), reason, f"run {run_id}")

    def _not_passed(
        self, unit: Unit, key: dg.AssetKey, keys: Collection[str], but: Collection[dg.AssetCheckKey] = ()
    ) -> Iterator[Cause]:
        """Partitions that are there, and that a blocking check has not judged good as they are; all are asked `but` these."""
        gates = [check for check in sorted(unit.gates & {*unit.checks_by_partition}) if check.asset_key == key]
        if not gates or not keys:
            return
        if key not in self._good:
            self._good[key] = passed(self._instance, gates)
        good = self._good[key]
        for check in (each for each in gates if each not in but):
            bad = tuple(each for each in sorted(keys) if (check, each or None) not in good)
            if bad:
                yield Cause(key.to_user_string(), bad, Reason.NOT_PASSED, f"`{check.name}`")

    def _there(self, key: dg.AssetKey) -> Mapping[str, int]:
        if key not in self._known:
            self._known[key] = self._look(key)
        return self._known[key]

    def _look(self, key: dg.AssetKey) -> Mapping[str, int]:
        if self._units[key].partitions is None:
            return {"": 0} if self._instance.get_latest_materialization_event(key) else {}
        storage = self._instance.event_log_storage
        return storage.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION)

    def _read(self, unit: Unit, key: dg.AssetKey, parent: dg.AssetKey, keys: set[str]) -> Sequence[str]:
        """The partitions of the parent that these ones read, as their mapping says."""
        above = self._units[parent].partitions
        if above is None or unit.partitions is None:
            return [""] if above is None else []
        mapping = unit.location.resolve_asset_graph().get_partition_mapping(key, parent_asset_key=parent)
        below = unit.partitions.empty_subset().with_partition_keys(keys)
        found = mapping.get_upstream_mapped_partitions_result_for_partitions(below, unit.partitions, above)
        return cast("Sequence[str]", list(found.partitions_subset.get_partition_keys()))


def _merged(causes: Iterable[Cause]) -> list[Cause]:
    """What has the same reason is one cause, where the first of them stood; no partition is named twice."""
    keys: dict[tuple[str, Reason, str], dict[str, None]] = {}
    for cause in causes:
        keys.setdefault((cause.asset, cause.reason, cause.told), {}).update(dict.fromkeys(cause.keys))
    return [Cause(asset, tuple(found), reason, told) for (asset, reason, told), found in keys.items()]
