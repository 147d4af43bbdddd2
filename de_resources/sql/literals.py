"""SQL text from typed values: the only way in which a value reaches a predicate. Names have `identifiers`.

`replaceWhere`, `MERGE` and Delta's DDL take text, so something must render it. A string literal keeps only letters,
digits and a few harmless signs as they are; every other character becomes a Unicode escape. No quote, semicolon,
backslash or newline of a partition key can therefore end a literal or start a statement.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal

_HARMLESS = re.compile(r"[A-Za-z0-9 _.,:+/@=-]")

Scalar = str | bool | int | float | Decimal | date | datetime


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
