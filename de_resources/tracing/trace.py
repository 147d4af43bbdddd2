"""The walk upstream: rows, what they were made of, and the runs that made them.

Each dataset is read once, for the few rows that are traced; an engine does it, as for every other read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from de_resources.delta.table import Table
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier
from de_resources.tracing.condition import condition_of
from de_resources.tracing.makers import Maker, Makers
from de_resources.tracing.matching import matching

AT_MOST = 100
"""Rows of one dataset that are traced further, and shown."""
_FILE = "__de_file"


class NoSuchRow(PermanentError):
    """A key that the dataset does not have."""

    def __init__(self, dataset: str, key: Key) -> None:
        self.dataset, self.key = dataset, dict(key)
        names = ", ".join(key)
        super().__init__(f"`{dataset}` has no row with this {names}. Look whether it is spelt as the dataset has it.")


class NotTraceable(PermanentError):
    """A dataset of which no row can be named, or whose rows are in no table of the lake."""

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset, self.why = dataset, why
        super().__init__(f"Rows of `{dataset}` cannot be traced: {why}.")


Key = Mapping[str, str | None]
"""A row's key by column, as text; None for one that is null."""


@dataclass(frozen=True)
class Outside:
    """Rows that are kept outside of the lake and of which one can be named: `rows` finds it by these columns.

    `shown` masks what is personal. `makers` says which runs may have written a row; empty where nobody has recorded it.
    """

    key: tuple[str, ...]
    rows: Callable[[SparkSession, Key], DataFrame]
    shown: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    makers: Callable[[Mapping[str, Any]], tuple[Maker, ...]] = lambda _row: ()


@dataclass(frozen=True)
class TracedSource:
    """A dataset as the walk needs it: its table, or how a row outside is found; what it was made of, and what it declares."""

    name: str
    table: Table | None = None
    inputs: tuple[str, ...] = ()
    same: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    outside: Outside | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; none where nobody has said."""
        if self.outside:
            return self.outside.key
        return self.table.contract.key if self.table and self.table.contract else ()


@dataclass(frozen=True)
class TracedRow:
    """A row and the commits that it may come from. `values` are as they are stored: `shown` masks what is personal."""

    values: Mapping[str, Any]
    shown: Mapping[str, Any]
    makers: tuple[Maker, ...] = ()


@dataclass(frozen=True)
class Traced:
    """Rows of one dataset that a row was made of; `total` counts them, `how` says by what they were found."""

    dataset: str
    how: str
    rows: tuple[TracedRow, ...] = ()
    total: int = 0
    inputs: tuple[Traced, ...] = ()


@dataclass(frozen=True)
class _Found:
    """Some of the rows that were looked for, how many there are, and their columns with types."""

    rows: tuple[TracedRow, ...]
    total: int
    schema: StructType


def trace(session: SparkSession, find: Callable[[str], TracedSource], dataset: str, key: Key) -> Traced:
    """From the row with this key to what it was made of, as far as rows are kept.

    Raises `NotTraceable` for a dataset without a key, or outside of the lake where nobody has said how a row is found, and
    `NoSuchRow`.
    """
    source = find(dataset)
    if source.table is None and source.outside is None:
        raise NotTraceable(dataset, "it is kept outside of the lake, and its rows have no log")
    wanted = source.key
    if set(key) != set(wanted) or not wanted:
        named = f"name {', '.join(wanted)}" if wanted else "its contract names no key"
        raise NotTraceable(dataset, named)
    found = _outside(session, source.outside, key) if source.outside else _in_lake(session, source, key)
    if not found.rows:
        raise NoSuchRow(dataset, key)
    return _walk(session, find, source, "the row that was asked for", found, (dataset,))


def _in_lake(session: SparkSession, source: TracedSource, key: Key) -> _Found:
    rows = _read(session, source)
    for column, text in key.items():
        rows = rows.where(F.col(identifier(column)).cast("string").eqNullSafe(F.lit(text)))
    return _rows(source, rows)


def _outside(session: SparkSession, outside: Outside, key: Key) -> _Found:
    frame = outside.rows(session, key)
    values = [row.asDict() for row in frame.limit(AT_MOST).collect()]
    rows = tuple(TracedRow(each, outside.shown(each), outside.makers(each)) for each in values)
    return _Found(rows, len(rows), frame.schema)


def _walk(
    session: SparkSession,
    find: Callable[[str], TracedSource],
    source: TracedSource,
    how: str,
    found: _Found,
    path: tuple[str, ...],
) -> Traced:
    rows, total = found.rows, found.total
    inputs = []
    for name in source.inputs:
        if name in path:  # a dataset that reads itself: its earlier state is not kept as rows
            inputs.append(Traced(name, "its own earlier state, of which no rows are kept apart"))
        elif rows:
            inputs.append(_input(session, find, source, find(name), found, (*path, name)))
    if total > len(rows):
        inputs = [replace(each, how=f"{each.how}, for {len(rows)} of these {total} rows") for each in inputs]
    return Traced(source.name, how, rows, total, tuple(inputs))


def _input(
    session: SparkSession,
    find: Callable[[str], TracedSource],
    output: TracedSource,
    source: TracedSource,
    found: _Found,
    path: tuple[str, ...],
) -> Traced:
    if source.table is None:
        return Traced(source.name, "outside of the lake")
    if (log := source.table.log()) is None:
        return Traced(source.name, "it was never written")
    condition = condition_of(source.name, source.key, output.metadata, output.same)
    if condition.sql is None:
        return Traced(source.name, condition.how)
    known = [row.values for row in found.rows]
    partitions = log.table.metadata().partition_columns
    rows = matching(session, _read(session, source), condition, known, found.schema, partitions)
    return _walk(session, find, source, condition.how, _rows(source, rows), path)


def _read(session: SparkSession, source: TracedSource) -> DataFrame:
    assert source.table is not None  # noqa: S101 - callers have looked
    return source.table.read(session).select("*", F.col("_metadata.file_path").alias(_FILE))


def _rows(source: TracedSource, frame: DataFrame) -> _Found:
    """At most `AT_MOST` rows, and how many there are."""
    table = source.table
    assert table is not None  # noqa: S101 - callers have looked
    found = [row.asDict() for row in frame.limit(AT_MOST + 1).collect()]
    total = len(found) if len(found) <= AT_MOST else frame.count()
    log = table.log() if found else None
    makers = Makers(log) if log else None
    rows = []
    for values in found[:AT_MOST]:
        file = values.pop(_FILE)
        shown = table.contract.redact(values) if table.contract else values
        rows.append(TracedRow(values, shown, makers.of(file) if makers else ()))
    return _Found(tuple(rows), total, frame.drop(_FILE).schema)
