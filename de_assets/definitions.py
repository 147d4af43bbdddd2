"""The code location: everything assembled, nothing decided here."""

import dagster as dg

from de_assets import automation, bronze, gold, serving, silver, staging
from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.lag import lag_checks, lag_schedule
from de_assets.automation.sla import datasets, keys_of, sla_checks, watched
from de_assets.contract_versions import require_accepted
from de_assets.graph_assets import assets
from de_assets.late_promises import require_late_promises
from de_assets.resources import resources
from de_resources.observatory.link import linked
from de_resources.settings import Settings

lags = lag_checks(assets)
alerting = Alerting(promises=watched(assets), keys_of=keys_of(assets), assets=datasets(assets))
slas = sla_checks(assets)
checks = [*bronze.checks, *silver.checks, *gold.checks, *serving.checks, *staging.checks, *lags, *slas]

require_accepted(assets)
require_late_promises(assets)

defs = linked(
    dg.Definitions(
        assets=assets,
        asset_checks=checks,
        sensors=[*automation.sensors, *automation.watches(checks)],
        schedules=[
            *automation.schedules,
            *bronze.polls,
            *silver.polls,
            *gold.polls,
            *serving.polls,
            *staging.polls,
            lag_schedule(lags),
        ],
        jobs=[*automation.jobs(assets, checks), *serving.jobs],
        resources={**resources(), "alerting": alerting},
        # One process per run: every step shares the session, or the connection, of the run.
        executor=dg.in_process_executor,
    ),
    Settings.from_environment().home,
)
