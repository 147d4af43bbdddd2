"""One step as it stands: what of it is left over, and whether that waits, came too late, or cannot be explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import dagster as dg

from de_checks.per_key import Materialized, latest_materializations
from de_checks.reconciliation.account import LeftOver, Why
from de_checks.reconciliation.steps import Growth, Step
from de_checks.reconciliation.tables import Counts, Part, Rows, Tables, moment
from de_resources.delta.log import TableLog
from de_resources.delta.log.changed_partitions import PartitionChange, changed_partitions
from de_resources.delta.metadata import FILTER_CONDITIONS
from de_resources.delta.publish.writer import HELD, STATE
from de_resources.delta.read_versions import READ

Told = Mapping[dg.AssetKey, Mapping[str, Materialized]]
"""The newest materialisation of partitions: of `into`, and of the tables that are carried on beside it."""


@dataclass(frozen=True)
class Passage:
    """A step by the partitions of its `into`: the rows of its tables from a moment on, and what its materialisations tell."""

    step: Step
    tables: Tables
    rows: Counts
    since: datetime
    told: Told

    def removed(self) -> Mapping[str, Counter[str]]:
        """By kind, what a condition removed, by partition."""
        return {
            kind: Counter({key: _removed(newest, condition) for key, newest in self.told[self.step.into].items()})
            for kind, condition in self.step.removed.items()
        }

    def carried_on(self) -> Mapping[str, Counter[str]]:
        """By kind, what each partition left to the next one, without what was left to it."""
        found: dict[str, Counter[str]] = {kind: Counter() for kind in self.step.carried}
        for kind, each in self.step.carried.items():
            for key, rows in _carried(self.step, self.tables, self.rows[each], self.since):
                found[kind][key] += rows
        return found

    def left_over(self, now: datetime) -> Iterator[LeftOver]:
        """The partitions that do not come out even."""
        units = _uneven(self.step, self.tables, self.rows, self.since)
        for removed in self.removed().values():
            units.subtract(removed)
        odd = {key: rows for key, rows in units.items() if rows}
        changed = self._changed_since(odd)
        of, into = self.step.of.to_user_string(), self.step.into.to_user_string()
        for key, rows in sorted(odd.items()):
            window = self.tables.partitions(self.step.into).time_window_for_partition_key(key)
            yield LeftOver(of, into, key, window.start, rows, self._why(key, window.end, changed, now))

    def _why(self, key: str, end: datetime, changed: Collection[str], now: datetime) -> Why:
        made = [newest.get(key) for newest in self.told.values()]
        # Never computed, or computed and not shown to readers: whether it should be is the question of other checks. So is
        # when what was taken out of a stateful table comes back.
        if key in self._awaited() or any(newest is None or newest.metadata.get(STATE) == HELD for newest in made):
            return Why.WAITING
        if key not in changed:
            return Why.UNEXPLAINED
        late_for = self.tables.late_for(self.step.into)
        return Why.TOO_OLD if late_for is not None and now - end > late_for else Why.WAITING

    def _awaited(self) -> Collection[str]:
        total = self.step.total
        return self.tables.growth(self.step.into, total).awaited if isinstance(total, Growth) else ()

    def _changed_since(self, units: Collection[str]) -> set[str]:
        """Those of these partitions of which a source changed in a version that a newest materialisation had not read."""
        return {key for made in self.told for key in self._behind(made, units)}

    def _behind(self, made: dg.AssetKey, units: Collection[str]) -> Iterator[str]:
        newest = self.told[made]
        for source in _sources(self.step, self.tables):
            log, name = self.tables.log(source.table), self.tables.table(source.table).name
            read = {key: _read(newest[key], name, log) for key in units if key in newest}
            if not read or log is None:
                continue
            last = self._last_changes(log, source, min(read.values()))
            for key in read.keys() & last.keys():
                # What a run over several partitions carries from one to the next, it writes after it has read.
                own = source.table == made and last[key].run == newest[key].run_id
                if last[key].version > read[key] and not own:
                    yield key

    def _last_changes(self, log: TableLog, source: _Source, since: int) -> Mapping[str, PartitionChange]:
        """The last change of a source, by partition that it goes into, of the versions after `since`."""
        place = log.partition_columns().index(source.column)
        last: dict[str, PartitionChange] = {}
        first, end = self.tables.calendar(self.step.into)
        for values, change in changed_partitions(log, since).changed.items():
            held = moment(values[place])
            start = None if held is None else held + source.later
            if start is not None and first <= start < end:
                unit = _unit(self.step, self.tables, start)
                last[unit] = max(change, last.get(unit, change), key=lambda each: each.version)
        return last


def told(step: Step, tables: Tables, rows: Counts, since: datetime, instance: dg.DagsterInstance) -> Told:
    """The newest materialisations of the partitions of a step of which something may have to be explained.

    Where nothing is removed by condition, a partition that comes out even needs no explanation.
    """
    units = _uneven(step, tables, rows, since)
    asked = sorted(key for key, left in units.items() if left or step.removed)
    made = [step.into, *(each.table for each in step.carried.values())]
    newest = {asset: latest_materializations(instance, asset, asked) if asked else {} for asset in made}
    return {asset: {key: each for key, each in found.items() if key is not None} for asset, found in newest.items()}


def _uneven(step: Step, tables: Tables, rows: Counts, since: datetime) -> Counter[str]:
    """By partition of `into`: rows that came, without those that are found again."""
    units: Counter[str] = Counter()
    signs: list[tuple[Part, int]] = [(step.of, 1), (step.into, -1)]
    signs += [*((key, -1) for key in step.apart.values()), *((each, 1) for each in step.rejoined)]
    for part, sign in signs:
        for start, count in rows[part].items():
            units[_unit(step, tables, start)] += sign * count
    for each in step.carried.values():
        for key, count in _carried(step, tables, rows[each], since):
            units[key] -= count
    return units


def _carried(step: Step, tables: Tables, rows: Rows, since: datetime) -> Iterator[tuple[str, int]]:
    """What is left to the next partition counts for its own, and against the next one, which begins with it."""
    _, end = tables.calendar(step.into)
    for start, count in rows.items():
        after = start + tables.length(step.into)
        if start >= since:
            yield _unit(step, tables, start), count
        if since <= after < end:
            yield _unit(step, tables, after), -count


def _unit(step: Step, tables: Tables, start: datetime) -> str:
    return str(tables.partitions(step.into).get_partition_key_for_timestamp(start.timestamp()))


@dataclass(frozen=True)
class _Source:
    """A table that a step is made of, the column that says where a row belongs, and by how much `later` it goes in."""

    table: dg.AssetKey
    column: str
    later: timedelta = timedelta(0)


def _sources(step: Step, tables: Tables) -> Iterator[_Source]:
    yield _Source(step.of, tables.column(step.of))
    yield from (_Source(each.table, each.column) for each in step.rejoined)
    later = tables.length(step.into)
    yield from (_Source(each.table, tables.column(each.table), later) for each in step.carried.values())


def _read(newest: Materialized, name: str, log: TableLog | None) -> int:
    """The version of a source that was read; -1 where it is not told, or was that of another table at its place."""
    told = newest.metadata.get(READ) or {}
    found = told.get(name) or {}
    # Of a table that is gone nothing can have changed since.
    return int(found["version"]) if found and (log is None or found["id"] == str(log.table.metadata().id)) else -1


def _removed(newest: Materialized, condition: str) -> int:
    removed = (newest.metadata.get(FILTER_CONDITIONS) or {}).get(condition) or {}
    return int(removed.get("first", 0))
