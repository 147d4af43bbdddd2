"""Distributed Aggregator: measures over all combinations of dimensions, subtotals included.

Source: pattern *Distributed Aggregator*; SQL:1999 `CUBE`. Distinct counts are computed for every grouping, because
neither sums nor averages of them mean anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, combinations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_resources.sql.identifiers import identifier


def cube(events: DataFrame, within: str, dimensions: Sequence[str], measures: Mapping[str, Column]) -> DataFrame:
    """One row per value of `within` and combination of `dimensions`.

    Columns: `within`, `grouping` (bit mask of the dimensions that are summed up, the first one being the highest bit; it
    tells a subtotal from an unknown value), the dimensions, the measures.
    """
    first, *others = (F.col(identifier(name)) for name in (within, *dimensions))
    subsets = chain.from_iterable(combinations(others, n) for n in range(len(others) + 1))
    grouped = events.groupingSets([[first, *subset] for subset in subsets], first, *others).agg(
        F.grouping_id().cast("int").alias("grouping"), *(measure.alias(name) for name, measure in measures.items())
    )
    return grouped.select(*(F.col(identifier(name)) for name in (within, "grouping", *dimensions, *measures)))
