"""Windowed Deduplicator: one row per key within the window that the frame holds, or within a few partitions.

Source: pattern *Windowed Deduplicator*. The window is the caller's: one partition, or one with a look-back. A look-back
compares with what *came* in earlier partitions and never with what an earlier run kept, so that partitions can be run
and run again in any order, side by side or in one run, and give the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_NUMBER = "__de_copy"


def deduplicate(frame: DataFrame, key: Sequence[str], survivor: Sequence[Column]) -> DataFrame:
    """Keep, per `key`, the first row in the order `survivor`.

    The order must be total over copies that differ, else the survivor is arbitrary: end it with columns that tell them
    apart. Exact copies may tie. Rows with a null in the key are never duplicates of each other and all stay.
    Raises `ValueError` without key or order. A rerun keeps the same rows.
    """
    return number_copies(frame, key, survivor, into=_NUMBER).where(F.col(_NUMBER) == 1).drop(_NUMBER)


@dataclass(frozen=True)
class LookBack:
    """Rows of one partition, and the `partitions` before it in which a copy may have come already.

    `column` is the timestamp at which a row's partition begins, `length` how long a partition is. The frame has to hold
    the rows of the earlier partitions too; the caller leaves them out of its result.
    """

    column: str
    partitions: int
    length: timedelta

    def __post_init__(self) -> None:
        if self.partitions < 0 or self.length < timedelta(seconds=1):
            raise ValueError("a look-back is a number of partitions, of at least a second each")


def number_copies(
    frame: DataFrame, key: Sequence[str], survivor: Sequence[Column], *, into: str, look_back: LookBack | None = None
) -> DataFrame:
    """Add the column `into`: 1 for the row that `deduplicate` keeps, 2 and more for its copies.

    For callers that count what they remove. With `look_back` the window is a row's own partition and those before it: the
    earliest partition wins, and `survivor` decides within it. A copy counts wherever it came, kept or not, so that one
    that comes again and again within the look-back is removed every time; one that pauses for longer passes.
    Raises `ValueError` without key or order.
    """
    if not key or not survivor:
        raise ValueError("deduplication needs a key and an order that names the survivor")
    known = [F.col(k).isNotNull() for k in key]
    has_key = known[0]
    for condition in known[1:]:
        has_key = has_key & condition
    own = [look_back.column, *key] if look_back else list(key)
    earlier = _earlier(key, look_back) if look_back and look_back.partitions else F.lit(0)
    number = F.row_number().over(Window.partitionBy(*own).orderBy(*survivor)) + earlier
    return frame.withColumn(into, F.when(has_key, number.cast("int")).otherwise(1))


def _earlier(key: Sequence[str], look_back: LookBack) -> Column:
    """How many rows with the same key the earlier partitions of the look-back have."""
    start = F.unix_seconds(F.col(look_back.column))
    farthest = -look_back.partitions * int(look_back.length.total_seconds())
    return F.count(F.lit(1)).over(Window.partitionBy(*key).orderBy(start).rangeBetween(farthest, -1))
