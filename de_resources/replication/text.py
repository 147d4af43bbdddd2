"""Text files by allow-list, every value as the text that it is. Pattern: Transformation Replicator.

A reader that guesses types changes what it copies: `1.10` becomes `1.1`, `2024-01-05 07:03` gains a time zone, `31/02/2024`
becomes null. Here every column is a string, timestamps and numbers included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from de_resources.contract import Contract
from de_resources.engine.literal_paths import literally
from de_resources.errors import PermanentError
from de_resources.replication.allow_list import allowed_columns
from de_resources.sql.identifiers import identifier

_BROKEN = "_broken_line"
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    # Without pruning every line is looked at as a whole, so that one with a value too many is noticed.
    "csv": {"header": "true", "enforceSchema": "false", "columnPruning": "false"},
    "json": {"primitivesAsString": "true"},
}


class BrokenLines(PermanentError):
    """Lines of a text file that are not what they should be: JSON cut off, or a CSV line with too many or few values."""

    def __init__(self, kind: str, files: Mapping[str, int]) -> None:
        self.kind, self.files = kind, dict(files)
        named = ", ".join(f"{count:,} in `{file}`" for file, count in sorted(files.items())[:5])
        super().__init__(
            f"{sum(files.values()):,} line(s) cannot be read as {kind.upper()}: {named}. Nothing was replicated. Look at the "
            "delimiter and at the end of the files, and have their producer write them again."
        )


def read_allowed_text(
    session: SparkSession, files: Sequence[str], kind: Literal["csv", "json"], contract: Contract, **options: str
) -> DataFrame:
    """The columns of text files that may leave, all of them strings, in the contract's order.

    `kind` is CSV with a header, or JSON lines; `options` are the reader's own, such as `sep`. The files are looked through
    first: a JSON line that has one column more than the contract stops the run as a table's column does, wherever it is.
    An object within a JSON line is one column, and its text is kept.

    Raises `UnclassifiedColumns`, `VanishedColumns` (see `allow_list`), and `BrokenLines`, which shows places and no values;
    `UnreadableName`.
    """
    paths = literally(files)
    reader = session.read.format(kind).options(
        **{**_OPTIONS[kind], "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN, **options}
    )
    present = [name for name in reader.load(paths).columns if name != _BROKEN]
    _require_whole(reader, paths, kind, present)
    allowed = allowed_columns(contract, present)
    return reader.schema(_strings(present)).load(paths).select(*map(_column, allowed))


def _require_whole(reader: DataFrameReader, paths: list[str], kind: str, present: list[str]) -> None:
    lines = reader.schema(_strings([*present, _BROKEN])).load(paths)
    # The engine reads the column of broken lines only beside another one.
    columns = [
        F.col("_metadata.file_name").alias("file"),
        F.col(_BROKEN),
        *map(_column, present[:1]),
    ]
    counted = (
        lines.select(*columns)
        .groupBy("file")
        .agg(F.count(_BROKEN).alias("broken"), *(F.max(_column(name)) for name in present[:1]))
    )
    found = {row["file"]: row["broken"] for row in counted.collect() if row["broken"]}
    if found:
        raise BrokenLines(kind, found)


def _strings(names: Sequence[str]) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


def _column(name: str) -> Column:
    """A column by its name, which may be any text: a header is data."""
    return F.col(identifier(name))
