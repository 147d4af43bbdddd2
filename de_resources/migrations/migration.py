"""A migration as a declaration: which columns take the place of which, and how either side is computed from the other.

    TITLE = rename("title_for_name", "full_name", "title", T.StringType())

It is code, and so reviewed; an asset names it in its metadata (`migrations: ["shop.migrations:TITLE"]`). How far it has got is
not code: the table itself says it (`progress`). Everything here is pure.

Pattern: Schema Migrator - the declaration. Source: *parallel change* (expand, migrate, contract), D. Sato 2014; pgroll.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from de_resources.delta.asset_settings import MIGRATIONS
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier, type_text

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class MigrationKind(StrEnum):
    """What becomes of the old columns."""

    RENAME = "rename"
    RETYPE = "retype"
    NEST = "nest"
    REMOVE = "remove"


class Sides(StrEnum):
    """Which side of a migration a table stores."""

    OLD = "old"
    BOTH = "both"
    NEW = "new"


class NotAMigration(PermanentError):
    """A migration that is none, or whose declaration cannot work."""

    def __init__(self, what: object, why: str) -> None:
        self.what, self.why = what, why
        super().__init__(f"{what!r} is no migration: {why}. Nothing was changed.")


@dataclass(frozen=True)
class MigratedField:
    """One column of a side. `value` is SQL over the columns of the other side, by which it is computed."""

    name: str
    type: DataType
    value: str

    @property
    def computed(self) -> str:
        """SQL of the value, in exactly the column's type."""
        return f"CAST({self.value} AS {type_text(self.type)})"


