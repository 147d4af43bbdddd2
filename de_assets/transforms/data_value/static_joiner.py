"""Static Joiner: enrich events with what a reference dataset said when they happened.

Source: pattern *Static Joiner*. A backfill joins with what was valid then, because the event's time and not the run's
decides. Events without a match stay.

`events` may be a stream: each micro-batch is then joined with the versions that are there when it begins, and not again.
An event that comes before the version that was valid at its time stays without a match, where a batch that is computed later
finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from de_resources.delta.observed_frame import MetadataByWindow, ObservedFrame
from de_resources.engine.exact_histogram import histogram, observed_counts
from de_resources.sql.identifiers import identifier

UNMATCHED = "join/unmatched"


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
        _column(on).alias(prefix + on),
        F.col("valid_from").alias(prefix + "from"),
        F.col("valid_to").alias(prefix + "to"),
        *(_column(source).alias(prefix + "c_" + target) for source, target in columns.items()),
    )
    condition = (
        (_column(on) == _column(prefix + on))
        & (_column(at) >= F.col(prefix + "from"))
        & (F.col(prefix + "to").isNull() | (_column(at) < F.col(prefix + "to")))
    )
    joined = events.join(renamed, condition, "left")
    flag = [_column(prefix + on).isNotNull().alias(matched)] if matched else []
    return joined.select(*_with(events, prefix, columns), *flag)


def count_unmatched(joined: DataFrame, matched: str, *, window: str, expected: Iterable[datetime]) -> ObservedFrame:
    """The same rows, and after the write by `expected` window how many of them found no match: `join/unmatched`.

    `matched` is the boolean column of `join_valid_at`, `window` the timestamp at which a row's window begins.
    """
    observation = Observation(f"unmatched_{uuid4().hex}")
    alone = F.when(~_column(matched), F.unix_seconds(_column(window)))
    counted = joined.observe(observation, histogram(alone).alias("unmatched"))

    def metadata() -> MetadataByWindow:
        found = observed_counts(observation, "unmatched")
        return {} if found is None else {start: {UNMATCHED: found[int(start.timestamp())]} for start in expected}

    return ObservedFrame(counted, metadata)


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
        *(_column(c).alias(prefix + "k_" + c) for c in on.values()),
        *(_column(source).alias(prefix + "c_" + target) for source, target in columns.items()),
    )
    pairs = [_column(mine) == _column(prefix + "k_" + theirs) for mine, theirs in on.items()]
    joined = events.join(renamed, pairs, "left")
    return joined.select(*_with(events, prefix, columns))


def _with(events: DataFrame, prefix: str, columns: Mapping[str, str]) -> list[Column]:
    """The events' columns, and those that were found."""
    return [*map(_column, events.columns), *(_column(prefix + "c_" + name).alias(name) for name in columns.values())]


def _column(name: str) -> Column:
    return F.col(identifier(name))
