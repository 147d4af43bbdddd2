"""A location with one flow that leaves signs on three layers, a watch, and the sensor of alerts, under a clock of the test."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from de_assets.automation.alerting.alerting import Alerting
from de_assets.automation.alerting.sensor import alerts
from de_assets.automation.triggers.watch import watch
from de_checks.freshness import Commits, LandedFolders, flow_check
from de_checks.freshness.newest_event import Events
from de_resources.contract.freshness import Freshness
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

ROOT = Path(os.environ["SILENT_ROOT"])
HOUR = timedelta(hours=1)
PROMISE = Freshness("read_at", every=HOUR, delay=timedelta(minutes=30))


def clock() -> datetime:
    """What time it is in this world."""
    return datetime.fromisoformat((ROOT / "clock").read_text())


def landed(_resources: object, _believable: datetime) -> list[tuple[datetime, datetime]]:
    """The folders that are there, newest first."""
    starts = (datetime.fromisoformat(folder.name) for folder in (ROOT / "landing").iterdir())
    return sorted(((start, start + HOUR) for start in starts), reverse=True)


readings = dg.AssetSpec(
    ["bronze", "readings"],
    partitions_def=dg.HourlyPartitionsDefinition("2024-01-08-00:00", end_date="2024-02-01-00:00"),
    metadata={"partition_expr": "hour"},
)
checks = [
    flow_check(readings, Commits(part="region"), name="rows_keep_coming", promise=PROMISE, now=clock),
    flow_check(readings, Events("read_at", part="region"), name="events_are_recent", promise=PROMISE, now=clock),
    flow_check(readings, LandedFolders(landed, resources=()), name="files_keep_landing", promise=PROMISE, now=clock),
]
defs = dg.Definitions(
    [readings],
    asset_checks=checks,
    sensors=[watch("silence", checks, holds_for=timedelta(minutes=3), seconds=1, now=clock), alerts],
    resources={
        "lake": Lake(root_uri=str(ROOT / "lake"), spark=SparkEngine()),
        "alerting": Alerting(home=ROOT, services=list, now=clock),
    },
)
