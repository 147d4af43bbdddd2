"""Traffic per hour as it happens, for who cannot wait until the files of an hour have landed.

Grain: one hour. It has the hours that `silver/visits_live_hours` shows: none that is still filling, and none that an audit
holds. A late visit changes its hour when that was judged again.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import gated
from de_assets.contracts.traffic import TrafficLive
from de_assets.dataset import dataset
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_resources.contract import Contract
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(TrafficLive),
    ins={"visits": dg.AssetIn(["silver", "visits_live_hours"])},
    automation_condition=gated(),
)
def traffic_live(visits: DataFrame) -> DataFrame:
    """Count the visits of every hour that is shown. Producers repeat records: a visit counts once, whatever its copies say."""
    each = visits.groupBy("event_hour", "visit_id").agg(
        F.min("user_id").alias("user_id"), F.bool_or(F.coalesce("is_bot", F.lit(False))).alias("is_bot")
    )
    counted = each.groupBy("event_hour").agg(
        F.count(F.lit(1)).alias("visits"),
        F.count_distinct("user_id").alias("users"),
        F.count_if("is_bot").alias("bot_visits"),
    )
    return counted.select(*Contract.of(TrafficLive).column_names)


checks = [contract_check(traffic_live), unique_key_check(traffic_live)]
