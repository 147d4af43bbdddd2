"""The code location `dashboards`: everything assembled, nothing decided here."""

import dagster as dg
from dagster_delta import LocalConfig

from de_assets.dashboards import gold
from de_assets.dashboards.daily_traffic import ReportFolder, daily_traffic
from de_assets.dashboards.lag import lag_check
from de_resources.observatory.link import linked
from de_resources.sensor_interval import sensor_seconds
from de_resources.settings import Settings

news_from_gold = dg.AutomationConditionSensorDefinition(
    "news_from_gold",
    target=dg.AssetSelection.assets(daily_traffic),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=sensor_seconds(),
    description="Redraws the dashboards when the other code location has written gold tables.",
)

redraw_dashboards = dg.define_asset_job(
    "redraw_dashboards",
    selection=dg.AssetSelection.assets(daily_traffic),
    tags={"pattern/isolated_sequencer": ""},
    description="Draws the dashboards from gold as it is now. Other teams launch it when they have changed how gold is stored.",
)

keeps_up = lag_check(daily_traffic, [gold.VISITS_CUBE_DAILY, gold.SESSIONS])

measure_lag = dg.define_asset_job(
    "dashboards_lag",
    selection=dg.AssetSelection.checks(keeps_up),
    tags={"pattern/lag_detector": ""},
    description="Measures how far the dashboards are behind the gold tables.",
)

lag_measured = dg.ScheduleDefinition(
    name="dashboards_lag_measured",
    job=measure_lag,
    cron_schedule="*/10 * * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    tags={"pattern/lag_detector": ""},
)

defs = linked(
    dg.Definitions(
        assets=[*gold.tables, daily_traffic],
        asset_checks=[keeps_up],
        sensors=[news_from_gold],
        schedules=[lag_measured],
        jobs=[redraw_dashboards, measure_lag],
        resources={
            gold.READER: gold.GoldReader(root_uri=Settings.from_environment().lake_root, storage_options=LocalConfig()),
            "gold_tables": gold.GoldTables(root_uri=Settings.from_environment().lake_root),
            "reports": ReportFolder(),
        },
        executor=dg.in_process_executor,
    ),
    Settings.from_environment().home,
)
