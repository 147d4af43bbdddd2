"""What each visitor did so far: day after day added to the totals.

Grain: one visitor. Pattern: Stateful Merger - a day is added to the table as it was after the day before. When an old day is
run again, the table first returns to what it was before it, and the days after it wait for their replay. New days are
requested one after the other (`computed_once`); changed ones, and all days after them, by the sensor `late_totals`.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import computed_once
from de_assets.contracts.traffic import UserActivity
from de_assets.dataset import dataset
from de_assets.landed_visits import TO_ACTIVITY, landed_visits_check
from de_assets.partitions import daily, day_before, hours_of_day
from de_assets.transforms.idempotency.running_totals import add_to
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_checks.replay import replay_check
from de_resources.contract import Contract
from de_resources.retries import RETRY_TRANSIENT

KEY = dg.AssetKey(["gold", "user_activity"])


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(UserActivity, patterns=["stateful_merger"], mode="merge", stateful=True),
    ins={
        "visits": dg.AssetIn(["silver", "visits_enriched"], partition_mapping=hours_of_day),
        # Reading itself also makes every backfill run the days in order.
        "before": dg.AssetIn(KEY, partition_mapping=day_before),
    },
    partitions_def=daily,
    automation_condition=computed_once(carried=dg.AssetSelection.assets(KEY)),
)
def user_activity(visits: DataFrame, before: DataFrame) -> DataFrame:
    """The day's visitors with their totals, this day included."""
    day = visits.groupBy("user_id").agg(
        F.min("event_time").alias("first_seen"),
        F.max("event_time").alias("last_seen"),
        F.count(F.lit(1)).alias("visits"),
        F.lit(1).cast("long").alias("days"),
    )
    added = add_to(before, day, "user_id", sums=["visits", "days"], lowest=["first_seen"], highest=["last_seen"])
    return added.select(*Contract.of(UserActivity).column_names)


checks = [
    contract_check(user_activity),
    unique_key_check(user_activity),
    replay_check(user_activity),
    landed_visits_check(user_activity, TO_ACTIVITY),
]
