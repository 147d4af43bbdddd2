"""Distributed Aggregator: a cube with the exact number of distinct values, for which each row moves once.

Distinct values have to be counted anew for every combination of dimensions. Asked for `count(DISTINCT …)` over
`GROUPING SETS`, the engine multiplies the rows by the combinations (eight for three dimensions), and then moves all of these
between its tasks to bring equal values together. Here the rows are moved first, each value's to one task, and multiplied there.
What a task adds up for a value in a combination is whole: one row of it is one distinct value, and no other task counts it.

Source: pattern *Distributed Aggregator*; partial aggregation by a finer key, as in J. Gray et al., *Data Cube*.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_assets.transforms.data_value.mergeable_measures import Measures
from de_resources.sql.identifiers import identifier

TASKS = 32
"""Into so many parts the values are cut. What a task holds of its values has to fit into its share of the engine's memory, or
the engine goes on by sorting. Ten million rows with half a million values fit, three dimensions, with 3 GB on two cores."""
_GROUPING = "__de_grouping"


def cube_with_distinct(
    events: DataFrame,
    within: str,
    dimensions: Sequence[str],
    measures: Measures,
    *,
    of: str,
    named: str,
    tasks: int = TASKS,
) -> DataFrame:
    """As `distributed_aggregator.cube`: a row per value of `within` and combination of `dimensions`, subtotals included.

    Columns: `within`, `grouping` (bit mask of the dimensions that are summed up, the first one being the highest bit), the
    dimensions, `named`: the number of distinct values of the column `of` (null is none), and the measures.
    """
    first, who = F.col(identifier(within)), F.col(identifier(of))
    masks = F.sequence(F.lit(0), F.lit(2 ** len(dimensions) - 1))
    each = events.repartition(tasks, who).withColumn(_GROUPING, F.explode(masks))
    by = [first.alias("within"), F.col(_GROUPING).alias("grouping"), *_kept(dimensions), who.alias("who")]
    partial = (measure.partial.alias(f"part_{n}") for n, measure in enumerate(measures.values()))
    # Without measures there is still something to group for; what nobody reads the engine leaves out.
    parts = each.groupBy(*by).agg(F.count(F.lit(1)), *partial)
    keys = ["within", "grouping", *(f"by_{n}" for n in range(len(dimensions)))]
    merged = parts.groupBy(*keys).agg(
        F.count("who").alias("distinct"),
        *(m.merge(F.col(f"part_{n}")).alias(f"part_{n}") for n, m in enumerate(measures.values())),
    )
    counted = (F.col(f"by_{n}").alias(name) for n, name in enumerate(dimensions))
    figures = (m.finish(F.col(f"part_{n}")).alias(name) for n, (name, m) in enumerate(measures.items()))
    return merged.select(
        F.col("within").alias(within), F.col("grouping"), *counted, F.col("distinct").alias(named), *figures
    )


def _kept(dimensions: Sequence[str]) -> list[Column]:
    """Each dimension where it is not summed up, under names that no column of the events is taken for."""
    bits = range(len(dimensions) - 1, -1, -1)
    stays = (F.col(_GROUPING).bitwiseAND(1 << bit) == 0 for bit in bits)
    named = enumerate(zip(dimensions, stays, strict=True))
    return [F.when(stay, F.col(identifier(name))).alias(f"by_{n}") for n, (name, stay) in named]
