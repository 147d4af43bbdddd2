"""Totals that grow with every batch, without reading the batches before it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def add_to(
    before: DataFrame,
    batch: DataFrame,
    key: str,
    *,
    sums: Sequence[str] = (),
    lowest: Sequence[str] = (),
    highest: Sequence[str] = (),
) -> DataFrame:
    """The new totals of the keys in `batch`, one row each; both frames have one row per `key` and these columns.

    Keys that the batch does not have keep their totals and are not returned. Adding a batch twice counts it twice:
    `before` must not contain it.
    """
    combined = {
        **{c: (F.coalesce(F.col(f"b.{c}"), F.lit(0)) + F.col(f"n.{c}")) for c in sums},
        # Both functions leave nulls aside.
        **{c: F.least(f"b.{c}", f"n.{c}") for c in lowest},
        **{c: F.greatest(f"b.{c}", f"n.{c}") for c in highest},
    }
    joined = batch.alias("n").join(before.alias("b"), F.col(f"n.{key}") == F.col(f"b.{key}"), "left")
    return joined.select(F.col(f"n.{key}"), *(column.alias(name) for name, column in combined.items()))
