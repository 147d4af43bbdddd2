"""The whole graph on sources in which nothing happened, by the command that people use: that is a normal case."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from platform_world import Platform

from de_assets.calendar import Calendar, CalendarOrigin
from de_assets.sources.landing import hour_folder, publish
from de_assets.sources.simulator import World, land_devices
from de_resources.local import LocalServices
from de_resources.spark import SparkEngine

PROJECT = Path(__file__).resolve().parents[2]
# Around midnight: two days, and every hour of them that exists is quiet.
START, HOURS = datetime(2024, 1, 1, 22, tzinfo=UTC), 4

pytestmark = pytest.mark.services


def test_every_dataset_is_made_of_nothing(platform: Platform, all_quiet_services: LocalServices) -> None:
    """Also of visits; devices have a dump, without which nobody knows any."""
    settings = all_quiet_services.settings
    for number in range(HOURS):
        publish(hour_folder(settings.landing, START + timedelta(hours=number)), {})
    land_devices(settings.landing, World(seed=0), START)
    Calendar(START, START + timedelta(hours=HOURS)).save(settings, CalendarOrigin.LOGS)
    with platform.at_home():
        engine = SparkEngine().resolved_url()
    environment = {**os.environ, "DE_HOME": str(settings.home), "DE_SPARK": engine, "COLUMNS": "240"}
    command = [str(Path(sys.executable).with_name("de")), "run", "--once", "--without-services"]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Visits: 0 records, 0 dead letter(s), 0 understood" in done.stdout
    assert ", 0 failed; " in done.stdout
    rows = [line.strip("│ ").split("│") for line in done.stdout.splitlines() if line.startswith("│ ")]
    assert len(rows) > 20, "the table of all datasets"
    assert [row[0] for row in rows if not row[-1].strip()] == [], "tables, topics, views and files alike"
    for said in ("left out", "held back", "failed:"):
        assert said not in done.stdout
