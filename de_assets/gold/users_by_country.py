"""How many users each country has now, kept from what changed.

Grain: one country. Pattern: Change Data Capture - the change data feed of `silver/users` says which versions came and went;
only they are read. The version up to which changes are counted is stored with the counts, in one commit, so that a crash or a
rerun counts nothing twice. Where the feed does not reach back, the table is computed from all users, and says so.
"""

import dagster as dg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import gated
from de_assets.contracts.users import UsersByCountry
from de_assets.dataset import dataset
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_resources.contract import Contract
from de_resources.delta.log.feed import FeedUnavailable, changes, signed
from de_resources.delta.read_versions import record_read
from de_resources.delta.table import TableMissing
from de_resources.lake import Lake
from de_resources.lineage.inputs import read_as
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

USERS = dg.AssetKey(["silver", "users"])
KEY = dg.AssetKey(["gold", "users_by_country"])
NOT_SAID = "??"


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(UsersByCountry, patterns=["change_data_capture"], mode="merge", merge_vanished="delete"),
    deps=[USERS],
    automation_condition=gated(),
)
def users_by_country(context: dg.AssetExecutionContext, lake: Lake, spark: SparkEngine) -> DataFrame:
    """Add what changed to what was counted; count everything the first time, or when the changes are gone."""
    users, counted = lake.table(USERS), lake.table(KEY)
    log = users.log()
    if log is None:
        raise TableMissing(users.name)
    record_read(context, users, pinned=log.version)
    session = spark.spark_session
    known = [] if counted.log() is None else counted.read(session).collect()
    before = read_as(session.createDataFrame(known, Contract.of(UsersByCountry).struct_type()), KEY)
    after = known[0]["source_version"] if known else None
    if after == log.version:
        context.add_output_metadata({"computed": f"nothing: version {after} is counted"})
        # Rows stay as they are. That they come from users is told all the same: who asks for readers goes by the newest run.
        none = read_as(users.read(session, log.version).limit(0), USERS)
        return counts(before.select("country", "users").unionByName(per_country(none, F.lit(1))), log.version)
    try:
        if after is None:
            raise FeedUnavailable(users.name, -1, "nothing is counted yet")
        changed = read_as(changes(session, users, log, after), USERS)
    except FeedUnavailable as error:
        context.add_output_metadata({"computed": f"from all users: {error.reason}"})
        everyone = read_as(users.read(session, log.version), USERS)
        return counts(per_country(everyone, F.lit(1)), log.version)
    context.add_output_metadata({"computed": f"from the changes of versions {after + 1} to {log.version}"})
    return counts(before.select("country", "users").unionByName(per_country(changed, signed())), log.version)


def per_country(users: DataFrame, weight: Column) -> DataFrame:
    """The sum of `weight` over the current versions of users, by country."""
    country = F.coalesce("country", F.lit(NOT_SAID)).alias("country")
    return users.where("is_current").groupBy(country).agg(F.sum(weight).cast("long").alias("users"))


def counts(parts: DataFrame, version: int) -> DataFrame:
    """Parts added up; countries without users are left out."""
    added = parts.groupBy("country").agg(F.sum("users").alias("users")).where("users > 0")
    return added.withColumn("source_version", F.lit(version).cast("long"))


checks = [contract_check(users_by_country), unique_key_check(users_by_country)]
