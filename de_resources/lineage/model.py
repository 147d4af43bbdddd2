"""What lineage consists of. All of it is immutable, comparable and free of data: names of inputs and columns only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType


class LineageKind(IntEnum):
    """How a value came from its source. Along a path, and between paths, the strongest (largest) kind holds."""

    DIRECT = 1
    """The value itself: selected, renamed, unioned."""
    TRANSFORMED = 2
    """Computed from one row: an expression, a cast, a struct's field, an exploded element."""
    AGGREGATED = 3
    """Computed over several rows: an aggregate, or a window with its partition and order keys."""
    OPAQUE = 4
    """Went into Python code; what comes out may depend on it in any way."""

    @property
    def label(self) -> str:
        """`direct`, `transformed`, `aggregated` or `opaque`."""
        return self.name.lower()


class DependencyKind(StrEnum):
    """How an input column decides about rows rather than about one column's values."""

    JOIN = "join"
    FILTER = "filter"
    GROUP = "group"
    DEDUPLICATE = "deduplicate"
    SORT = "sort"


@dataclass(frozen=True, order=True)
class ColumnSource:
    """One input column that an output column comes from; `source` is the input's alias, such as `bronze/visits`."""

    source: str
    column: str
    kind: LineageKind


@dataclass(frozen=True, order=True)
class Dependency:
    """One input column that decides which rows the whole output has, or in which groups and order."""

    source: str
    column: str
    kind: DependencyKind


@dataclass(frozen=True)
class UnnamedRead:
    """A relation of the plan that stands under no input's alias: code has read it by itself.

    `place` is what the plan says about it: the table of a JDBC query, a topic, a folder; the format where it says no more.
    """

    place: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lineage:
    """Lineage of one frame.

    `columns` has one entry per output column, in the frame's order; a literal has no sources. With `complete=False`
    what is listed was found, but more may exist; `reasons` says why in full sentences that hold names of operators and
    ids of attributes, never the plan's literals, which may be personal data.

    `inputs` are the sources of which the plan reads anything, `unnamed` what it reads besides.
    """

    columns: Mapping[str, tuple[ColumnSource, ...]]
    dependencies: tuple[Dependency, ...] = ()
    complete: bool = True
    reasons: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    unnamed: tuple[UnnamedRead, ...] = ()


MARK = "__mark_"
"""How the name of a column begins that only says which rows are to stay. Where rows are filtered by it, what it was made of
are dependencies; a value that is left out of the other rows (`when(mark, value)`) is still the value itself."""

Origins = Mapping[tuple[str, str], LineageKind]
"""Where a column of an operator comes from: (source, column) to the strongest kind on the way."""

NOWHERE: Origins = MappingProxyType({})


def is_mark(name: str) -> bool:
    """Whether a column of that name is a mark."""
    return name.startswith(MARK)


def merged(parts: Iterable[Origins], at_least: LineageKind = LineageKind.DIRECT) -> Origins:
    """Union of `parts`; of two paths from one source the strongest kind holds, and none is weaker than `at_least`."""
    result: dict[tuple[str, str], LineageKind] = {}
    for part in parts:
        for origin, kind in part.items():
            result[origin] = max(kind, at_least, result.get(origin, at_least))
    return result
