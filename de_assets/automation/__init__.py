"""What starts runs: named automation conditions, sensors, schedules.

All of it is on from the first start of the daemon: data that lands is taken in, what follows from it is computed, and
what goes wrong is told.
"""

import dagster as dg

from de_assets.automation.alert_sensor import alerts
from de_assets.automation.landing import visits_hour_landed
from de_assets.automation.schedules import devices_reload

cascade = dg.AutomationConditionSensorDefinition(
    "cascade",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=30,
    description="Requests what follows from new data, as the automation conditions of the assets say.",
)

sensors = [visits_hour_landed, cascade, alerts]
schedules = [devices_reload]
