"""Sessions that may go on after their day, carried from each day to the next.

Grain: one open session at the end of one day. Pattern: Incremental Sessionizer - the state that makes a day cost what
its visits cost. A day is computed from its visits and from what the day before has left open; run again, it replaces its
own rows, and the days after it are asked for by the cascade and by the late-data sensor, in order. What a session is says
`transforms.data_value.sessions`. Single Runner - whoever launches days, they are computed one at a time and in
order, and none goes past one that failed.
"""

from datetime import datetime, timedelta

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.automation.pipelines import SESSIONS
from de_assets.contracts.traffic import SessionsPending
from de_assets.dataset import dataset
from de_assets.partitions import daily, day_before, hours_of_day, is_whole
from de_assets.transforms.data_value.incremental_sessionizer import WINDOW, SessionWindows, open_sessions
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_checks.seasons import Tolerance
from de_checks.volume import volume_check
from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.errors import PermanentError
from de_resources.held_back import own_keys
from de_resources.lake import Lake
from de_resources.retries import RETRY_TRANSIENT
from de_resources.run_queue.latency import waited

KEY = dg.AssetKey(["gold", "sessions_pending"])
VISITS = dg.AssetKey(["silver", "visits_enriched"])
DAY = timedelta(days=1)
INPUTS = {
    "visits": dg.AssetIn(VISITS, partition_mapping=hours_of_day),
    "before": dg.AssetIn(KEY, partition_mapping=day_before),
}
"""Of the sessions that are over as well as of those that are not."""
VISITS_OF_SESSION = "s.user_id = o.user_id AND s.event_time BETWEEN o.started_at AND o.ended_at"
"""For `de trace`: the visits of a session are those of its user between its bounds."""


class DayBeforeMissing(PermanentError):
    """A day whose predecessor was never computed, though there are visits before it that may go on into it."""

    def __init__(self, asset: str, day: str, before: str) -> None:
        self.asset, self.day, self.before = asset, day, before
        super().__init__(
            f"`{asset}` of {day} continues the sessions that were open at the end of {before}, and `{KEY.to_user_string()}` of "
            f"{before} was not computed yet, though there are visits before {day}. Nothing was written. Run "
            f"`{KEY.to_user_string()}` for {before} first, or a backfill from the first day on, which takes the days in order."
        )


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        SessionsPending,
        patterns=["incremental_sessionizer", "single_runner"],
        partition="event_date",
        pipeline=SESSIONS,
        row_lineage={VISITS.to_user_string(): VISITS_OF_SESSION},
    ),
    ins=INPUTS,
    partitions_def=daily,
    automation_condition=late_cascade(carried=dg.AssetSelection.assets(KEY)),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def sessions_pending(context: dg.AssetExecutionContext, visits: DataFrame, before: DataFrame, lake: Lake) -> DataFrame:
    """What is open at the end of each day of the run."""
    require_day_before(context, lake)
    context.add_output_metadata(waited(context))
    return open_at_midnight(visits, before, days_of(context))


def open_at_midnight(visits: DataFrame, before: DataFrame, days: SessionWindows) -> DataFrame:
    """The columns of gold.sessions_pending."""
    found = open_sessions(visits, left_by_day_before(before, days), days)
    return found.withColumn("event_date", F.to_date(WINDOW)).select(*Contract.of(SessionsPending).column_names)


def left_by_day_before(before: DataFrame, days: SessionWindows) -> DataFrame:
    """Of what was read of gold.sessions_pending, the rows of the day before the first one.

    A run over several days reads those of the days between as well; it replaces them.
    """
    return before.where(F.col("event_date") == F.lit((days.start - DAY).date()))


def days_of(context: dg.AssetExecutionContext) -> SessionWindows:
    """The days of the run, up to the first one that waits for a gate: what is carried passes through no gap."""
    days = own_keys(context)
    return SessionWindows(daily.time_window_for_partition_key(days[0]).start, DAY, len(days))


def require_day_before(context: dg.AssetExecutionContext, lake: Lake) -> None:
    """Raise `DayBeforeMissing` where the sessions that are open at the run's start were never computed.

    No row of that day may also mean that nothing was open; whether it was computed says the instance. Where no visit
    came before the run's first day, there is nothing to continue.
    """
    start = days_of(context).start
    day, before = (moment.strftime(daily.fmt) for moment in (start, start - DAY))
    if not daily.has_partition_key(before) or not _visits_before(lake, start):
        return
    log = lake.table(KEY).log()
    if log is None or not (_has_rows(log, start - DAY) or _was_computed(context.instance, before)):
        raise DayBeforeMissing(context.asset_key.to_user_string(), day, before)


def _visits_before(lake: Lake, start: datetime) -> bool:
    log = lake.table(VISITS).log()
    return log is not None and any(hour < start and rows for (hour,), rows in log.rows_by_partition().items())


def _has_rows(log: TableLog, day: datetime) -> bool:
    return bool(log.rows_by_partition().get((day.date(),)))


def _was_computed(instance: dg.DagsterInstance, day: str) -> bool:
    kind = dg.DagsterEventType.ASSET_MATERIALIZATION
    return day in instance.event_log_storage.get_latest_storage_id_by_partition(KEY, kind, {day})


checks = [
    contract_check(sessions_pending),
    unique_key_check(sessions_pending),
    # Who is on the site at midnight is about the same every day: what keeps growing is not closed any more.
    volume_check(
        sessions_pending,
        tolerance=Tolerance((0.1, 10.0)),
        min_rows=0,
        events=True,
        whole=is_whole,
        severity=dg.AssetCheckSeverity.WARN,
    ),
]
