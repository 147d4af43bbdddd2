"""Visits in the database, for who reads with SQL: one view, behind it one table per week.

Grain: one page view. Pattern: Fast Metadata Cleaner - a rerun replaces the table of its week, and deletes no row. The week
is therefore also what a run and a backfill consist of; the current one is as long as the days that there are.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.serving import WeeklyVisits
from de_assets.dataset import dataset
from de_assets.partitions import hours_of_week, weekly
from de_assets.transforms.error_management.windowed_deduplicator import deduplicate
from de_resources.contract import Contract
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **{
        **dataset(WeeklyVisits, patterns=["fast_metadata_cleaner"], partition="event_date", io_manager="weekly_tables"),
        "kinds": {"postgres"},
    },
    ins={"visits": dg.AssetIn(["silver", "visits_enriched"], partition_mapping=hours_of_week)},
    partitions_def=weekly,
    automation_condition=late_cascade(),
    backfill_policy=dg.BackfillPolicy.multi_run(1),
)
def weekly_visits(visits: DataFrame) -> DataFrame:
    """The visits of the week, with their day. A producer may give one identity in several hours: the first visit has it."""
    dated = visits.withColumn("event_date", F.to_date("event_time")).select(*Contract.of(WeeklyVisits).column_names)
    # All columns, so that the same visit stays whenever the week is computed.
    return deduplicate(dated, ["visit_id"], [F.col("event_time"), *(F.col(c) for c in dated.columns)])
