"""What runs by the clock."""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg

from de_assets.landed_visits import REFERRAL_DAYS
from de_assets.late_days import days_of, plan
from de_assets.partitions import daily
from de_assets.ranges import range_tags


@dg.schedule(
    name="referral_stats_daily",
    description="Computes where yesterday's visits came from, and again the days that late visits may have changed.",
    cron_schedule="0 2 * * *",
    execution_timezone="UTC",
    target=dg.AssetSelection.assets(["gold", "referral_stats"]),
    default_status=dg.DefaultScheduleStatus.RUNNING,
    tags={"pattern/static_late_data_integrator": ""},
)
def referral_stats_daily(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One run over yesterday and its look-back. Skips days that the calendar does not have."""
    yesterday = context.scheduled_execution_time.date() - timedelta(days=1)
    ranges = plan([yesterday], REFERRAL_DAYS, days_of(daily)).ranges()
    if not ranges:
        yield dg.SkipReason(f"{yesterday} is not in the calendar.")
    for first, last in ranges:
        yield dg.RunRequest(
            run_key=f"{yesterday}",
            tags=range_tags(first.isoformat(), last.isoformat()),
        )
