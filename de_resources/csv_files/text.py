"""Rows as lines of CSV, by RFC 4180 but for the end of a line: every reader of the format gets the same values.

- Lines end with LF; the first one has the names of the columns.
- Text is always in quotes, and a quote inside is doubled: commas, quotes and ends of lines in a value are part of it.
- A null is nothing between two commas, an empty text is `""`. Python's `csv` reads both as empty text.
- Numbers, truth values (`true`), dates (`2026-01-31`) and times (`2026-01-31T23:59:59.123456Z`, UTC) are not in quotes.

Spark's own writer cuts blanks at both ends of a value, and leaves to its library when a quote is written; the same value can be
written in two ways. Here a value has one text, so that the same rows are the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier

END = "\n"
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"  # the platform's sessions are in UTC


class NoText(PermanentError):
    """A column whose type has no one text that every reader understands."""

    def __init__(self, column: str, kind: DataType) -> None:
        self.column, self.kind = column, kind
        super().__init__(
            f"The column `{column}` is {kind.simpleString()}, which has no text in CSV that all readers share. Nothing was "
            "written. Turn it into text in the transform."
        )


def header(names: Sequence[str]) -> str:
    """The first line, without its end."""
    return ",".join(_quoted(name) for name in names)


def line(schema: StructType) -> Column:
    """A row of this schema as a line, without its end. Raises `NoText`."""
    return F.concat_ws(",", *(_cell(each) for each in schema.fields))


def _cell(column: StructField) -> Column:
    return F.coalesce(_text(column), F.lit(""))  # `concat_ws` would leave a null out, and its comma too


def _text(column: StructField) -> Column:
    value, kind = F.col(identifier(column.name)), column.dataType
    if isinstance(kind, StringType):
        return F.concat(F.lit('"'), F.replace(value, F.lit('"'), F.lit('""')), F.lit('"'))
    if isinstance(kind, TimestampType):
        return F.date_format(value, _TIME)
    if isinstance(kind, (BooleanType, DateType, DecimalType, IntegralType)):
        return value.cast("string")
    raise NoText(column.name, kind)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
