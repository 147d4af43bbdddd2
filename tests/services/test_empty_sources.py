"""The whole graph on sources in which nothing happened, by the command that people use: that is a normal case."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from platform_world import Platform

from de_assets.calendar import Calendar, Origin
from de_assets.sources.capture import CAPTURES, USERS_CAPTURE
from de_assets.sources.landing import hour_folder, publish
from de_assets.sources.simulator import World, create_tables, land_devices
from de_assets.sources.topics import TOPICS
from de_resources.capture import prepare
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.spark import SparkEngine

PROJECT = Path(__file__).resolve().parents[2]
# Around midnight: two days, and every hour of them that exists is quiet.
START, HOURS = datetime(2024, 1, 1, 22, tzinfo=UTC), 4

pytestmark = pytest.mark.services


@pytest.fixture
def empty(new_services: Callable[[], LocalServices], monkeypatch: pytest.MonkeyPatch) -> LocalServices:
    """Sources that are all there, and hold nothing; devices have a dump, without which nobody knows any."""
    services = new_services()
    services.up(["postgres", "kafka", "capture"], topics=TOPICS, captures=CAPTURES)
    monkeypatch.setenv("DE_HOME", str(services.settings.home))
    with closing(PostgresDatabase().open()) as connection:
        create_tables(connection)
    prepare(PostgresDatabase(), USERS_CAPTURE)
    for number in range(HOURS):
        publish(hour_folder(services.settings.landing, START + timedelta(hours=number)), {})
    land_devices(services.settings.landing, World(seed=0), START)
    Calendar(START, START + timedelta(hours=HOURS)).save(services.settings, Origin.LOGS)
    return services


def test_every_dataset_is_made_of_nothing(platform: Platform, empty: LocalServices) -> None:
    with platform.at_home():
        engine = SparkEngine().resolved_url()
    environment = {**os.environ, "DE_HOME": str(empty.settings.home), "DE_SPARK": engine, "COLUMNS": "240"}
    command = [str(Path(sys.executable).with_name("de")), "run", "--once", "--without-services"]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Visits: 0 records, 0 dead letter(s), 0 understood" in done.stdout
    assert ", 0 failed; " in done.stdout
    for said in ("left out", "held back", "failed:"):
        assert said not in done.stdout
