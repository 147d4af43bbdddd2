"""What increments of changed rows add up to. Pattern: Incremental Loader, with soft deletes."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_RANK = "__de_rank"


def newest_states(rows: DataFrame, *, key: str, at: str, deleted: str) -> DataFrame:
    """One row per `key`: its last state by the time `at`; keys whose last state is `deleted` (boolean) are left out.

    Of several states of one instant a deleted one wins, then the greatest by content, so that the result depends on the
    set of rows only: increments may overlap, repeat, or come in any order.
    """
    content = [c for c in rows.columns if c not in (key, at, deleted)]
    order = [F.col(at).desc(), F.col(deleted).desc_nulls_last(), *(F.col(c).desc_nulls_last() for c in content)]
    ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(key).orderBy(*order)))
    alive = ~F.coalesce(F.col(deleted), F.lit(False))
    return ranked.where((F.col(_RANK) == 1) & alive).drop(_RANK)
