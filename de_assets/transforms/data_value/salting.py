"""Distributed Aggregator: a key that most rows have, aggregated by many tasks instead of one.

Rows of one key meet in one task. A salt, a small number beside the key, cuts them into that many groups; a second stage merges
the results of the groups. It costs a second shuffle, so that it is done only where the measured skew asks for it.

Source: pattern *Distributed Aggregator* (key salting).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_assets.transforms.data_value.mergeable_measures import Measures
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier

SKEWED = 5.0
"""From how many times an even task's rows on, the largest key is salted. Spark's own rule for skewed joins is the same factor
(`spark.sql.adaptive.skewJoin.skewedPartitionFactor`); it has none for aggregates."""
_SALT = "_salt"


class NoSalt(PermanentError):
    """A number of salts with which nothing can be aggregated."""

    def __init__(self, salts: int) -> None:
        self.salts = salts
        super().__init__(f"{salts} salts: every row needs one. Take one (no salting) or more. Nothing was computed.")


@dataclass(frozen=True)
class Skew:
    """How many rows there are, and how many of them the largest key has."""

    rows: int
    largest: int

    def factor(self, tasks: int) -> float:
        """The rows of the largest key over those that each of `tasks` would have, were they spread evenly; 0 without rows."""
        return self.largest * tasks / self.rows if self.rows else 0.0

    def salts(self, tasks: int, threshold: float = SKEWED) -> int:
        """Into how many groups to cut: one up to the threshold, and beyond it so many that none is larger than an even task."""
        factor = self.factor(tasks)
        return 1 if factor <= threshold else min(tasks, round(factor))


def skew_of(rows: DataFrame, keys: Sequence[str]) -> Skew:
    """Measured: one grouped count of the whole frame. Take a figure that is known, where there is one."""
    counted = rows.groupBy(*map(_column, keys)).agg(F.count(F.lit(1)).alias("rows"))
    found = counted.agg(F.sum("rows"), F.max("rows")).collect()[0]
    return Skew(found[0] or 0, found[1] or 0)


def aggregate(rows: DataFrame, keys: Sequence[str], measures: Measures, *, salts: int = 1) -> DataFrame:
    """`measures` per value of `keys`, null being one, over `salts` groups per key that are then merged.

    Counts, sums of whole numbers and means of them are the same whatever the salts; sums of floating-point numbers and
    estimates of distinct values are within their errors. The salt is made of the row's values, so that a task that is done
    again makes the same groups; rows that are the same in all columns stay together. Raises `NoSalt` for less than one.
    """
    if salts < 1:
        raise NoSalt(salts)
    salt = F.pmod(F.xxhash64(*(_column(name) for name in rows.columns)), F.lit(salts))
    salted = rows if salts == 1 else rows.withColumn(_SALT, salt)
    parts = salted.groupBy(*map(_column, keys), *([] if salts == 1 else [_SALT])).agg(
        *(measure.partial.alias(name) for name, measure in measures.items())
    )
    merged = parts.groupBy(*map(_column, keys)).agg(
        *(m.merge(_column(name)).alias(name) for name, m in measures.items())
    )
    return merged.select(*map(_column, keys), *(m.finish(_column(name)).alias(name) for name, m in measures.items()))


def aggregate_by_skew(
    rows: DataFrame, keys: Sequence[str], measures: Measures, *, tasks: int, skew: Skew | None = None
) -> DataFrame:
    """`aggregate`, with as many salts as the skew asks for: the given one, or else that of `rows`, which is measured."""
    found = skew_of(rows, keys) if skew is None else skew
    return aggregate(rows, keys, measures, salts=found.salts(tasks))


def _column(name: str) -> Column:
    return F.col(identifier(name))
