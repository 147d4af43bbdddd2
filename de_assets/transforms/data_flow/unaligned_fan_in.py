"""Unaligned Fan-In: a day is reported with the hours that are there, and its row says how complete it is.

A day without a single hour is no day without visits: its row has the figures of the newest day before it that had some, and
says so. Source: pattern *Unaligned Fan-In*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

FIGURES = ("visits", "users", "pages")
FALLBACK_DAYS = 7
"""How old the figures may be that stand in for a day."""


class Basis(StrEnum):
    """What the figures of a report are."""

    ALL_HOURS = "all hours"
    SOME_HOURS = "some hours"
    EARLIER_DAY = "earlier day"
    NOTHING = "nothing"


@dataclass(frozen=True)
class DayInputs:
    """A day to report: the hours that are there, and the names of those that are missing."""

    day: date
    there: tuple[datetime, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class EarlierFigures:
    """The figures of a day that had hours of its own."""

    day: date
    visits: int
    users: int
    pages: int


def daily_reports(visits: DataFrame, days: Sequence[DayInputs], earlier: EarlierFigures | None = None) -> DataFrame:
    """One row per day, with the columns of gold.daily_report.

    Rows of hours that are missing by name are not counted, though they may be there: a gate has refused them. Where no hour
    is there, the figures are those of the newest of the `FALLBACK_DAYS` before it, of `days` or `earlier`; where there is
    none, zeros with `basis` `nothing`.
    """
    counted = visits.where(F.col("event_hour").isin([hour for day in days for hour in day.there])).groupBy(
        F.to_date("event_hour").alias("report_date")
    )
    figures = counted.agg(
        F.count(F.lit(1)).alias("visits"),
        F.count_distinct("user_id").alias("users"),
        F.count_distinct("page").alias("pages"),
    )
    of_day = _expected(visits, days).join(figures, "report_date", "left")
    # Each figure by itself, so that its lineage is its own.
    rows = of_day.withColumns({name: F.when(F.col("hours_there") > 0, value) for name, value in _own().items()})
    if earlier is not None:
        rows = rows.unionByName(_row_of(visits, earlier), allowMissingColumns=True)
    recent = Window.orderBy(F.unix_date("report_date")).rangeBetween(-FALLBACK_DAYS, 0)
    newest = {name: F.last(name, ignorenulls=True).over(recent) for name in (*FIGURES, "figures_of")}
    chosen = rows.withColumns(newest).where("hours_expected IS NOT NULL")
    return chosen.select(
        "report_date",
        *(F.coalesce(name, F.lit(0).cast("long")).alias(name) for name in FIGURES),
        F.coalesce("figures_of", "report_date").alias("figures_of"),
        _basis().alias("basis"),
        (F.col("hours_there") / F.col("hours_expected")).alias("completeness"),
        (F.col("hours_there") < F.col("hours_expected")).alias("is_approximate"),
        "hours_expected",
        "hours_there",
        "missing_hours",
    )


def _expected(visits: DataFrame, days: Sequence[DayInputs]) -> DataFrame:
    rows = [(d.day, len(d.there) + len(d.missing), len(d.there), ", ".join(d.missing)) for d in days]
    schema = "report_date DATE, hours_expected INT, hours_there INT, missing_hours STRING"
    return visits.sparkSession.createDataFrame(rows, schema)


def _own() -> dict[str, Column]:
    """Zero, where the hours are there and hold no visit."""
    return {**{name: F.coalesce(name, F.lit(0).cast("long")) for name in FIGURES}, "figures_of": F.col("report_date")}


def _row_of(visits: DataFrame, earlier: EarlierFigures) -> DataFrame:
    row = [(earlier.day, earlier.visits, earlier.users, earlier.pages)]
    frame = visits.sparkSession.createDataFrame(row, "report_date DATE, visits LONG, users LONG, pages LONG")
    return frame.withColumn("figures_of", F.col("report_date"))


def _basis() -> Column:
    return (
        F.when(F.col("hours_there") == F.col("hours_expected"), F.lit(Basis.ALL_HOURS.value))
        .when(F.col("hours_there") > 0, F.lit(Basis.SOME_HOURS.value))
        .when(F.col("figures_of").isNotNull(), F.lit(Basis.EARLIER_DAY.value))
        .otherwise(F.lit(Basis.NOTHING.value))
    )
