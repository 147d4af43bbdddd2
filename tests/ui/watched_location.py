"""A code location with a promise, the sensor of alerts and the observatory, under a clock that the test winds."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from de_assets.automation import observatory
from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.alerting.sensor import alerts
from de_resources.contract.sla import Sla

ROOT = Path(os.environ["SILENT_ROOT"])
START = datetime.fromisoformat((ROOT / "begin").read_text())


def clock() -> datetime:
    """What time it is in this world."""
    return datetime.fromisoformat((ROOT / "clock").read_text())


sales = dg.AssetSpec(["gold", "sales"], partitions_def=dg.HourlyPartitionsDefinition(START))
alerting = Alerting(
    promises={"gold/sales": Sla(ready_within=timedelta(minutes=30))},
    assets={"gold/sales": sales},
    services=list,
    now=clock,
)


@dg.schedule(job=observatory.job, cron_schedule="* * * * *", default_status=dg.DefaultScheduleStatus.RUNNING)
def every_minute(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Every minute what the platform does every night, one run at a time: a busy machine takes longer than a minute."""
    under_way = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    )
    return dg.SkipReason("One is under way.") if context.instance.get_runs_count(under_way) else dg.RunRequest()


defs = dg.Definitions(
    [sales], jobs=[observatory.job], schedules=[every_minute], sensors=[alerts], resources={"alerting": alerting}
)
