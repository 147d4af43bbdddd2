"""Distributed Aggregator: the cube of a week from those of its days.

Counts are added. Distinct visitors are merged from the sketches of the days: who came on two days is one visitor.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_assets.transforms.data_value.mergeable_measures import STANDARD_ERROR, bounded, ratio


def week_of(day: str) -> Column:
    """The Monday of the ISO week in which a day lies."""
    return F.trunc(day, "week")


def weekly_cube(days: DataFrame, sketches: DataFrame, dimensions: Sequence[str]) -> DataFrame:
    """One row per week and combination of `grouping` and `dimensions`, null being a value of them.

    `days` has one row per `event_date` and combination, with `visits`, `users` and `bot_visits`; `sketches` has `visitors` for
    each of them. Where a day's sketch is missing, visitors are unknown (null): those of the other days would be too few.
    Columns: `week_start`, the combination, `days`, `visits`, `bot_visits`, `bot_share`, `users_estimate`,
    `users_relative_error`.
    """
    combination = ["grouping", *dimensions]
    merged = _with_sketches(days, sketches, ["event_date", *combination]).groupBy(
        week_of("event_date").alias("week_start"), *combination
    )
    known = F.count("visitors") == F.count(F.lit(1))
    estimate = F.hll_sketch_estimate(F.hll_union_agg("visitors"))
    counted = merged.agg(
        F.count_distinct("event_date").cast("int").alias("days"),
        F.sum("visits").alias("visits"),
        F.sum("bot_visits").alias("bot_visits"),
        # The mean over all visits. The mean of the days' shares would count a visit on a quiet day for more.
        ratio(F.sum("bot_visits"), F.sum("visits")).alias("bot_share"),
        F.when(known, bounded(estimate, F.max("users"), F.sum("users"))).alias("users_estimate"),
    )
    return counted.withColumn("users_relative_error", F.when(F.col("users_estimate").isNotNull(), STANDARD_ERROR))


def _with_sketches(days: DataFrame, sketches: DataFrame, key: Sequence[str]) -> DataFrame:
    """Each row of `days` with its sketch, if there is one. Null equals null, so that the unknown country has its own."""
    found = sketches.select(*(F.col(name).alias(f"sketch_{name}") for name in key), "visitors")
    same = [F.col(name).eqNullSafe(F.col(f"sketch_{name}")) for name in key]
    return days.join(found, same, "left").drop(*(f"sketch_{name}" for name in key))
