"""The rows of the tables of a graph, by the partition of time that holds them: from their logs, without the engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow.dataset as ds

from de_checks.reconciliation.growth import Grown, grown
from de_checks.reconciliation.steps import Carried, Growth, Rejoined, Step, Total
from de_resources.delta.log import TableLog
from de_resources.delta.table import Table
from de_resources.errors import PermanentError
from de_resources.gathering import length_of
from de_resources.lake import Lake

if TYPE_CHECKING:
    from de_resources.compat.graph import AssetGraph

Rows = Counter[datetime]
"""Rows by the start of the partition that holds them."""

Part = dg.AssetKey | Rejoined | Carried
Counts = Mapping[Part, Rows]
"""The rows of tables, and of those that belong to other partitions, by the start of these."""


class NotByTime(PermanentError):
    """A dataset in an account of days that is not kept by time."""

    def __init__(self, asset: dg.AssetKey) -> None:
        self.asset = asset
        super().__init__(
            f"`{asset.to_user_string()}` cannot be in an account of days: it needs time partitions, and `partition_expr`, the "
            "column that carries them."
        )


@dataclass(frozen=True)
class Tables:
    """The tables of a graph as they are when they are asked for. Raises `NotByTime`."""

    lake: Lake
    graph: AssetGraph

    def log(self, key: dg.AssetKey) -> TableLog | None:
        """The log as of now; None: there is no table."""
        return self.table(key).log()

    def table(self, key: dg.AssetKey) -> Table:
        """The table of an asset."""
        return self.lake.table(key, self.graph.get(key).metadata)

    def along(self, steps: Sequence[Step], since: datetime) -> Counts:
        """The rows of every table of the steps from a moment on.

        Where rows land is read last: who writes meanwhile is ahead of what is counted of him, and never behind.
        """
        found: dict[Part, Rows] = {}
        for step in reversed(steps):
            found.setdefault(step.into, self.rows(step.into, since, step.total))
            found |= {each: self.taken_in(each, since) for each in step.rejoined}
            # What the first of the partitions begins with lies in the one before it.
            before = since - self.length(step.into)
            found |= {each: self.rows(each.table, before, Total(each.column)) for each in step.carried.values()}
            found |= {key: self.rows(key, since) for key in step.apart.values()}
        return found | {steps[0].of: self.rows(steps[0].of, since)}

    def rows(self, key: dg.AssetKey, since: datetime, total: Total | Growth | None = None) -> Rows:
        """Rows of the calendar from a moment on, counted by the statistics of the files; a total is read."""
        if isinstance(total, Growth):
            return Counter({start: rows for start, rows in self.growth(key, total).rows.items() if start >= since})
        log, at = self.log(key), self.column(key)
        first, end = self.calendar(key)
        kept: Rows = Counter()
        if log is None:
            return kept
        for value, rows in _totals(log, at, total) if total else _counts(log, at):
            start = moment(value)
            if start is not None and max(first, since) <= start < end:
                kept[start] += rows
        return kept

    def taken_in(self, each: Rejoined, since: datetime) -> Rows:
        """Rows that belong to the calendar from a moment on and are not refused, by where they belong."""
        first, end = self.calendar(each.table)
        kept: Rows = Counter()
        for landed, belongs, rows in self._by_both(each):
            if max(first, since) <= belongs < end and not (each.refused and each.refused(landed, belongs)):
                kept[belongs] += rows
        return kept

    def left_out(self, each: Rejoined, since: datetime) -> Mapping[str, Rows]:
        """Rows that are taken in nowhere, by kind.

        Those of times that the calendar does not have by the partition that holds them, refused ones by where they belong.
        """
        first, end = self.calendar(each.table)
        found: defaultdict[str, Rows] = defaultdict(Counter, {each.before: Counter(), each.after: Counter()})
        for landed, belongs, rows in self._by_both(each):
            if first <= belongs < end:
                kind = each.refused(landed, belongs) if each.refused and belongs >= since else None
                if kind:
                    found[kind][belongs] += rows
            elif max(first, since) <= landed < end:
                found[each.before if belongs < first else each.after][landed] += rows
        return found

    def _by_both(self, each: Rejoined) -> Iterator[tuple[datetime, datetime, int]]:
        """Rows by the start of the partition that holds them, and by that of the one to which they belong."""
        log, kept = self.log(each.table), self.column(each.table)
        if log is None:
            return
        columns = log.partition_columns()
        for values, rows in log.rows_by_partition().items():
            landed, belongs = moment(values[columns.index(kept)]), moment(values[columns.index(each.column)])
            if landed is not None and belongs is not None:
                yield landed, belongs, rows

    def growth(self, key: dg.AssetKey, total: Growth) -> Grown:
        """What each partition of the calendar added to a stateful table."""
        log = self.log(key)
        if log is None:
            return Grown()
        partitions, (first, end) = self.partitions(key), self.calendar(key)

        def start_of(partition: str) -> datetime | None:
            start = partitions.time_window_for_partition_key(partition).start
            return start if first <= start < end else None

        known = self._grown
        if (key, log.version) not in known:
            known[key, log.version] = grown(log, key, total.column, start_of)
        return known[key, log.version]

    @cached_property
    def _grown(self) -> dict[tuple[dg.AssetKey, int], Grown]:
        """By table and version: each partition of a stateful table costs a look at an old version."""
        return {}

    def column(self, key: dg.AssetKey) -> str:
        """The column that carries the partition."""
        named = self.graph.get(key).metadata.get("partition_expr")
        if not isinstance(named, str):
            raise NotByTime(key)
        return named

    def partitions(self, key: dg.AssetKey) -> dg.TimeWindowPartitionsDefinition:
        """The partitions."""
        found = self.graph.get(key).partitions_def
        if not isinstance(found, dg.TimeWindowPartitionsDefinition):
            raise NotByTime(key)
        return found

    def calendar(self, key: dg.AssetKey) -> tuple[datetime, datetime]:
        """From the start of the first partition to the end of the last: what lies outside belongs to an earlier calendar."""
        partitions = self.partitions(key)
        first, last = partitions.get_first_partition_window(), partitions.get_last_partition_window()
        nothing = datetime.fromtimestamp(0, UTC)
        return (first.start, last.end) if first and last else (nothing, nothing)

    def length(self, key: dg.AssetKey) -> timedelta:
        """How long a partition is."""
        return length_of(self.partitions(key))

    def late_for(self, key: dg.AssetKey) -> timedelta | None:
        """How long after its time a partition takes in what comes late; None: nobody says."""
        contract = self.table(key).contract
        return contract.late_for if contract else None


def moment(value: Any) -> datetime | None:
    """The start of a partition from its value in a table or in a log; null has none."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return datetime(value.year, value.month, value.day, tzinfo=UTC) if isinstance(value, date) else None


def by_day(rows: Mapping[datetime, int]) -> Counter[date]:
    """Rows by day (UTC)."""
    days: Counter[date] = Counter()
    for start, count in rows.items():
        days[start.astimezone(UTC).date()] += count
    return days


def _counts(log: TableLog, at: str) -> Iterator[tuple[Any, int]]:
    place = log.partition_columns().index(at)
    for values, rows in log.rows_by_partition().items():
        yield values[place], rows


def _totals(log: TableLog, at: str, total: Total) -> Iterator[tuple[Any, int]]:
    conditions = [ds.field(column) == value for column, value in total.where.items()]
    wanted = reduce(and_, conditions) if conditions else None
    for row in log.table.to_pyarrow_dataset().to_table(columns=[at, total.column], filter=wanted).to_pylist():
        yield row[at], row[total.column] or 0
