"""Visits of the legacy system, hour by hour of their ingestion.

Grain: one visit. Pattern: Incremental Loader, delta-column flavour - the hour is bounded on both sides, half-open, on the
ingestion time, and the database evaluates it: a bound that it would not evaluate stops the run, and the run's metadata
shows what it was asked. Late events therefore arrive in the hour that received them. A database knows times that no other
reader holds, such as `infinity` and the year 1: these rows are left out, counted per hour, and warned of. Concurrent
Runner: hours are loaded side by side, each into a slice of its own.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.pipelines import LANDING
from de_assets.contracts.visits import CONCEIVABLE_VISIT, LegacyVisits
from de_assets.dataset import dataset
from de_assets.partitions import calendar_end, hourly
from de_assets.sources.systems import LEGACY_VISITS_RELATION, LEGACY_VISITS_TABLE
from de_assets.transforms.error_management.filter_interceptor import intercept
from de_checks.contract import contract_check
from de_checks.freshness import Commits, flow_check
from de_checks.keys import unique_key_check
from de_checks.rejections import rejection_check
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.lineage.inputs import read_as
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.pushdown import bounds
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

CONDITIONS = CONCEIVABLE_VISIT
"""Rows that break these rules of the contract are left out and counted: one of them is no reason to stop its hour."""


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        LegacyVisits,
        patterns=["incremental_loader", "filter_interceptor", "concurrent_runner"],
        partition="ingestion_hour",
        pool=LANDING,
    ),
    partitions_def=hourly,
    backfill_policy=dg.BackfillPolicy.single_run(),
    deps=[LEGACY_VISITS_TABLE],
)
def legacy_visits(context: dg.AssetExecutionContext, database: PostgresDatabase, spark: SparkEngine) -> ObservedFrame:
    """Read the rows that the database received in the run's hours, and keep those with a conceivable time."""
    window = context.partition_time_window
    stored = spark.spark_session.read.format("jdbc").options(**database.jdbc_options(LEGACY_VISITS_RELATION)).load()
    rows = read_as(stored, LEGACY_VISITS_TABLE)
    received = F.col("ingestion_time")
    increment = rows.where((received >= F.lit(window.start)) & (received < F.lit(window.end)))
    context.add_output_metadata(
        {"source/predicates": " AND ".join(bounds(increment, LEGACY_VISITS_RELATION, "ingestion_time"))}
    )
    hours = [hourly.time_window_for_partition_key(key).start for key in context.partition_keys]
    return intercept(as_landed(increment), CONDITIONS, window="ingestion_hour", expected=hours)


def as_landed(increment: DataFrame) -> DataFrame:
    """The columns of bronze.legacy_visits."""
    return increment.select(
        "visit_id",
        "event_time",
        "user_id",
        "page",
        "ip",
        "is_deleted",
        "ingestion_time",
        F.date_trunc("HOUR", F.col("ingestion_time")).alias("ingestion_hour"),
    )


checks = [
    contract_check(legacy_visits),
    unique_key_check(legacy_visits),
    rejection_check(legacy_visits),
    # Hours that brought nothing are materialised like any other: that the database gets no rows is seen by what is committed.
    flow_check(legacy_visits, Commits(), name="rows_keep_coming", ends=calendar_end),
]
