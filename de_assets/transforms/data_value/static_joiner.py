"""Static Joiner: enrich events with what a reference dataset said when they happened.

Source: pattern *Static Joiner*. A backfill joins with what was valid then, because the event's time and not the run's
decides. Events without a match stay.

`events` may be a stream: each micro-batch is then joined with the versions that are there when it begins, and not again.
An event that comes before the version that was valid at its time stays without a match, where a batch that is computed later
finds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def join_valid_at(
    events: DataFrame, versions: DataFrame, on: str, at: str, columns: Mapping[str, str], matched: str | None = None
) -> DataFrame:
    """Left join with the version valid at the event's time `at`.

    `versions` has `on`, `valid_from` and `valid_to` (half-open, null: open), intervals of one key not overlapping - else an
    event would be repeated. `columns` maps the version's columns to their names in the result; `matched` names a boolean
    column that says whether a version was found. Every event appears exactly once.
    """
    prefix = "__de_v_"
    renamed = versions.select(
        F.col(on).alias(prefix + on),
        F.col("valid_from").alias(prefix + "from"),
        F.col("valid_to").alias(prefix + "to"),
        *(F.col(source).alias(prefix + "c_" + target) for source, target in columns.items()),
    )
    condition = (
        (F.col(on) == F.col(prefix + on))
        & (F.col(at) >= F.col(prefix + "from"))
        & (F.col(prefix + "to").isNull() | (F.col(at) < F.col(prefix + "to")))
    )
    joined = events.join(renamed, condition, "left")
    flag = [F.col(prefix + on).isNotNull().alias(matched)] if matched else []
    return joined.select(*events.columns, *(F.col(prefix + "c_" + t).alias(t) for t in columns.values()), *flag)


def current_and_history(versions: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The same versions as two tables: those that are valid still, without an end, and those that have ended.

    Slowly changing dimension of type 4: who asks for now reads the small table, and nobody else pays for it.
    """
    return versions.where("valid_to IS NULL").drop("valid_to"), versions.where("valid_to IS NOT NULL")


def join_current_or_history(
    events: DataFrame,
    current: DataFrame,
    history: DataFrame,
    on: str,
    at: str,
    columns: Mapping[str, str],
    matched: str | None = None,
) -> DataFrame:
    """`join_valid_at` for versions that are kept in two tables (`current_and_history`): the same rows."""
    still = current.withColumn("valid_to", F.lit(None).cast(history.schema["valid_to"].dataType))
    return join_valid_at(events, history.unionByName(still), on, at, columns, matched)


def join_reference(
    events: DataFrame, reference: DataFrame, on: Mapping[str, str], columns: Mapping[str, str]
) -> DataFrame:
    """Left join with a reference set that has one row per key.

    `on` maps the event's columns to the reference's key, `columns` the reference's columns to their names in the result.
    """
    prefix = "__de_r_"
    renamed = reference.select(
        *(F.col(c).alias(prefix + "k_" + c) for c in on.values()),
        *(F.col(source).alias(prefix + "c_" + target) for source, target in columns.items()),
    )
    pairs = [F.col(mine) == F.col(prefix + "k_" + theirs) for mine, theirs in on.items()]
    joined = events.join(renamed, pairs, "left")
    return joined.select(*events.columns, *(F.col(prefix + "c_" + t).alias(t) for t in columns.values()))
