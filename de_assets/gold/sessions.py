"""Sessions that are over, by the day on which they were.

Grain: one session of one user; no midnight cuts it. Patterns: Incremental Sessionizer - a day is computed from its visits and
from the sessions that the day before has left open (`gold/sessions_pending`); Single Runner - one day at a time, in order;
Online Observer - the write measures its columns, so that a change of durations or of the number of pages shows in a plot.

A late visit changes its day, and with it what the days after it continue: they are asked for in turn. Between the two
`gold/sessions` may have a session on both days, as any table of days may that is being mended.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.automation.pipelines import SESSIONS
from de_assets.contracts.traffic import Sessions
from de_assets.dataset import dataset
from de_assets.gold.sessions_pending import (
    INPUTS,
    KEY,
    VISITS,
    VISITS_OF_SESSION,
    days_of,
    left_by_day_before,
    require_day_before,
)
from de_assets.landed_visits import TO_SESSIONS, landed_visits_check
from de_assets.partitions import daily, is_whole
from de_assets.transforms.data_value.incremental_sessionizer import WINDOW, SessionWindows, closed_sessions
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_checks.seasons import WEEKEND, SeasonTimes, Tolerance
from de_checks.usual_figures import usual_figures_check
from de_checks.volume import volume_check
from de_resources.contract import Contract
from de_resources.lake import Lake
from de_resources.observers import ONLINE_OBSERVER
from de_resources.retries import RETRY_TRANSIENT
from de_resources.run_queue.latency import waited


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(
        Sessions,
        patterns=["incremental_sessionizer", "single_runner", "online_observer", "fine_grained_tracker"],
        partition="event_date",
        pipeline=SESSIONS,
        row_lineage={
            VISITS.to_user_string(): VISITS_OF_SESSION,
            KEY.to_user_string(): "s.session_id = o.session_id AND s.event_date < o.event_date",
        },
        **ONLINE_OBSERVER,
    ),
    ins=INPUTS,
    partitions_def=daily,
    automation_condition=late_cascade(carried=dg.AssetSelection.assets(KEY)),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def sessions(context: dg.AssetExecutionContext, visits: DataFrame, before: DataFrame, lake: Lake) -> DataFrame:
    """The sessions that were over on each day of the run."""
    require_day_before(context, lake)
    context.add_output_metadata(waited(context))
    return over_by_midnight(visits, before, days_of(context))


def over_by_midnight(visits: DataFrame, before: DataFrame, days: SessionWindows) -> DataFrame:
    """The columns of gold.sessions."""
    found = closed_sessions(visits, left_by_day_before(before, days), days)
    dated = found.withColumns({
        "event_date": F.to_date(WINDOW),
        "duration_seconds": F.unix_timestamp("ended_at") - F.unix_timestamp("started_at"),
    })  # fmt: skip
    return dated.select(*Contract.of(Sessions).column_names)


checks = [
    contract_check(sessions),
    usual_figures_check(sessions, ["duration_seconds/median", "visits/median", "first_page/nulls"]),
    unique_key_check(sessions),
    landed_visits_check(sessions, TO_SESSIONS),
    # A day of a small blog may be of any size, down to none: a change of magnitude is news, and no reason to stop. After a
    # working day a Saturday may be much quieter, and a Monday much louder than the Sunday before.
    volume_check(
        sessions,
        tolerance=Tolerance((0.2, 5.0), special=[(WEEKEND, (0.1, 5.0)), (SeasonTimes(weekdays=[0]), (0.2, 10.0))]),
        min_rows=0,
        events=True,
        whole=is_whole,
        severity=dg.AssetCheckSeverity.WARN,
    ),
]
