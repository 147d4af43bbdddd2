"""SQL text from typed values: the only way in which a value or a name reaches a predicate.

`replaceWhere`, `MERGE` and Delta's DDL take text, so something must render it. A string literal keeps only letters,
digits and a few harmless signs as they are; every other character becomes a Unicode escape. No quote, semicolon,
backslash or newline of a partition key can therefore end a literal or start a statement.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from de_resources.errors import PermanentError

_HARMLESS = re.compile(r"[A-Za-z0-9 _.,:+/@=-]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

# Delta refuses these in the names of columns, nested ones too, unless a table maps its names.
_NOT_IN_FIELDS = re.compile(r"[ ,;{}()\n\t=]")

Scalar = str | bool | int | float | Decimal | date | datetime


class UnsafeIdentifier(PermanentError):
    """A table, column or folder name outside the allowed alphabet."""

    def __init__(self, what: str, name: str) -> None:
        self.what, self.name = what, name
        super().__init__(
            f"The {what} {name[:80]!r} is not usable: it must start with a letter or underscore, hold only letters, "
            "digits and underscores, and have at most 128 characters. Rename it."
        )


class UnstorableField(PermanentError):
    """A field inside a struct whose name a Delta table cannot have."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The nested field {name[:80]!r} cannot be stored: a name is not empty, and has no space, tab, end of line, and "
            "none of , ; { } ( ) =. Rename it in the transform."
        )


def literal(value: Scalar) -> str:
    """Render one value as a Spark SQL literal of its own type. Datetimes must be aware; they are rendered in UTC.

    Raises `ValueError` for a naive datetime, a number that is not finite and text with a lone surrogate, `TypeError`
    for any other type.
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}"
        case Decimal() | float():
            if not math.isfinite(value):
                raise ValueError(f"{value} has no literal form")
            return f"{value}D" if isinstance(value, float) else f"{value}BD"
        case datetime():
            if value.tzinfo is None:
                raise ValueError(f"the naive datetime {value} names no instant")
            return f"TIMESTAMP '{value.astimezone(UTC).isoformat(sep=' ', timespec='microseconds')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case str():
            value.encode()  # a lone surrogate has no UTF-8 form: the engine would turn it into another character
            return "'" + "".join(c if _HARMLESS.fullmatch(c) else _escape(c) for c in value) + "'"
    raise TypeError(f"no SQL literal for {type(value).__name__}")


def clock_literal(moment: datetime) -> str:
    """Render an aware datetime as a TIMESTAMP_NTZ literal: what a clock in UTC shows. Raises `ValueError` for a naive one."""
    if moment.tzinfo is None:
        raise ValueError(f"the naive datetime {moment} names no instant")
    return f"TIMESTAMP_NTZ '{moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def identifier(name: str, *, what: str = "column") -> str:
    """Quote one name for SQL. Raises `UnsafeIdentifier` for a name outside the allowed alphabet."""
    if not _IDENTIFIER.fullmatch(name):
        raise UnsafeIdentifier(what, name)
    return f"`{name}`"


def quoted_path(uri: str) -> str:
    """A table by its location, for SQL: ``delta.`…` ``. A back-tick in the location is doubled, as SQL wants it."""
    return f"delta.`{uri.replace('`', '``')}`"


def type_text(type_: DataType) -> str:
    """A type as DDL, with the names of nested fields quoted: `simpleString` would let a name end its struct.

    Raises `UnstorableField`.
    """
    match type_:
        case StructType():
            return f"STRUCT<{', '.join(f'{_field(f.name)}: {type_text(f.dataType)}' for f in type_.fields)}>"
        case ArrayType():
            return f"ARRAY<{type_text(type_.elementType)}>"
        case MapType():
            return f"MAP<{type_text(type_.keyType)}, {type_text(type_.valueType)}>"
    return type_.simpleString()


def _field(name: str) -> str:
    if not name or _NOT_IN_FIELDS.search(name):
        raise UnstorableField(name)
    return "`" + name.replace("`", "``") + "`"
