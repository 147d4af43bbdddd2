"""Versions of one thing that are valid at the same moment: who joins with them at that moment would get its row twice.

Pattern *Static Joiner* (slowly changing dimension of type 2): intervals are half-open, so that one ends where the next begins.
A time of which no version tells is no mistake, for what was deleted may come back; how many there are is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_per_key
from de_checks.per_key import Key, Materialized, Verdict, newest_version
from de_checks.subject import Subject
from de_resources.sql.identifiers import identifier

NAME = "versions_do_not_overlap"


@dataclass(frozen=True)
class Interval:
    """The columns of a version: whose it is, from when it is valid, and until when, exclusive (null: still)."""

    key: Sequence[str]
    begin: str = "valid_from"
    end: str = "valid_to"


@dataclass(frozen=True)
class History:
    """How many versions overlap the next one of their key, of how many keys, and how many end before the next begins."""

    overlaps: int
    keys: int
    gaps: int


def interval_check(asset: Subject, interval: Interval, *, blocking: bool = True) -> dg.AssetChecksDefinition:
    """A check that no two versions of one key are valid at the same moment. Looks at the whole table.

    Needs the resource `lake`. Costs one query over the key and the two times. Metadata: `overlaps`, `keys` (that have some),
    `gaps`.
    """

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        table = run.lake.table(run.asset.key, run.asset.metadata)
        rows = table.read(run.lake.spark.spark_session, newest_version(materialized.values()))
        found = history_of(rows, interval)
        return dict.fromkeys(materialized, _verdict(found))

    return check_per_key(
        asset,
        NAME,
        judge,
        description=f"No two versions of one {', '.join(f'`{name}`' for name in interval.key)} are valid at one moment.",
        patterns=["static_joiner"],
        blocking=blocking,
        resources=["lake"],
    )


def history_of(versions: DataFrame, interval: Interval) -> History:
    """What the intervals of all keys leave open or cover twice; null keys belong to nobody and are left out. One query.

    In the order in which they begin, a version that overlaps any later one overlaps the next one.
    """
    key = [F.col(identifier(name)) for name in interval.key]
    begin, end = F.col(identifier(interval.begin)), F.col(identifier(interval.end))
    following = F.lead(begin).over(Window.partitionBy(*key).orderBy(begin, end.asc_nulls_last()))
    known = versions.dropna(subset=[*interval.key])
    each = known.select(F.struct(*key).alias("of"), end.alias("until"), following.alias("next")).where(
        "next IS NOT NULL"
    )
    overlaps = F.expr("until IS NULL OR next < until")
    (row,) = each.agg(
        F.count_if(overlaps),
        F.count_distinct(F.when(overlaps, F.col("of"))),
        F.count_if(F.col("next") > F.col("until")),
    ).collect()
    return History(*map(int, row))


def _verdict(found: History) -> Verdict:
    figures = {"overlaps": found.overlaps, "keys": found.keys, "gaps": found.gaps}
    if found.overlaps:
        told = f"{found.overlaps:,} versions are valid when the next one of their key is already ({found.keys:,} keys)."
        return Verdict(False, told, figures)
    return Verdict(
        True, f"One version at most is valid at any moment; {found.gaps:,} times none is in between.", figures
    )
