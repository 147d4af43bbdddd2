"""Where visits came from, day by day, late ones included.

Grain: one day and referral. Pattern: Static Late Data Integrator. Every scheduled run also rewrites the days before its own
for as long as the contract takes late visits in (`late_for`); until a day's window is over its rows say that they are
approximate.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.contracts.traffic import ReferralStats
from de_assets.dataset import dataset
from de_assets.landed_visits import REFERRAL_DAYS, TO_REFERRALS, landed_visits_check
from de_assets.partitions import calendar_now, daily, hours_of_day
from de_assets.transforms.error_management.dynamic_late_data_integrator import FIRST_COPY
from de_assets.transforms.error_management.filter_interceptor import intercept
from de_assets.transforms.error_management.static_late_data_integrator import (
    EVENT_DATE,
    IS_LATE,
    integrate_late,
    is_approximate,
)
from de_assets.transforms.error_management.windowed_deduplicator import number_copies
from de_checks.contract import contract_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.held_back import own_keys
from de_resources.retries import RETRY_TRANSIENT

_COPY, _DAY = "__de_copy", "__de_day"
# What landed on the day itself, and on the days after it in which late rows of the day are still awaited.
hours_of_late_window = dg.TimeWindowPartitionMapping(
    start_offset=0, end_offset=REFERRAL_DAYS, allow_nonexistent_upstream_partitions=True
)


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        ReferralStats,
        patterns=["static_late_data_integrator"],
        partition=EVENT_DATE,
        look_back_days=REFERRAL_DAYS,
    ),
    ins={
        "visits": dg.AssetIn(["silver", "visits"], partition_mapping=hours_of_day),
        "late": dg.AssetIn(["silver", "visits_late"], partition_mapping=hours_of_late_window),
    },
    partitions_def=daily,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def referral_stats(context: dg.AssetExecutionContext, visits: DataFrame, late: DataFrame) -> ObservedFrame:
    """Count visits and visitors per referral, on time and late."""
    days = [date.fromisoformat(key) for key in own_keys(context)]
    columns = ["visit_id", "user_id", "referral", "event_time"]
    told = integrate_late(
        visits.select(*columns),
        late.select(*columns, "landing_hour"),
        event_time="event_time",
        landing_time="landing_hour",
        days=days,
        window_days=REFERRAL_DAYS,
    )
    return told.and_then(lambda rows: each_once(rows, days)).transform(by_referral)


def each_once(visits: DataFrame, days: Sequence[date]) -> ObservedFrame:
    """The visits of each day and referral, each once; after the write, how many copies were removed of each of the `days`.

    Of a visit that arrived on time and late, or late twice, one that was on time stays.
    """
    named = visits.withColumn("referral", F.coalesce("referral", F.lit("direct")))
    own = [EVENT_DATE, "referral", "visit_id"]
    # One visitor per identity of a visit, whatever its producer says: there are never more visitors than visits.
    copies = number_copies(named, own, [F.col(IS_LATE).asc(), F.col("user_id").asc()], into=_COPY)
    dated = copies.withColumn(_DAY, F.col(EVENT_DATE).cast("timestamp"))
    starts = [datetime.combine(day, time(), UTC) for day in days]
    kept = intercept(dated, {FIRST_COPY: f"{_COPY} = 1"}, window=_DAY, expected=starts)
    return kept.transform(lambda rows: rows.drop(_COPY, _DAY))


def by_referral(visits: DataFrame) -> DataFrame:
    """One row per day and referral, of visits that are there once."""
    counted = visits.groupBy(EVENT_DATE, "referral").agg(
        F.count(F.lit(1)).alias("visits"),
        F.count_distinct("user_id").alias("users"),
        F.count_if(IS_LATE).alias("late_visits"),
    )
    open_until = is_approximate(EVENT_DATE, calendar_now(), REFERRAL_DAYS)
    return counted.withColumn("is_approximate", open_until).select(*Contract.of(ReferralStats).column_names)


checks = [contract_check(referral_stats), landed_visits_check(referral_stats, TO_REFERRALS)]
