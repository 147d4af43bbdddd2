"""Which reports do not wait for what is late."""

from datetime import timedelta

import dagster as dg

from de_assets.automation.triggers.fan_in import fan_in_sensor

REPORT_DEADLINE = timedelta(hours=3)
"""After the end of the day: people read the report in the morning."""

daily_report_due = fan_in_sensor(
    "daily_report_due",
    dg.AssetKey(["gold", "daily_report"]),
    dg.AssetKey(["silver", "visits"]),
    deadline=REPORT_DEADLINE,
    description="Requests the report of a day when its hours are there, at the deadline with those that are, and again later.",
)
