"""Whose row is it: from the values of partition columns to the partition key, at a cost that does not grow with the keys.

`KeyIndex` answers for one row, or for one file with its partition values: sorted bounds name the few keys that may have it.
`KeyGroups` answers for a whole frame: the engine groups by few values, which the index then attributes, so that neither a key
nor its bounds are in the query.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any, Generic, TypeVar

from pyspark.sql.types import DataType, StructType, TimestampNTZType, TimestampType

from de_resources.delta.dimensions import Box, Dimension, Members, TimeRange, instant, value_like
from de_resources.sql.identifiers import identifier

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Candidates = Callable[[Any], Iterable[Dimension]]
"""Those of a column's dimensions that may contain a value, among them all that do."""
Bound = TypeVar("Bound", float, date)


class KeyIndex:
    """Partition keys by the values of their columns. Where several keys have a row, it belongs to the first of them."""

    def __init__(self, by_key: Mapping[str, Box]) -> None:
        self._keys: dict[Box, tuple[int, str]] = {}
        for rank, (key, box) in enumerate(by_key.items()):
            self._keys.setdefault(box, (rank, key))
        positions = [list(dict.fromkeys(dimensions)) for dimensions in zip(*self._keys, strict=True)]
        self._columns = [(dimensions[0].column, _candidates(dimensions)) for dimensions in positions]

    def key_of(self, values: Mapping[str, Any]) -> str | None:
        """The key of a row with these values, or None."""
        found = [
            [dimension for dimension in candidates(values[column]) if dimension.contains(values[column])]
            for column, candidates in self._columns
        ]
        keys = [self._keys[box] for box in product(*found) if box in self._keys]
        return min(keys)[1] if keys else None


def _candidates(dimensions: Sequence[Dimension]) -> Candidates:
    ranges = [d for d in dimensions if isinstance(d, TimeRange)]
    members = [d for d in dimensions if isinstance(d, Members)]
    if len(ranges) == len(dimensions):
        return _Ranges(ranges)
    if len(members) == len(dimensions):
        return _MemberSets(members)
    return lambda _: dimensions


class _Ranges:
    """Time ranges by instant, by local day and by key; each order is made when a value asks for it."""

    def __init__(self, ranges: Sequence[TimeRange]) -> None:
        self._ranges = ranges
        self._orders: dict[type, Callable[[Any], Iterable[TimeRange]]] = {}

    def __call__(self, value: Any) -> Iterable[TimeRange]:
        if isinstance(value, datetime):
            order = self._order(
                datetime, lambda: _Intervals((instant(r.start), instant(r.end), r) for r in self._ranges)
            )
            return order(instant(value if value.tzinfo else value.replace(tzinfo=UTC)))
        if isinstance(value, date):
            order = self._order(date, lambda: _Intervals((r.start.date(), r.end.date(), r) for r in self._ranges))
            return order(value)
        return self._order(str, lambda: _grouped((k, r) for r in self._ranges for k in r.keys))(value)

    def _order(
        self, kind: type, make: Callable[[], Callable[[Any], Iterable[TimeRange]]]
    ) -> Callable[[Any], Iterable[TimeRange]]:
        if kind not in self._orders:
            self._orders[kind] = make()
        return self._orders[kind]


class _MemberSets:
    """Members by their values, as the type of the column has them."""

    def __init__(self, members: Sequence[Members]) -> None:
        self._members = members
        self._by_type: dict[type, Callable[[Any], Iterable[Members]]] = {}

    def __call__(self, value: Any) -> Iterable[Members]:
        if type(value) not in self._by_type:
            self._by_type[type(value)] = _grouped((value_like(value, k), m) for m in self._members for k in m.keys)
        return self._by_type[type(value)](value)


class _Intervals(Generic[Bound]):
    """Half-open intervals by what they contain: sorted bounds, and between two of them whoever covers that stretch."""

    def __init__(self, intervals: Iterable[tuple[Bound, Bound, TimeRange]]) -> None:
        known = list(intervals)
        self._bounds: list[Bound] = sorted({bound for start, end, _ in known for bound in (start, end)})
        self._covering: list[list[TimeRange]] = [[] for _ in self._bounds]
        for start, end, owner in known:
            # Windows of a calendar do not overlap, so that each of them is one stretch.
            for place in range(bisect_left(self._bounds, start), bisect_left(self._bounds, end)):
                self._covering[place].append(owner)

    def __call__(self, value: Bound) -> Sequence[TimeRange]:
        place = bisect_right(self._bounds, value) - 1
        return self._covering[place] if place >= 0 else ()


Owner = TypeVar("Owner")


def _grouped(pairs: Iterable[tuple[Any, Owner]]) -> Callable[[Any], Iterable[Owner]]:
    groups: dict[Any, list[Owner]] = defaultdict(list)
    for value, owner in pairs:
        groups[value].append(owner)
    return lambda value: groups.get(value, ())


class KeyGroups:
    """By what to group a frame's rows so that a group lies inside one partition key, and whose each group is.

    A column of instants is cut into steps of one width, the widest that has a cut at every bound: an hour for hourly keys, also
    for days where clocks change. Other columns have few values, and are grouped by them.
    """

    def __init__(self, by_key: Mapping[str, Box], schema: StructType) -> None:
        self._index = KeyIndex(by_key)
        types = {f.name: f.dataType for f in schema.fields}
        columns: dict[str, list[Dimension]] = defaultdict(list)
        for box in by_key.values():
            for dimension in box:
                columns[dimension.column].append(dimension)
        self._steps = {
            column: _Steps(column, types[column], [d for d in dimensions if isinstance(d, TimeRange)])
            for column, dimensions in columns.items()
            if isinstance(types[column], TimestampType | TimestampNTZType)
        }
        self._columns = list(columns)

    @property
    def expressions(self) -> list[str]:
        """SQL to group by; each row's group has one value per expression. All rows have to be inside the slice."""
        return [self._steps[c].expression if c in self._steps else identifier(c) for c in self._columns]

    def key_of(self, group: Sequence[Any]) -> str | None:
        """The key of all rows of the group with these values."""
        values = zip(self._columns, group, strict=True)
        return self._index.key_of({c: self._steps[c].start_of(v) if c in self._steps else v for c, v in values})


class _Steps:
    """A column of instants, cut at equal distances."""

    def __init__(self, column: str, type_: DataType, ranges: Sequence[TimeRange]) -> None:
        bounds = {(bound - _EPOCH) // _MICROSECOND for r in ranges for bound in (r.start, r.end)}
        self._first = min(bounds)
        self._width = math.gcd(*(bound - self._first for bound in bounds))
        at = identifier(column)
        if isinstance(type_, TimestampNTZType):
            # A column without a time zone is in UTC, as in a slice's predicate; a plain cast would take the session's zone.
            at = f"CAST(CONCAT(CAST({at} AS STRING), 'Z') AS TIMESTAMP)"
        micros = f"unix_micros({at})"
        self.expression = f"({micros} - {self._first}L) div {self._width}L"

    def start_of(self, step: int) -> datetime:
        """Where the step begins, in UTC."""
        return _EPOCH + (self._first + step * self._width) * _MICROSECOND
