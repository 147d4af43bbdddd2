"""An open calendar does not end with its year: hours, days and what is carried from day to day go on to be requested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

pytestmark = pytest.mark.pattern("readiness_marker")

PROGRAM = Path(__file__).with_name("open_calendar.py")
PROJECT = PROGRAM.parents[2]
HOURLY = ("bronze/visits", "silver/visits", "silver/visits_enriched")
DAILY = ("gold/user_activity", "gold/visits_cube_daily")

Requested = Mapping[str, Mapping[str, Sequence[str]]]


def lived(calendar: str, landing: Path, moments: Mapping[str, Sequence[str]]) -> Requested:
    """What the platform requests, by moment and asset, in a process whose definitions have the calendar."""
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(landing), json.dumps(moments)]
    environment = {**os.environ, "DE_CALENDAR": calendar, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told: Requested = json.loads(done.stdout.splitlines()[-1])
    return told


def hours(first: str, count: int) -> list[str]:
    """ISO hours, from one on."""
    return [f"{datetime.fromisoformat(first) + timedelta(hours=n):%Y-%m-%dT%H}" for n in range(count)]


def keys(landed: Sequence[str]) -> list[str]:
    return [f"{datetime.fromisoformat(hour):%Y-%m-%d-%H:00}" for hour in landed]


def test_the_year_ends_and_hours_and_days_go_on(tmp_path: Path) -> None:
    eve, last, first, new_year = (
        hours("2024-12-31T20", 3),
        hours("2024-12-31T23", 1),
        hours("2025-01-01T00", 2),
        hours("2025-01-01T02", 22),
    )
    ahead = hours("2025-03-01T00", 1)  # a producer's clock is wrong
    told = lived(
        "2024-12-31T20/",
        tmp_path,
        {
            "2024-12-31T23:05": [*eve, *ahead],
            "2025-01-01T00:05": last,
            "2025-01-01T02:05": first,
            "2025-01-02T00:05": new_year,
            "2025-01-02T00:45": [],
        },
    )
    assert told == {
        "2024-12-31T23:05": dict.fromkeys(HOURLY, keys(eve)),
        "2025-01-01T00:05": dict.fromkeys(HOURLY, keys(last)) | {name: ["2024-12-31"] for name in DAILY},
        "2025-01-01T02:05": dict.fromkeys(HOURLY, keys(first)),
        "2025-01-02T00:05": dict.fromkeys(HOURLY, keys(new_year)) | {name: ["2025-01-01"] for name in DAILY},
        "2025-01-02T00:45": {},
    }
