"""The code location: everything assembled, nothing decided here."""

import dagster as dg

from de_assets import automation, bronze, gold, silver
from de_assets.resources import resources
from de_assets.sources.systems import systems

defs = dg.Definitions(
    assets=[*systems, *bronze.assets, *silver.assets, *gold.assets],
    asset_checks=[*bronze.checks, *silver.checks, *gold.checks],
    sensors=automation.sensors,
    schedules=automation.schedules,
    resources=resources(),
    # One process per run: every step shares the session, or the connection, of the run.
    executor=dg.in_process_executor,
)
