"""Frames that no table can hold: a name twice, as a join leaves it, or a type that Delta does not store.

The engine says so itself, in a sentence of its own for each way of writing, some after the table was made and one while its
files were being written. Here the schema is asked, before anything is. Names are `de_resources.sql.identifiers`' to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    MapType,
    NullType,
    StructType,
    YearMonthIntervalType,
)

from de_resources.errors import PermanentError

_INTERVALS = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


class UnstorableFrame(PermanentError):
    """A frame with columns that a table cannot have; `problems` are all of them."""

    def __init__(self, table: str, problems: list[str]) -> None:
        self.table, self.problems = table, problems
        super().__init__(
            f"The frame for `{table}` cannot be stored: {'; '.join(problems)}. Nothing was written. "
            "Rename, drop or cast these columns in the transform."
        )


def require_storable(schema: StructType, table: str) -> None:
    """Raise `UnstorableFrame`, which lists every column that is in the way, nested fields by their path."""
    problems = [*_repeated(schema, ""), *(p for f in schema.fields for p in _unstorable(f.dataType, f.name))]
    if problems:
        raise UnstorableFrame(table, problems)


def _repeated(type_: StructType, path: str) -> Iterator[str]:
    """A table does not tell names apart that differ in their case alone."""
    for name, times in Counter(f.name.lower() for f in type_.fields).items():
        if times > 1:
            yield f"{times} columns are called `{path}{name}` (a table does not know `a` from `A`)"


def _unstorable(type_: DataType, path: str) -> Iterator[str]:
    match type_:
        case StructType(fields=[]):
            yield f"`{path}` is a struct without fields"
        case StructType():
            yield from _repeated(type_, f"{path}.")
            for field in type_.fields:
                yield from _within(field.dataType, f"{path}.{field.name}")
        case ArrayType():
            yield from _within(type_.elementType, f"{path}.element")
        case MapType():
            yield from _within(type_.keyType, f"{path}.key")
            yield from _within(type_.valueType, f"{path}.value")
        case _ if isinstance(type_, _INTERVALS):
            yield f"`{path}` is {type_.simpleString()}"


def _within(type_: DataType, path: str) -> Iterator[str]:
    """A column may have no type, where all of it is null; a part of one may not."""
    if isinstance(type_, NullType):
        yield f"`{path}` has no type (all of its values are null)"
    yield from _unstorable(type_, path)
