"""Traffic of a week in all dimensions, made of its days.

Grain: one ISO week and combination of country, device type and referral. Pattern: Distributed Aggregator - counts are the sums
of the published days, distinct visitors an estimate from sketches of the days, with its error. A day that changes makes its
week be computed again. The current week is as long as the days that there are (`days` says how many).
"""

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.traffic import VisitsCubeWeekly
from de_assets.dataset import dataset
from de_assets.gold.visits_cube_daily import DIMENSIONS
from de_assets.partitions import days_of_week, weekly
from de_assets.transforms.data_value.mergeable_measures import STANDARD_ERROR
from de_assets.transforms.data_value.weekly_cube import weekly_cube
from de_checks.contract import contract_check
from de_checks.estimate import Exact, estimate_check
from de_checks.fan_in import fan_in_check
from de_checks.keys import unique_key_check
from de_checks.rollup import rollup_check
from de_resources.retries import RETRY_TRANSIENT

DAYS, SKETCHES = (dg.AssetKey(["gold", name]) for name in ("visits_cube_daily", "visitor_sketches_daily"))
OF_THE_WEEK = " AND ".join(
    [
        "trunc(s.event_date, 'week') = o.week_start",
        *(f"s.{column} <=> o.{column}" for column in ("grouping", *DIMENSIONS)),
    ]
)


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        VisitsCubeWeekly,
        patterns=["distributed_aggregator", "aligned_fan_in"],
        partition="week_start",
        row_lineage={DAYS.to_user_string(): OF_THE_WEEK, SKETCHES.to_user_string(): OF_THE_WEEK},
    ),
    ins={
        "days": dg.AssetIn(DAYS, partition_mapping=days_of_week),
        "sketches": dg.AssetIn(SKETCHES, partition_mapping=days_of_week),
    },
    partitions_def=weekly,
    automation_condition=late_cascade(),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def visits_cube_weekly(days: DataFrame, sketches: DataFrame) -> DataFrame:
    """Add and merge the days of the week."""
    return weekly_cube(days, sketches, DIMENSIONS)


checks = [
    contract_check(visits_cube_weekly),
    unique_key_check(visits_cube_weekly),
    fan_in_check(visits_cube_weekly, pattern="aligned_fan_in"),
    rollup_check(
        visits_cube_weekly, of=DAYS, by=("grouping", *DIMENSIONS), at="event_date", sums=("visits", "bot_visits")
    ),
    estimate_check(
        visits_cube_weekly,
        estimate="users_estimate",
        # One recount of the whole, where the error is largest; those of the parts would be seven more.
        where="grouping = 7",
        exact=Exact(dg.AssetKey(["silver", "visits_enriched"]), "user_id", at="event_hour"),
        standard_error=STANDARD_ERROR,
    ),
]
