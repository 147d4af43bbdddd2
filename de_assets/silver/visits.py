"""Visits to start from: valid, each once, in the hour of their event; and apart from them, those that came late.

Grain: one page view, in exactly one of the two tables. Patterns: Windowed Deduplicator (the window is the hour), Late Data
Detector (batch flavour), Wrapper (the landed line stays beside the computed columns).
"""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.visits import Visits, VisitsLate
from de_assets.dataset import dataset
from de_assets.partitions import calendar_now, hourly
from de_assets.transforms.late_data_detector import split_late
from de_assets.transforms.windowed_deduplicator import deduplicate
from de_checks.contract import contract_check
from de_checks.freshness import completeness_check, newest_event_check
from de_resources.contract import Contract


@dg.multi_asset(
    name="valid_visits",
    outs={
        "late": dg.AssetOut(
            **dataset(VisitsLate, patterns=["late_data_detector"], partition="landing_hour"),
            automation_condition=late_cascade(),
            backfill_policy=dg.BackfillPolicy.single_run(),
        ),
        "valid": dg.AssetOut(
            **dataset(Visits, patterns=["windowed_deduplicator", "wrapper"], partition="event_hour"),
            automation_condition=late_cascade(),
            backfill_policy=dg.BackfillPolicy.single_run(),
        ),
    },
    ins={"landed": dg.AssetIn(["bronze", "visits"])},
    partitions_def=hourly,
)
def valid_visits(landed: DataFrame) -> Iterator[dg.Output[DataFrame]]:
    """Deduplicate the hour once, then split it by lateness."""
    unique = unique_visits(landed).persist()
    try:
        on_time, late = split_late(unique, "event_time", "landing_hour")
        yield dg.Output(late.select(*Contract.of(VisitsLate).column_names), "late")
        yield dg.Output(in_event_hour(on_time), "valid")
    finally:
        unique.unpersist()


def unique_visits(landed: DataFrame) -> DataFrame:
    """One row per visit and landing hour: the earliest event survives, the landed line decides between equals."""
    survivor = [F.col("event_time").asc(), F.col("raw").asc()]
    return deduplicate(landed, ["landing_hour", "visit_id"], survivor)


def in_event_hour(visits: DataFrame) -> DataFrame:
    """The columns of silver.visits."""
    hour = F.date_trunc("HOUR", F.col("event_time")).alias("event_hour")
    return visits.select("*", hour).select(*Contract.of(Visits).column_names)


_VALID = valid_visits.get_asset_spec(dg.AssetKey(["silver", "visits"]))
_LATE = valid_visits.get_asset_spec(dg.AssetKey(["silver", "visits_late"]))

checks = [
    contract_check(_VALID),
    contract_check(_LATE, blocking=False),
    completeness_check(_VALID, allowed_delay=timedelta(hours=1)),
    newest_event_check(_VALID, column="event_time", max_age=timedelta(hours=3), now=calendar_now),
]
