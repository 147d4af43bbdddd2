"""A code location with one source and a watch, whose clock is a file that the test winds."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from de_assets.automation.triggers.watch import watch
from de_checks.freshness import LandedFolders, flow_check, heartbeat_check
from de_resources.contract.freshness import Freshness

ROOT = Path(os.environ["SILENT_ROOT"])
HOUR = timedelta(hours=1)
drop = dg.AssetSpec(["sources", "drop"])


def clock() -> datetime:
    """What time it is in this world."""
    return datetime.fromisoformat((ROOT / "clock").read_text())


def landed(_resources: object, _believable: datetime) -> list[tuple[datetime, datetime]]:
    """The folders that are there, newest first."""
    starts = (datetime.fromisoformat(folder.name) for folder in (ROOT / "landing").iterdir())
    return sorted(((start, start + HOUR) for start in starts), reverse=True)


files_keep_landing = flow_check(
    drop,
    LandedFolders(landed, resources=()),
    name="files_keep_landing",
    promise=Freshness(every=HOUR, delay=timedelta(minutes=30)),
    now=clock,
)
job_is_alive = heartbeat_check(drop, ["feeder"], now=clock)
checks = [files_keep_landing, job_is_alive]
defs = dg.Definitions(
    [drop],
    asset_checks=checks,
    sensors=[watch("silence", checks, holds_for=timedelta(minutes=3), seconds=1, now=clock)],
)
