"""Which datasets of the blog follow late changes of visits: hours of the enriched ones, and days of what is made of them."""

from datetime import UTC, datetime

import dagster as dg

from de_assets.automation.late_data.integrator import Moment, late_data_sensor
from de_assets.partitions import calendar_now

VISITS, ENRICHED = dg.AssetKey(["silver", "visits"]), dg.AssetKey(["silver", "visits_enriched"])
LATE = dg.AssetKey(["silver", "visits_late"])


def _moment() -> Moment:
    """In a closed calendar the present of the data stands still, while people go on changing it."""
    return Moment(calendar_now(), datetime.now(UTC))


OF_HOURS = {ENRICHED: VISITS}
LATE_OF_HOURS = {ENRICHED: (LATE, "event_hour")}
_DAYS = ("visits_cube_daily", "visitor_sketches_daily", "sessions", "sessions_pending")
OF_DAYS = {dg.AssetKey(["gold", name]): ENRICHED for name in _DAYS}
OF_TOTALS = {dg.AssetKey(["gold", "user_activity"]): ENRICHED}

late_hours = late_data_sensor(
    "late_hours",
    OF_HOURS,
    apart=LATE_OF_HOURS,
    clock=_moment,
    description="Requests hours of visits again whose visits changed after they were enriched, or that late visits belong to.",
)
late_days = late_data_sensor(
    "late_days",
    OF_DAYS,
    clock=_moment,
    description="Requests past days again whose visits changed after they were processed.",
)
late_totals = late_data_sensor(
    "late_totals",
    OF_TOTALS,
    clock=_moment,
    description="Adds a past day whose visits changed to the totals again, and every day after it, one by one.",
)
