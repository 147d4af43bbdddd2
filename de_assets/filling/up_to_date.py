"""Which partitions need no run: computed from what is there now, stored, and judged good.

Asked of Dagster's event log, so that it counts what backfills, sensors and people computed as well. A partition is up to
date when

- each asset of its unit has materialised it, and its store is still there;
- nothing that it reads by time was materialised after it (as the partition mapping says); and a source outside, of whose
  changes no event tells, still looks as when it was read. One that nobody can look at is read again;
- every check of the partition judged this very materialisation, and let it pass: a warning holds nothing back, and computing
  the same again would bring it again.

What has no partitions is no reason: a changed user does not make every hour outdated. What a change of the code makes outdated
nobody can see here: then everything is computed again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster import AssetKey, DagsterInstance

from de_assets.filling.keys import FillState
from de_assets.filling.units import Unit
from de_resources.compat.checks import (
    AssetCheckExecutionRecordStatus,
    AssetCheckPartitionInfo,
    PartitionKeyFilter,
)

_READ = "de/read"
_PASSED, _FAILED = AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED


@dataclass(frozen=True)
class UpToDate:
    """Asks the instance. `is_stored` tells whether the dataset of an asset is where it should be."""

    instance: DagsterInstance
    is_stored: Callable[[AssetKey], bool]

    def partitions(
        self, unit: Unit, keys: Sequence[str], states: Mapping[AssetKey, FillState], outside: Collection[AssetKey]
    ) -> set[str]:
        """Those of `keys`, which are in order, that need no run. `outside` are the parents that nobody materialises."""
        if unit.partitions is None or not all(map(self.is_stored, unit.assets)):
            return set()
        computed = self._computed(unit)
        outdated = {key for key in keys if key not in computed}
        outdated |= self._not_passed(unit, keys)
        for parent in sorted(unit.parents & states.keys()):
            changed = self._changed_outside if parent in outside else self._changed
            outdated |= {*changed(unit, parent, states[parent], computed)}
        if unit.chained:
            first = min(outdated, default=None)
            outdated |= {key for key in keys if first is not None and key >= first}
        return set(keys) - outdated

    def note(self, unit: Unit, states: Mapping[AssetKey, FillState], keys: Iterable[str]) -> None:
        """Remember how the sources looked of which these partitions were computed."""
        for parent in unit.parents & states.keys():
            looks = states[parent].looks
            if looks is not None and unit.partitions is not None:
                now = {key: looks[key] for key in keys if key in looks}
                self._write_looks(unit, parent, {**self._read_looks(unit, parent), **now})

    def _computed(self, unit: Unit) -> dict[str, int]:
        """When each partition was computed, as the event log counts: by the oldest of the unit's assets."""
        ids = [self._materialised(key) for key in unit.assets]
        return {key: min(each[key] for each in ids) for key in ids[0] if all(key in each for each in ids)}

    def _materialised(self, key: AssetKey) -> Mapping[str, int]:
        storage = self.instance.event_log_storage
        return storage.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION)

    def _changed(self, unit: Unit, parent: AssetKey, state: FillState, computed: Mapping[str, int]) -> Collection[str]:
        """Partitions of the unit that read something of `parent` which is newer than they are."""
        if state.partitions is None:
            return set()
        oldest = min(computed.values(), default=0)
        newer = {key: id_ for key, id_ in self._materialised(parent).items() if id_ > oldest}
        return {
            below
            for key, id_ in newer.items()
            for below in unit.readers_of(parent, state.partitions, key)
            if computed.get(below, id_) < id_
        }

    def _changed_outside(
        self, unit: Unit, parent: AssetKey, state: FillState, computed: Mapping[str, int]
    ) -> Collection[str]:
        """Partitions whose source looks different; all of them where it tells nobody that it changed."""
        if state.looks is None:
            return computed.keys()
        seen = self._read_looks(unit, parent)
        return {key for key in computed if state.looks.get(key) != seen.get(key)}

    def _not_passed(self, unit: Unit, keys: Sequence[str]) -> set[str]:
        """Partitions of which some check has not judged what is there, or has not let it pass.

        A check of all partitions together that did not let pass is asked again with the newest of them.
        """
        by_partition, of_all = unit.checks_by_partition, unit.checks_of_all
        newest = set(keys[-1:])
        asked = {None, *keys}
        found = [
            info
            for info in self.instance.event_log_storage.get_asset_check_partition_info([*by_partition, *of_all])
            if info.partition_key in asked
        ]
        passed = {(i.check_key, i.partition_key) for i in found if self._lets_pass(i)}
        current = {(i.check_key, i.partition_key) for i in found if i.is_current}
        open_ = {key for check in by_partition for key in keys if (check, key) not in passed & current}
        return open_ | (newest if any((check, None) not in passed for check in of_all) else set())

    def _lets_pass(self, info: AssetCheckPartitionInfo) -> bool:
        if info.latest_execution_status != _FAILED:
            return info.latest_execution_status == _PASSED
        (newest,) = self.instance.event_log_storage.get_asset_check_execution_history(
            info.check_key, limit=1, status={_FAILED}, partition_filter=PartitionKeyFilter(key=info.partition_key)
        )
        return newest.evaluation is not None and newest.evaluation.severity == dg.AssetCheckSeverity.WARN

    def _read_looks(self, unit: Unit, parent: AssetKey) -> dict[str, str]:
        name = _looks_of(unit, parent)
        looks: dict[str, str] = json.loads(
            self.instance.daemon_cursor_storage.get_cursor_values({name}).get(name) or "{}"
        )
        return looks

    def _write_looks(self, unit: Unit, parent: AssetKey, looks: Mapping[str, str]) -> None:
        self.instance.daemon_cursor_storage.set_cursor_values({_looks_of(unit, parent): json.dumps(looks)})


def _looks_of(unit: Unit, parent: AssetKey) -> str:
    return f"{_READ}/{unit.assets[0].to_user_string()}/{parent.to_user_string()}"
