"""Windowed Deduplicator: one row per key within the window that the frame holds.

Source: pattern *Windowed Deduplicator*. The window is the caller's: one partition, or one with a look-back.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def number_copies(frame: DataFrame, key: Sequence[str], survivor: Sequence[Column], *, into: str) -> DataFrame:
    """Add the column `into`: 1 for the row that `deduplicate` keeps, 2 and more for its copies.

    For callers that count what they remove. Raises `ValueError` without key or order.
    """
    if not key or not survivor:
        raise ValueError("deduplication needs a key and an order that names the survivor")
    known = [F.col(k).isNotNull() for k in key]
    has_key = known[0]
    for condition in known[1:]:
        has_key = has_key & condition
    number = F.row_number().over(Window.partitionBy(*key).orderBy(*survivor))
    return frame.withColumn(into, F.when(has_key, number).otherwise(1))
