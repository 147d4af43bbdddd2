"""What starts runs: named automation conditions, sensors, schedules, and jobs on tables.

All of it is on from the first start of the daemon: data that lands is taken in, what follows from it is computed, and
what goes wrong is told.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg

from de_assets.automation import observatory, offline_observer, order
from de_assets.automation.alerting.sensor import alerts
from de_assets.automation.alerting.stray_hours import visits_outside_calendar
from de_assets.automation.late_data.report import late_partitions
from de_assets.automation.late_data.visits import late_days, late_hours, late_totals
from de_assets.automation.maintenance import migrations, publication, readers, restore, versions, weeks
from de_assets.automation.maintenance import nightly as maintenance
from de_assets.automation.maintenance.recapture import capture_anew_job
from de_assets.automation.openlineage import openlineage_events
from de_assets.automation.reports import daily_report_due
from de_assets.automation.schedules import referral_stats_daily
from de_assets.automation.triggers.landing import visits_hour_landed
from de_assets.automation.triggers.legacy_due import legacy_hours_due
from de_assets.automation.triggers.legacy_hours import legacy_hours_grown
from de_assets.automation.triggers.releases import feature_released, features_release, features_set_aside
from de_assets.automation.triggers.waiting import waiting
from de_assets.automation.triggers.watch import standing, watch
from de_assets.automation.triggers.written_around import kept_by_check, written_around
from de_assets.sources.capture import CAPTURES
from de_resources.sensor_interval import sensor_seconds

if TYPE_CHECKING:
    from de_resources.compat.graph import UnresolvedAssetJobDefinition


def _locations() -> list[dg.Definitions]:
    """What only that sensor needs, at its first tick."""
    from de_assets.catalogue import load_locations

    return load_locations()


cascade = dg.AutomationConditionSensorDefinition(
    "cascade",
    target=dg.AssetSelection.all() - order.in_order(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=sensor_seconds(),
    description="Requests what follows from new data, as the automation conditions of the assets say.",
)

assets = [late_partitions]
sensors = [
    visits_hour_landed,
    visits_outside_calendar,
    feature_released,
    legacy_hours_due,
    legacy_hours_grown,
    daily_report_due,
    late_hours,
    late_days,
    late_totals,
    waiting(_locations),
    cascade,
    order.cascade_in_order,
    alerts,
    openlineage_events,
]
schedules = [referral_stats_daily, maintenance.schedule, offline_observer.schedule, observatory.schedule]


def watches(checks: Sequence[dg.AssetChecksDefinition]) -> list[dg.SensorDefinition]:
    """The sensors that ask for checks though no run of the platform happens.

    Those whose answer changes with time alone, for a flow that stops starts no run; and those of what no store keeps, when
    somebody wrote around the platform.
    """
    return [
        watch("silent_flows", standing(checks), patterns=["flow_interruption_detector", "skew_detector"]),
        written_around(kept_by_check(checks)),
    ]


def jobs(
    assets: Sequence[dg.AssetsDefinition | dg.AssetSpec],
    checks: Sequence[dg.AssetChecksDefinition] = (),
) -> "list[dg.JobDefinition | UnresolvedAssetJobDefinition]":
    """The jobs that work on the tables of these assets, which these checks judge, and those that an event starts."""
    looked_at = offline_observer.offline_observer_job(assets, checks)
    tables = [
        maintenance.maintenance_job(assets, then=[readers.launch_readers]),
        restore.restore_job(assets),
        looked_at,
        migrations.migration_job(assets),
    ]
    stores = [*versions.version_jobs(assets), *weeks.week_jobs(assets), *publication.publication_jobs(assets)]
    events: list[dg.JobDefinition | UnresolvedAssetJobDefinition] = [
        features_release,
        features_set_aside,
        capture_anew_job(CAPTURES),
    ]
    return [*tables, *stores, observatory.job, order.let_pass_job, *events]
