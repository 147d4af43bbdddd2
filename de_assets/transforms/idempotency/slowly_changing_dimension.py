"""Slowly changing dimension, type 2, from a history of changes.

Source: R. Kimball, M. Ross, *The Data Warehouse Toolkit*, type 2 dimensions; intervals are half-open.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_OPERATION, _SAME = "__de_operation", "__de_same"


def versions(
    history: DataFrame, key: str, attributes: Sequence[str], at: str, deleted: Column, order: Sequence[str] = ()
) -> DataFrame:
    """One row per version: `key`, `attributes`, `valid_from`, `valid_to` (null: still valid), `is_current`.

    `history` has one row per change, with the state after it and the time `at`. Of several changes of one key at one
    instant the last by `order` counts, or without one a delete, then the last by content, so that no version is empty; a
    change that changes nothing opens no version;
    a delete closes the last version and opens none. The result depends on the set of changes only, not on their order.
    """
    content = [F.col(a) for a in attributes]
    by_key = Window.partitionBy(key).orderBy(at)
    last = [F.col(o).desc() for o in order]
    newest = Window.partitionBy(key, at).orderBy(
        *last, F.col(_OPERATION).desc(), *(c.desc_nulls_last() for c in content)
    )
    changes = (
        history.select(key, *attributes, at, *order, deleted.alias(_OPERATION))
        .withColumn("__de_rank", F.row_number().over(newest))
        .where("__de_rank = 1")
        .drop("__de_rank")
    )
    state = F.struct(*content, F.col(_OPERATION))
    changed = changes.withColumn(_SAME, state.eqNullSafe(F.lag(state).over(by_key))).where(~F.col(_SAME))
    bounded = changed.withColumn("valid_to", F.lead(at).over(by_key))
    return bounded.where(~F.col(_OPERATION)).select(
        key, *attributes, F.col(at).alias("valid_from"), "valid_to", F.col("valid_to").isNull().alias("is_current")
    )
