"""What runs by the clock."""

import dagster as dg

from de_assets.sources.landing import DEVICES, is_ready
from de_assets.sources.landing_zone import LandingZone


@dg.schedule(
    name="devices_reload",
    description="Reloads the provider's dump of devices once a day.",
    cron_schedule="0 4 * * *",
    execution_timezone="UTC",
    target=dg.AssetSelection.assets(["bronze", "devices"]),
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
def devices_reload(context: dg.ScheduleEvaluationContext, landing: LandingZone) -> dg.RunRequest | dg.SkipReason:
    """Load the provider's dump once a day. Skips the day when no complete dump lies in the drop folder."""
    if not is_ready(landing.path / DEVICES):
        return dg.SkipReason("The provider's folder `devices` holds no complete dump: its `_SUCCESS` is missing.")
    return dg.RunRequest(run_key=context.scheduled_execution_time.date().isoformat())
