"""The part of a table that a run owns: Dagster partition keys as typed, half-open predicates.

A `Slice` is what a run may read or replace, and nothing beyond it. It is made from the Dagster context (single keys,
contiguous or scattered ranges, static and multi-dimensional partitions, any time zone) and rendered against the type of
the table's column: instants for TIMESTAMP, local days for DATE, the partition keys themselves for STRING.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import dagster as dg
from pyspark.sql.types import StructType

from de_resources.delta.attribution import KeyIndex
from de_resources.delta.dimensions import (
    Box,
    Dimension,
    Members,
    PositionInterval,
    TimeRange,
    UnusablePartitionColumn,
    instant,
)
from de_resources.errors import PermanentError

__all__ = ["Box", "Members", "OffsetRange", "Slice", "TimeRange", "UnusablePartitionColumn", "make_slice"]


@dataclass(frozen=True)
class Slice:
    """The union of boxes; each box is a conjunction of dimensions. No boxes: no rows at all.

    `by_key` holds one box per partition key, so that rows can be attributed to keys.
    """

    boxes: tuple[Box, ...]
    by_key: Mapping[str, Box]

    @property
    def keys(self) -> tuple[str, ...]:
        """The partition keys in order."""
        return tuple(self.by_key)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide whether a row is inside."""
        return tuple(dict.fromkeys(d.column for box in self.by_key.values() for d in box))

    def predicate(self, schema: StructType, prefix: str = "") -> str:
        """SQL that is true for rows inside; `FALSE` for an empty slice. `prefix` qualifies columns, such as `t.`."""
        return " OR ".join(f"({_conjunction(box, schema, prefix)})" for box in self.boxes) or "FALSE"

    def key_predicate(self, key: str, schema: StructType) -> str:
        """SQL that is true for the rows of one partition key."""
        return _conjunction(self.by_key[key], schema)

    def key_of(self, values: Mapping[str, Any]) -> str | None:
        """The partition key to which a row (or a file with these partition values) belongs; None when outside."""
        return self._index.key_of(values)

    @cached_property
    def _index(self) -> KeyIndex:
        return KeyIndex(self.by_key)

    def describe(self) -> str:
        """Short text for people: `2024-01-01` or `2024-01-01…2024-01-30 (30)`."""
        if len(self.keys) <= 1:
            return self.keys[0] if self.keys else "nothing"
        return f"{self.keys[0]}…{self.keys[-1]} ({len(self.keys)})"


@dataclass(frozen=True)
class OffsetRange(Slice):
    """What a run reads of a stream: per source, the positions after those that were read before."""

    @classmethod
    def of(cls, source: str, position: str, last: Mapping[int, int], after: Mapping[int, int]) -> OffsetRange:
        """From the columns, and the positions by source; a source without one in `after` is read from its beginning."""
        begins = {key: after.get(key, -1) for key in sorted(last)}
        by_key: dict[str, Box] = {
            f"{key}:{begin + 1}-{last[key]}": (
                Members(source, (str(key),)),
                PositionInterval(position, begin, last[key]),
            )
            for key, begin in begins.items()
        }
        return cls(tuple(by_key.values()), by_key)

    def describe(self) -> str:
        """All of it: a retry may only be skipped where it would write the same."""
        return ", ".join(self.keys)


def _conjunction(box: Box, schema: StructType, prefix: str = "") -> str:
    types = {f.name: f.dataType for f in schema.fields}
    missing = [d.column for d in box if d.column not in types]
    if missing:
        raise PermanentError(
            f"The partition column `{missing[0]}` is not in the data, which has {', '.join(types)}. "
            "Name an existing column in the asset's `partition_expr`."
        )
    return " AND ".join(d.predicate(types[d.column], prefix) for d in box)


def make_slice(
    keys: Sequence[str], partitions: dg.PartitionsDefinition, partition_expr: str | Mapping[str, str]
) -> Slice:
    """Turn partition keys into a slice.

    `partition_expr` names the column, or one column per dimension. Raises `PermanentError` when a dimension has none.
    """
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        by_key = {str(k): _multi_box(k, partitions, partition_expr) for k in keys}
    else:
        if not isinstance(partition_expr, str):
            raise PermanentError("A one-dimensional partitioning needs one column name as `partition_expr`.")
        by_key = {k: (_dimension(k, partitions, partition_expr),) for k in keys}
    return Slice(boxes=tuple(_merged(list(by_key.values()))), by_key=by_key)


def _multi_box(key: str, partitions: dg.MultiPartitionsDefinition, columns: str | Mapping[str, str]) -> Box:
    parts = partitions.get_partition_key_from_str(str(key)).keys_by_dimension
    missing = [p.name for p in partitions.partitions_defs if isinstance(columns, str) or p.name not in columns]
    if isinstance(columns, str) or missing:
        raise PermanentError(
            f"`partition_expr` names no column for the dimension(s) {', '.join(missing)}. "
            "Write one entry per dimension: {dimension: column}."
        )
    return tuple(_dimension(parts[p.name], p.partitions_def, columns[p.name]) for p in partitions.partitions_defs)


def _dimension(key: str, partitions: dg.PartitionsDefinition, column: str) -> TimeRange | Members:
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        window = partitions.time_window_for_partition_key(key)
        return TimeRange(column, window.start, window.end, (key,))
    return Members(column, (key,))


def _merged(boxes: list[Box]) -> Iterable[Box]:
    """Join boxes that differ in one dimension only: adjacent time ranges, then sets of members."""
    for dimension in range(len(boxes[0]) if boxes else 0):
        boxes = list(_merge_along(dimension, boxes))
    return boxes


def _merge_along(dimension: int, boxes: list[Box]) -> Iterable[Box]:
    def rest(box: Box) -> Any:
        return tuple(repr(d) for i, d in enumerate(box) if i != dimension)

    def order(box: Box) -> Any:
        own = box[dimension]
        return rest(box), instant(own.start) if isinstance(own, TimeRange) else own.keys

    for _, group in groupby(sorted(boxes, key=order), key=rest):
        members = list(group)
        for joined in _join([box[dimension] for box in members]):
            yield (*members[0][:dimension], joined, *members[0][dimension + 1 :])


def _join(dimensions: Sequence[Dimension]) -> Iterable[Dimension]:
    current = dimensions[0]
    if isinstance(current, Members):
        yield Members(current.column, tuple(k for d in dimensions for k in d.keys))
        return
    # One dimension has one kind, and partition keys are never positions.
    assert isinstance(current, TimeRange)  # noqa: S101
    adjacent = [current]
    for following in dimensions[1:]:
        assert isinstance(following, TimeRange)  # noqa: S101
        if instant(following.start) != instant(adjacent[-1].end):
            yield _united(adjacent)
            adjacent = []
        adjacent.append(following)
    yield _united(adjacent)


def _united(ranges: Sequence[TimeRange]) -> TimeRange:
    """One range over these, which follow each other."""
    return TimeRange(ranges[0].column, ranges[0].start, ranges[-1].end, tuple(k for r in ranges for k in r.keys))
