"""One step as it stands: what of it is left over, and whether that waits, came too late, or cannot be explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import dagster as dg

from de_checks.per_key import Materialized, latest_materializations
from de_checks.reconciliation.account import LeftOver, Why
from de_checks.reconciliation.steps import Step
from de_checks.reconciliation.tables import Rows, Tables, moment
from de_resources.delta.log import TableLog
from de_resources.delta.log.changed_partitions import changed_partitions
from de_resources.delta.metadata import FILTER_CONDITIONS
from de_resources.delta.publish.writer import HELD, STATE
from de_resources.delta.read_versions import READ

Counts = Mapping[dg.AssetKey, Rows]
Told = Mapping[str, Materialized]
"""The newest materialisation of partitions."""


@dataclass(frozen=True)
class Passage:
    """A step by the partitions of its `into`: the rows of its tables, and what its materialisations tell."""

    step: Step
    tables: Tables
    rows: Counts
    told: Told

    def removed(self) -> Mapping[str, Counter[str]]:
        """By kind, what a condition removed, by partition."""
        return {
            kind: Counter({key: _removed(newest, condition) for key, newest in self.told.items()})
            for kind, condition in self.step.removed.items()
        }

    def left_over(self, now: datetime) -> Iterator[LeftOver]:
        """The partitions that do not come out even."""
        units = _uneven(self.step, self.tables, self.rows)
        for removed in self.removed().values():
            units.subtract(removed)
        odd = {key: rows for key, rows in units.items() if rows}
        changed = self._changed(odd)
        of, into = self.step.of.to_user_string(), self.step.into.to_user_string()
        for key, rows in sorted(odd.items()):
            window = self.tables.partitions(self.step.into).time_window_for_partition_key(key)
            yield LeftOver(of, into, key, window.start, rows, self._why(key, window.end, changed, now))

    def _why(self, key: str, end: datetime, changed: Mapping[str, int], now: datetime) -> Why:
        newest = self.told.get(key)
        # Never computed, or computed and not shown to readers: whether it should be is the question of other checks.
        if newest is None or newest.metadata.get(STATE) == HELD:
            return Why.WAITING
        if changed.get(key, -1) <= self._read(newest):
            return Why.UNEXPLAINED
        late_for = self.tables.late_for(self.step.into)
        return Why.TOO_OLD if late_for is not None and now - end > late_for else Why.WAITING

    def _read(self, newest: Materialized) -> int:
        """The version of the source that was read; -1 where it is not told, or was that of another table at its place."""
        told = newest.metadata.get(READ) or {}
        found = told.get(self.tables.table(self.step.of).name) or {}
        log = self._source
        # Of a table that is gone nothing can have changed since.
        return int(found["version"]) if found and (log is None or found["id"] == str(log.table.metadata().id)) else -1

    @cached_property
    def _source(self) -> TableLog | None:
        return self.tables.log(self.step.of)

    def _changed(self, units: Mapping[str, int]) -> Mapping[str, int]:
        """The last version that changed the source of these partitions, as far as their materialisations had not read it."""
        read = [self._read(self.told[key]) for key in units if key in self.told]
        log = self._source
        if not read or log is None:
            return {}
        place = log.partition_columns().index(self.tables.column(self.step.of))
        last: dict[str, int] = {}
        for values, change in changed_partitions(log, min(read)).changed.items():
            start = moment(values[place])
            if start is not None:
                unit = _unit(self.step, self.tables, start)
                last[unit] = max(change.version, last.get(unit, -1))
        return last


def told(step: Step, tables: Tables, rows: Counts, instance: dg.DagsterInstance) -> Told:
    """The newest materialisations of the partitions of a step of which something may have to be explained.

    Where nothing is removed by condition, a partition that comes out even needs no explanation.
    """
    units = _uneven(step, tables, rows)
    asked = sorted(key for key, left in units.items() if left or step.removed)
    newest = latest_materializations(instance, step.into, asked) if asked else {}
    return {key: each for key, each in newest.items() if key is not None}


def _uneven(step: Step, tables: Tables, rows: Counts) -> Counter[str]:
    """By partition of `into`: rows that came, without those that are found again."""
    units: Counter[str] = Counter()
    for key, sign in [(step.of, 1), (step.into, -1), *((key, -1) for key in step.apart.values())]:
        for start, count in rows[key].items():
            units[_unit(step, tables, start)] += sign * count
    return units


def _unit(step: Step, tables: Tables, start: datetime) -> str:
    return str(tables.partitions(step.into).get_partition_key_for_timestamp(start.timestamp()))


def _removed(newest: Materialized, condition: str) -> int:
    removed = (newest.metadata.get(FILTER_CONDITIONS) or {}).get(condition) or {}
    return int(removed.get("first", 0))
