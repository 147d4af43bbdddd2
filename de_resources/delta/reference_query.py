"""The same query on two versions of a table: what compaction saves a reader, and the proof that it changed nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from de_resources.delta.identifiers import identifier
from de_resources.delta.table import Table
from de_resources.errors import PermanentError


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


def compare(session: SparkSession, table: Table, before: int, after: int, runs: int) -> Comparison:
    """Read every row of both versions `runs` times, in turns, and keep the best time of each.

    The query counts the rows and adds up a hash of each over all columns that have one (maps and variants have none).
    Raises `ContentChanged` where the answers differ.
    """
    best = {before: float("inf"), after: float("inf")}
    answers = {}
    for _ in range(runs):
        for version in (before, after):
            started = time.monotonic()
            answers[version] = _digest(session, table, version)
            best[version] = min(best[version], time.monotonic() - started)
    if answers[before] != answers[after]:
        raise ContentChanged(table.name, before, after)
    return Comparison(best[before], best[after], runs)


def _digest(session: SparkSession, table: Table, version: int) -> tuple[int, Decimal | None]:
    frame = table.read(session, version)
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
