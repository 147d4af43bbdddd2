"""The code location: everything assembled, nothing decided here."""

import dagster as dg

from de_assets import automation, bronze, gold, serving, silver, staging
from de_assets.contract_versions import require_accepted
from de_assets.graph_assets import assets
from de_assets.resources import resources

checks = [*bronze.checks, *silver.checks, *gold.checks, *staging.checks]

require_accepted(assets)

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
