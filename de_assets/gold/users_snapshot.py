"""The users as they were at the end of each day.

Grain: one user and day. Pattern: Proxy - each run writes a version that nobody can change, and switches to it; the job
`roll_back` takes days back to what they were.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import computed_once
from de_assets.automation.lag import behind_at_most
from de_assets.contracts.users import UsersSnapshot
from de_assets.dataset import dataset
from de_assets.partitions import daily
from de_checks.contract import contract_check
from de_checks.keys import reference_check, unique_key_check
from de_checks.volume import volume_check
from de_resources.contract import Contract
from de_resources.held_back import own_keys
from de_resources.proxy.table import ProxiedTable
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        UsersSnapshot,
        patterns=["proxy"],
        partition="snapshot_date",
        io_manager="proxy_io_manager",
        versions=ProxiedTable.VERSIONS,
        # A day is made when it is over, of all users: what comes then waits for the next one.
        **behind_at_most(minutes=26 * 60),
    ),
    ins={"users": dg.AssetIn(["silver", "users"])},
    partitions_def=daily,
    automation_condition=computed_once(),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def users_snapshot(context: dg.AssetExecutionContext, spark: SparkEngine, users: DataFrame) -> DataFrame:
    """For every day of the run, the versions that were valid when it ended."""
    days = spark.spark_session.createDataFrame([(day,) for day in own_keys(context)], "day STRING")
    dated = days.select(F.to_date("day").alias("snapshot_date"))
    end = F.date_add("snapshot_date", 1).cast("timestamp")
    # Valid in the last instant of the day: what ends exactly at midnight was still true then.
    valid = (F.col("valid_from") < end) & (F.col("valid_to").isNull() | (F.col("valid_to") >= end))
    return users.join(F.broadcast(dated), valid).select(*Contract.of(UsersSnapshot).column_names)


checks = [
    contract_check(users_snapshot),
    unique_key_check(users_snapshot),
    reference_check(users_snapshot, "user_id", dg.AssetKey(["silver", "users"]), "user_id"),
    volume_check(users_snapshot, tolerance=(0.8, 1.25), min_rows=0),
]