@dataclass(frozen=True)
class Migration:
    """Old columns and the new ones that take their place; a removal has no new ones.

    Made by `rename`, `retype`, `nest` and `remove`, or by hand with SQL of its own. Raises `NotAMigration` for a name that
    is no lower-case word and for a column on both sides.
    """

    name: str
    kind: MigrationKind
    old: tuple[MigratedField, ...]
    new: tuple[MigratedField, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise NotAMigration(self.name, "its name is no word of lower-case letters, digits and underscores")
        names = [*self.old_names, *self.new_names]
        if not self.old or len({n.lower() for n in names}) < len(names):
            raise NotAMigration(self.name, "it needs old columns, and no column can be named twice")

    @property
    def old_names(self) -> tuple[str, ...]:
        """The columns that go."""
        return tuple(f.name for f in self.old)

    @property
    def new_names(self) -> tuple[str, ...]:
        """The columns that come."""
        return tuple(f.name for f in self.new)

    @property
    def property_name(self) -> str:
        """The property of the table that says how far this migration has got."""
        return f"de.migration.{self.name}"

    def fields(self, sides: Sides) -> tuple[MigratedField, ...]:
        """The columns that a table stores."""
        return {Sides.OLD: self.old, Sides.BOTH: (*self.old, *self.new), Sides.NEW: self.new}[sides]

    # The four questions about a row that stores both sides, as SQL that is never NULL.

    @property
    def old_alone(self) -> str:
        """Whether only the old side is filled, and the new one can be computed."""
        return f"({_all_null(self.new)} AND NOT {_computed(self.new)})" if self.new else "FALSE"

    @property
    def new_alone(self) -> str:
        """Whether only the new side is filled, and the old one can be computed."""
        return f"({_all_null(self.old)} AND NOT {_computed(self.old)})" if self.new else "FALSE"

    @property
    def differs(self) -> str:
        """Whether both sides are filled, and neither is what the other one says."""
        if not self.new:
            return "FALSE"
        agrees = f"({_computed(self.new)} OR {_computed(self.old)})"
        return f"(NOT {agrees} AND NOT {self.old_alone} AND NOT {self.new_alone})"

    @property
    def loses(self) -> str:
        """Whether the sides agree, and yet the new one does not hold all that the old one says, such as `abc` as a number."""
        return f"({_computed(self.new)} AND NOT {_computed(self.old)})" if self.new else "FALSE"

    def stored(self, frame: DataFrame, sides: Sides) -> DataFrame:
        """The frame with the columns that the table stores, whichever side its author knows.

        A side that is missing is computed; where both are there, what is null on one is filled from the other, and what
        differs is left for the check. A frame with neither is left as it is. Works for streams. A rerun gives the same.
        """
        there = set(frame.columns)
        has_old, has_new = there.issuperset(self.old_names), bool(self.new) and there.issuperset(self.new_names)
        wanted = self.fields(sides)
        if has_old and has_new:
            # Both values are judged on the row as it came, before either is changed.
            old = {f.name: _filled(f, self.new_alone) for f in self.old}
            new = {f.name: _filled(f, self.old_alone) for f in self.new}
            frame = frame.withColumns({name: F.expr(sql) for name, sql in {**old, **new}.items()})
        elif has_old or has_new or not self.new:
            missing = [f for f in wanted if f.name not in there]
            frame = frame.withColumns({f.name: F.expr(f.computed) for f in missing}) if missing else frame
        else:
            return frame
        kept = {f.name for f in wanted}
        return frame.drop(*(c for c in (*self.old_names, *self.new_names) if c not in kept))

    def as_old(self, frame: DataFrame) -> DataFrame:
        """The rows of a table as a reader of the old columns wants them, in every phase."""
        return self.stored(frame, Sides.OLD)

    def as_new(self, frame: DataFrame) -> DataFrame:
        """The rows of a table as a reader of the new columns wants them, in every phase."""
        return self.stored(frame, Sides.NEW)


def rename(name: str, old: str, new: str, type_: DataType) -> Migration:
    """A column gets another name."""
    return Migration(
        name,
        MigrationKind.RENAME,
        (MigratedField(old, type_, identifier(new)),),
        (MigratedField(new, type_, identifier(old)),),
    )


def retype(name: str, old: str, old_type: DataType, new: str, new_type: DataType) -> Migration:
    """A column's values become another type, under another name. What cannot be converted is null, and `loses`.

    A text becomes a time only where it begins with a date.
    """
    to_old, to_new = _converted(new, new_type, old_type), _converted(old, old_type, new_type)
    return Migration(
        name, MigrationKind.RETYPE, (MigratedField(old, old_type, to_old),), (MigratedField(new, new_type, to_new),)
    )


def _converted(column: str, is_: DataType, becomes: DataType) -> str:
    sql = f"try_cast({identifier(column)} AS {type_text(becomes)})"
    if not isinstance(is_, StringType) or not isinstance(becomes, DateType | TimestampType | TimestampNTZType):
        return sql
    # Spark reads `10:05` as today's: another run, on another day, would migrate other values. And `2024` as its first day.
    signs = " AND ".join(f"substring({identifier(column)}, {place}, 1) = '-'" for place in (5, 8))
    return f"CASE WHEN {signs} THEN {sql} END"


def nest(name: str, columns: Mapping[str, DataType], into: str) -> Migration:
    """Columns become the fields of one struct, which is null where all of them are."""
    old = tuple(MigratedField(c, t, f"{identifier(into)}.{identifier(c)}") for c, t in columns.items())
    parts = ", ".join(f"'{n}', {identifier(c)}" for n, c in zip(_positions(columns), columns, strict=True))
    value = f"CASE WHEN {_all_null(old)} THEN NULL ELSE named_struct({parts}) END" if old else "NULL"
    type_ = StructType([StructField(c, t) for c, t in columns.items()])
    return Migration(name, MigrationKind.NEST, old, (MigratedField(into, type_, value),))


def remove(name: str, columns: Mapping[str, DataType]) -> Migration:
    """Columns go. During grace a writer may leave them out; they are null then."""
    return Migration(name, MigrationKind.REMOVE, tuple(MigratedField(c, t, "NULL") for c, t in columns.items()), ())


def migrations_of(metadata: Mapping[str, Any]) -> tuple[Migration, ...]:
    """The migrations that an asset names. Raises `NotAMigration`."""
    return tuple(map(_load, metadata.get(MIGRATIONS) or ()))


def stored_by(frame: DataFrame, parts: Collection[tuple[Migration, Sides]]) -> DataFrame:
    """The frame as a table under several migrations stores it."""
    return reduce(lambda made, part: part[0].stored(made, part[1]), parts, frame)


def _load(path: str) -> Migration:
    module, _, name = str(path).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise NotAMigration(path, str(error)) from error
    if not isinstance(found, Migration):
        raise NotAMigration(path, "it is something else")
    return found


def _positions(columns: Mapping[str, DataType]) -> list[str]:
    """Names for the parts of a struct that need no quotes: the cast to the column's type gives the real ones by position."""
    return [f"f{n}" for n in range(len(columns))]


def _all_null(fields: Sequence[MigratedField]) -> str:
    return "(" + " AND ".join(f"{identifier(f.name)} IS NULL" for f in fields) + ")"


def _computed(fields: Sequence[MigratedField]) -> str:
    """Whether a side is what the other one says."""
    return "(" + " AND ".join(f"{identifier(f.name)} <=> {f.computed}" for f in fields) + ")"


def _filled(field: MigratedField, when: str) -> str:
    return f"CASE WHEN {when} THEN {field.computed} ELSE {identifier(field.name)} END"
