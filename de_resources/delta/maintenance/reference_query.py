"""The same query on two versions of a table: what compaction saves a reader, and whether it changed what it read.

It reads a sample, so that a night's maintenance does not read the whole lake: whole partitions, those of the most files first,
as many as fit into `SAMPLE_BYTES`. A table whose smallest part is larger is not measured.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from de_resources.delta.log import TableLog
from de_resources.delta.table import Table
from de_resources.errors import PermanentError
from de_resources.sql.balanced import balanced
from de_resources.sql.identifiers import identifier

SAMPLE_BYTES = 256 * 1024 * 1024
_SAMPLE_PARTITIONS = 100


class ContentChanged(PermanentError):
    """Two versions that must hold the same rows do not."""

    def __init__(self, table: str, before: int, after: int) -> None:
        self.table, self.before, self.after = table, before, after
        super().__init__(
            f"`{table}` holds other rows in version {after} than in version {before}, though only files were rewritten. "
            f"Nothing was removed: restore version {before}."
        )


@dataclass(frozen=True)
class Comparison:
    """Best times of the query in seconds."""

    before: float
    after: float
    runs: int


@dataclass(frozen=True)
class Sample:
    """The partitions that are read, by their values; the whole of a table without partitions."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    def condition(self) -> Column:
        """Whether a row is in the sample."""
        if not self.columns:
            return F.lit(True)
        return balanced(Column.__or__, (self._is(values) for values in self.values))

    def _is(self, values: tuple[Any, ...]) -> Column:
        same = (F.col(identifier(c)).eqNullSafe(F.lit(v)) for c, v in zip(self.columns, values, strict=True))
        return balanced(Column.__and__, same)


def sample_of(log: TableLog, limit: int = SAMPLE_BYTES) -> Sample | None:
    """The partitions of the most files that have at most `limit` bytes together; None where not even one has."""
    columns = log.partition_columns()
    sizes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in log.files().select(["size_bytes", *(f"partition.{c}" for c in columns)]).to_pylist():
        sizes[tuple(row[f"partition.{c}"] for c in columns)].append(row["size_bytes"])
    chosen: list[tuple[Any, ...]] = []
    room = limit
    for values, files in sorted(sizes.items(), key=lambda item: (-len(item[1]), sum(item[1]))):
        if sum(files) <= room and len(chosen) < _SAMPLE_PARTITIONS:
            chosen.append(values)
            room -= sum(files)
    return Sample(tuple(columns), tuple(chosen)) if chosen else None


def compare(session: SparkSession, table: Table, sample: Sample, before: int, after: int, runs: int) -> Comparison:
    """Read the sample's rows in both versions `runs` times, in turns, and keep the best time of each.

    The query counts the rows and adds up a hash of each over all columns that have one (maps and variants have none).
    Raises `ContentChanged` where the answers differ.
    """
    best = {before: float("inf"), after: float("inf")}
    answers = {}
    for _ in range(runs):
        for version in (before, after):
            started = time.monotonic()
            answers[version] = _digest(session, table, sample, version)
            best[version] = min(best[version], time.monotonic() - started)
    if answers[before] != answers[after]:
        raise ContentChanged(table.name, before, after)
    return Comparison(best[before], best[after], runs)


def _digest(session: SparkSession, table: Table, sample: Sample, version: int) -> tuple[int, Decimal | None]:
    frame = table.read(session, version).where(sample.condition())
    columns = [F.col(identifier(f.name)) for f in frame.schema.fields if _hashable(f.dataType)]
    # A sum, because it does not depend on the order of the rows; wider than the hash, so that it does not overflow.
    hashes = F.sum(F.xxhash64(*columns).cast("decimal(38,0)")) if columns else F.lit(None)
    row = frame.agg(F.count(F.lit(1)).alias("rows"), hashes.alias("hashes")).collect()[0]
    return row["rows"], row["hashes"]


def _hashable(kind: DataType) -> bool:
    match kind:
        case MapType() | VariantType():
            return False
        case ArrayType():
            return _hashable(kind.elementType)
        case StructType():
            return all(_hashable(f.dataType) for f in kind.fields)
    return True
