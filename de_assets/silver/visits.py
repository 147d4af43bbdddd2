"""Visits to start from: valid, each once, in the hour of their event; and apart from them, those that came late.

Grain: one page view, in exactly one of the two tables. Patterns: Windowed Deduplicator (the window is the hour, and the
`LOOK_BACK_HOURS` before it), Late Data Detector (batch flavour), Filter Interceptor (each condition tells per hour what
it removed), Wrapper (the landed line stays beside the computed columns).
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from operator import or_

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.visits import Visits, VisitsLate
from de_assets.dataset import dataset
from de_assets.partitions import LOOK_BACK_HOURS, calendar_now, hourly, with_look_back
from de_assets.ranges import contiguous
from de_assets.transforms.error_management.filter_interceptor import intercept
from de_assets.transforms.error_management.late_data_detector import on_time_conditions, split_late
from de_assets.transforms.error_management.windowed_deduplicator import LookBack, number_copies
from de_checks.contract import contract_check
from de_checks.filter_shares import filter_check
from de_checks.freshness import completeness_check, newest_event_check
from de_checks.keys import unique_key_check
from de_checks.skew import skew_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.held_back import own_keys
from de_resources.retries import RETRY_TRANSIENT
from de_resources.sql.balanced import balanced


@dg.multi_asset(
    retry_policy=RETRY_TRANSIENT,
    name="valid_visits",
    outs={
        "late": dg.AssetOut(
            **dataset(VisitsLate, patterns=["late_data_detector"], partition="landing_hour"),
            automation_condition=late_cascade(),
        ),
        "valid": dg.AssetOut(
            **dataset(
                Visits, patterns=["windowed_deduplicator", "filter_interceptor", "wrapper"], partition="event_hour"
            ),
            automation_condition=late_cascade(),
        ),
    },
    ins={"landed": dg.AssetIn(["bronze", "visits"], partition_mapping=with_look_back(LOOK_BACK_HOURS))},
    partitions_def=hourly,
    backfill_policy=dg.BackfillPolicy.single_run(),  # an AssetOut's own is ignored
)
def valid_visits(
    context: dg.AssetExecutionContext, landed: DataFrame
) -> Iterator[dg.Output[DataFrame] | dg.Output[ObservedFrame]]:
    """Number the copies of the hour once, then split what came first by lateness."""
    hours = [hourly.time_window_for_partition_key(key).start for key in own_keys(context)]
    numbered = landed_within(numbered_visits(landed, LOOK_BACK_HOURS), hours).persist()
    try:
        yield dg.Output(late_visits(numbered), "late")
        valid = intercept(numbered, CONDITIONS, window="landing_hour", expected=hours)
        yield dg.Output(valid.transform(in_event_hour), "valid")
    finally:
        numbered.unpersist()


COPY = "copy"
CONDITIONS = {
    "first_copy": f"{COPY} = 1",
    **on_time_conditions("event_time", "landing_hour"),
}
"""What makes a landed visit a valid one, in this order."""


def numbered_visits(landed: DataFrame, look_back: int = 0) -> DataFrame:
    """Landed visits with `copy`: 1 for the earliest event of a visit in its landing hour, the landed line decides
    between equals. A visit that landed in one of the `look_back` hours before has no first copy in this one."""
    survivor = [F.col("event_time").asc(), F.col("raw").asc()]
    hours = LookBack("landing_hour", look_back, timedelta(hours=1))
    return number_copies(landed, ["visit_id"], survivor, into=COPY, look_back=hours)


def landed_within(visits: DataFrame, hours: Iterable[datetime]) -> DataFrame:
    """The visits of these hours, the run's own, without those that were read to look back."""
    landed, hour = F.col("landing_hour"), timedelta(hours=1)
    stretches = [(landed >= F.lit(of[0])) & (landed < F.lit(of[-1] + hour)) for of in contiguous(hours, hour)]
    return visits.where(balanced(or_, stretches))


def late_visits(numbered: DataFrame) -> DataFrame:
    """The columns of silver.visits_late: first copies outside the hour that received them."""
    _, late = split_late(numbered.where(CONDITIONS["first_copy"]), "event_time", "landing_hour")
    return late.withColumn("event_hour", F.date_trunc("HOUR", "event_time")).select(
        *Contract.of(VisitsLate).column_names
    )


def in_event_hour(visits: DataFrame) -> DataFrame:
    """The columns of silver.visits."""
    hour = F.date_trunc("HOUR", F.col("event_time")).alias("event_hour")
    return visits.select("*", hour).select(*Contract.of(Visits).column_names)


_VALID = valid_visits.get_asset_spec(dg.AssetKey(["silver", "visits"]))
_LATE = valid_visits.get_asset_spec(dg.AssetKey(["silver", "visits_late"]))

checks = [
    contract_check(_VALID),
    contract_check(_LATE, blocking=False),
    unique_key_check(_VALID),
    unique_key_check(_LATE, blocking=False),
    # A launch brings more late visits than a quiet night: only a condition that begins to remove much more, or stops.
    filter_check(_VALID, tolerance=0.15),
    completeness_check(_VALID, allowed_delay=timedelta(hours=1)),
    newest_event_check(_VALID, now=calendar_now),
    # Days and nights differ; one hour as large as all the others together is a loop of a producer, or a load twice.
    skew_check(_VALID, within=timedelta(days=1), max_deviation=1.5, events=True, severity=dg.AssetCheckSeverity.WARN),
]
