"""The code location: everything assembled, nothing decided here."""

import dagster as dg

from de_assets import automation, bronze, gold, serving, silver, staging
from de_assets.resources import resources
from de_assets.sources.systems import systems

assets = [*systems, *bronze.assets, *silver.assets, *gold.assets, *serving.assets, *staging.assets, *automation.assets]
checks = [*bronze.checks, *silver.checks, *gold.checks, *staging.checks]

defs = dg.Definitions(
    assets=assets,
    asset_checks=checks,
    sensors=automation.sensors,
    schedules=[*automation.schedules, *bronze.polls, *gold.polls, *serving.polls, *staging.polls],
    jobs=[*automation.jobs(assets, checks), *serving.jobs],
    resources=resources(),
    # One process per run: every step shares the session, or the connection, of the run.
    executor=dg.in_process_executor,
)
