"""One step as it stands: what of it is left over, and whether that waits, came too late, or cannot be explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import dagster as dg

from de_checks.per_key import Materialized, latest_materializations
from de_checks.reconciliation.account import LeftOver, Why
from de_checks.reconciliation.steps import Rejoined, Step
from de_checks.reconciliation.tables import Counts, Tables, moment
from de_resources.delta.log import TableLog
from de_resources.delta.log.changed_partitions import changed_partitions
from de_resources.delta.metadata import FILTER_CONDITIONS
from de_resources.delta.publish.writer import HELD, STATE
from de_resources.delta.read_versions import READ

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
        changed = self._changed_since(odd)
        of, into = self.step.of.to_user_string(), self.step.into.to_user_string()
        for key, rows in sorted(odd.items()):
            window = self.tables.partitions(self.step.into).time_window_for_partition_key(key)
            yield LeftOver(of, into, key, window.start, rows, self._why(key, window.end, changed, now))

    def _why(self, key: str, end: datetime, changed: Collection[str], now: datetime) -> Why:
        newest = self.told.get(key)
        # Never computed, or computed and not shown to readers: whether it should be is the question of other checks.
        if newest is None or newest.metadata.get(STATE) == HELD:
            return Why.WAITING
        if key not in changed:
            return Why.UNEXPLAINED
        late_for = self.tables.late_for(self.step.into)
        return Why.TOO_OLD if late_for is not None and now - end > late_for else Why.WAITING

    def _changed_since(self, units: Collection[str]) -> set[str]:
        """Those of these partitions of which a source changed in a version that their newest materialisation had not read."""
        found: set[str] = set()
        for source, column in _sources(self.step, self.tables):
            log, name = self.tables.log(source), self.tables.table(source).name
            read = {key: _read(self.told[key], name, log) for key in units if key in self.told}
            if read and log is not None:
                last = self._last_changes(log, column, min(read.values()))
                found |= {key for key, version in read.items() if last.get(key, -1) > version}
        return found

    def _last_changes(self, log: TableLog, column: str, since: int) -> Mapping[str, int]:
        """The last version that changed a source, by partition, of the versions after `since`."""
        place = log.partition_columns().index(column)
        last: dict[str, int] = {}
        first, end = self.tables.calendar(self.step.into)
        for values, change in changed_partitions(log, since).changed.items():
            start = moment(values[place])
            if start is not None and first <= start < end:
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
    signs: list[tuple[dg.AssetKey | Rejoined, int]] = [(step.of, 1), (step.into, -1)]
    signs += [*((key, -1) for key in step.apart.values()), *((each, 1) for each in step.rejoined)]
    for key, sign in signs:
        for start, count in rows[key].items():
            units[_unit(step, tables, start)] += sign * count
    return units


def _unit(step: Step, tables: Tables, start: datetime) -> str:
    return str(tables.partitions(step.into).get_partition_key_for_timestamp(start.timestamp()))


def _sources(step: Step, tables: Tables) -> Iterator[tuple[dg.AssetKey, str]]:
    """The tables that a step is made of, with the column that says to which of its partitions a row belongs."""
    yield step.of, tables.column(step.of)
    yield from ((each.table, each.column) for each in step.rejoined)


def _read(newest: Materialized, name: str, log: TableLog | None) -> int:
    """The version of a source that was read; -1 where it is not told, or was that of another table at its place."""
    told = newest.metadata.get(READ) or {}
    found = told.get(name) or {}
    # Of a table that is gone nothing can have changed since.
    return int(found["version"]) if found and (log is None or found["id"] == str(log.table.metadata().id)) else -1


def _removed(newest: Materialized, condition: str) -> int:
    removed = (newest.metadata.get(FILTER_CONDITIONS) or {}).get(condition) or {}
    return int(removed.get("first", 0))
