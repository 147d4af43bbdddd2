"""The metadata layer: the last commit that brought rows, from Delta's log. No scan, no engine.

What housekeeping commits does not count, and neither does a backfill. A commit tells of the present only as far as the newest
window goes that it brought rows for: of yesterday's hours that are loaded again now, the sign is the end of yesterday. The time
at which files were modified says nothing: copying, compacting and restoring a table set it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun
from de_checks.freshness.signs import WHOLE, Sign, Signs
from de_resources.delta.log import TableLog
from de_resources.delta.log.data_commits import DataCommit, newest_commits
from de_resources.errors import PermanentError

Window = tuple[datetime, datetime]
WindowOf = Callable[[Mapping[str, str | None]], Window | None]
"""The time that the partition values of a file stand for; None: they say nothing about time."""

_BEFORE_END = timedelta(microseconds=1)


class NotAPart(PermanentError):
    """A table that is not stored by what shall be its parts."""

    def __init__(self, table: str, column: str) -> None:
        self.table, self.column = table, column
        super().__init__(
            f"`{table}` is not physically partitioned by `{column}`, so that its log does not tell of each value by itself. "
            "Name a column of the contract's `partitioned_by`."
        )


@dataclass(frozen=True)
class Commits:
    """Signs from the table's log. `part`: a partition column, each of whose values is a flow of its own.

    Looks at so many commits at most; of what lies before them it says that nothing is known. Raises `NotAPart`.
    """

    part: str | None = None
    at_most: int = 1000
    name: str = "metadata"
    sees: str = "the newest commit that brought rows"
    resources: Collection[str] = ("lake",)

    def signs(self, run: CheckRun, believable: datetime) -> Signs | None:
        """As `Layer` says; a table that was never written has not begun."""
        table = run.table()
        log = table.log()
        if log is None:
            return {}
        columns, names = log.partition_columns(), log.stored_names()
        if self.part is not None and self.part not in columns:
            raise NotAPart(table.name, self.part)
        part = names[self.part] if self.part else None
        return commit_signs(
            newest_commits(log, self.at_most), believable, _parts(log, self.part), part, window_of(run.asset, names)
        )

    def figures(self, signs: Signs) -> Mapping[str, Any]:  # noqa: ARG002 - as `Layer` says
        """Nothing of its own."""
        return {}


def commit_signs(
    commits: Iterator[DataCommit],
    believable: datetime,
    parts: Collection[str],
    part: str | None = None,
    window: WindowOf = lambda _values: None,
) -> dict[str, Sign]:
    """The sign of each of these parts, from commits, newest first. Reads on until an older one cannot tell anything new."""
    found: dict[str, datetime] = {}
    ahead, furthest, oldest = 0, None, None
    for commit in commits:
        if commit.at > believable:
            ahead, furthest = ahead + 1, max(commit.at, furthest or commit.at)
            continue
        if parts and all(each in found and found[each] >= commit.at for each in parts):
            break
        oldest = commit.at
        for values in commit.partitions:
            of = str(values.get(part)) if part else WHOLE
            until = _until(window(values), commit.at, believable)
            if until is not None:
                found[of] = max(until, found.get(of, until))
    missing = {each: Sign(None, before=oldest) for each in parts if each not in found}
    signs = missing | {each: Sign(at) for each, at in found.items()}
    if ahead:
        # Whose they are is told of the flow as a whole.
        first = next(iter(signs), WHOLE)
        signs[first] = replace(signs.get(first, Sign(None)), ahead=ahead, furthest=furthest)
    return signs


def _until(window: Window | None, at: datetime, believable: datetime) -> datetime | None:
    """Up to where rows of this window, committed at this time, are a sign; None: the window is one of the future."""
    if window is None:
        return at
    start, end = window
    return None if start > believable else min(at, end - _BEFORE_END)


def _parts(log: TableLog, part: str | None) -> set[str]:
    """The parts that the table has."""
    if part is None:
        return {WHOLE} if any(log.rows_by_partition().values()) else set()
    place = log.partition_columns().index(part)
    return {str(values[place]) for values, rows in log.rows_by_partition().items() if rows}


def window_of(asset: dg.AssetSpec, stored_names: Mapping[str, str]) -> WindowOf:
    """How to read the time of a file's partition values; from an asset without time partitions there is nothing to read."""
    calendar, column = asset.partitions_def, asset.metadata.get("partition_expr")
    if not isinstance(calendar, dg.TimeWindowPartitionsDefinition) or not isinstance(column, str):
        return lambda _values: None
    stored = stored_names.get(column, column)

    def read(values: Mapping[str, str | None]) -> Window | None:
        value = values.get(stored)
        if value is None:
            return None
        start = datetime.fromisoformat(value)
        start = start if start.tzinfo else start.replace(tzinfo=UTC)
        found = calendar.time_window_for_partition_key(calendar.get_partition_key_for_timestamp(start.timestamp()))
        return found.start, found.end

    return read
