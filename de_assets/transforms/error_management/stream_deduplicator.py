"""Windowed Deduplicator, streaming flavour: a record whose key came before, within a window that the watermark bounds.

A key is remembered until the watermark has passed the time of its newest copy by `remember`. The memory therefore holds
what came within the window, however long the stream is. A copy that comes later than that passes, as a record of its own.

Source: pattern *Windowed Deduplicator*.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from de_assets.transforms.error_management.watermark import WATERMARK, shifted

UNTIL = "remembered_until"
_KNOWN = "__de_known_until"


def mark_copies(
    records: DataFrame,
    key: Sequence[str],
    order: Sequence[Column],
    *,
    time: Column,
    remember: timedelta,
    memory: DataFrame,
    into: str,
) -> DataFrame:
    """Add `into`, whether a copy is remembered from before, and `remembered_until`.

    `records` have `watermark`, that of their batch. `memory` has the columns of the key, each key once, and
    `remembered_until`. The survivor is what the memory knows, else the first in `order`: it has to be total, and where it
    is the order of arrival, the survivor is the same however the stream is cut into runs. `time` is when the record
    happened; a late one counts from the watermark. Records with a null in the key are nobody's copies.
    Raises `ValueError` without key or order.
    """
    if not key or not order:
        raise ValueError("deduplication needs a key and an order that names the survivor")
    until = shifted(F.greatest(time, F.col(WATERMARK)), remember)
    known = memory.select(*key, F.col(UNTIL).alias(_KNOWN))
    joined = records.withColumn(UNTIL, until).join(known, list(key), "left")
    before = Window.partitionBy(*key).orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    remembered = F.greatest(F.col(_KNOWN), F.max(UNTIL).over(before))
    is_copy = (remembered > F.col(WATERMARK)) | (remembered.isNotNull() & F.col(WATERMARK).isNull())
    has_key = _has_key(key)
    return joined.withColumn(into, has_key & F.coalesce(is_copy, F.lit(False))).drop(_KNOWN)


def memory_after(records: DataFrame, key: Sequence[str], memory: DataFrame, watermark: Column) -> DataFrame:
    """What is to be remembered after the records: `key` and `remembered_until`. `watermark`: that of the newest batch,
    before which no later record is judged."""
    columns = [*key, UNTIL]
    every = memory.select(*columns).unionByName(records.where(_has_key(key)).select(*columns))
    newest = every.groupBy(*key).agg(F.max(UNTIL).alias(UNTIL))
    return newest.where(watermark.isNull() | (F.col(UNTIL) > watermark))


def _has_key(key: Sequence[str]) -> Column:
    known = F.col(key[0]).isNotNull()
    for column in key[1:]:
        known = known & F.col(column).isNotNull()
    return known
