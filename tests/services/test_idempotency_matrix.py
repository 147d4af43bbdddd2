"""Every partitioned asset of the graph against every way in which runs repeat, overlap, or die: the rows of one clean run.

What is partitioned is found in the graph: a new asset is in the matrix without a word here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
from platform_world import PER_HOUR, RATES, WORLD, Lakehouse, Platform

from de_assets.calendar import Calendar
from de_assets.definitions import defs
from de_assets.sources.simulator import hours_between, land_visits
from de_resources.postgres import PostgresDatabase

# The first test of a lake fills it, which is most of the module.
pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.timeout(1500)]

WORKER = Path(__file__).with_name("matrix_worker.py")
# Midnight lies between them: two partitions of every kind.
CALENDAR = Calendar.parse("2024-10-09T23/2024-10-10T01")
HOURS = hours_between(CALENDAR.start, CALENDAR.start + timedelta(hours=2))
GRAPH = defs.resolve_asset_graph()
ASSETS = sorted(key.to_user_string() for key in GRAPH.materializable_asset_keys if GRAPH.get(key).is_partitioned)
Contents = dict[str, list[str]]
LAKES = [("undisturbed", "rerun"), ("backwards", "kill", "together", "ranges")]
"""Disturbances that one lake goes through, one after the other, all assets each: the first one fills it."""


@pytest.fixture(scope="module")
def contents_after(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Contents]:
    """The rows per asset of a lake that was filled under a disturbance; each lake is filled once."""
    fed_platform.up()
    land_visits(fed_platform.landing, WORLD, HOURS[:1], per_hour=PER_HOUR, irregularities=RATES)

    @cache
    def fill(*disturbances: str) -> dict[str, Contents]:
        with fed_platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute("DROP SCHEMA IF EXISTS serving CASCADE")  # the lakes are many, the database is one
        lake = Lakehouse(fed_platform.services, tmp_path_factory.mktemp(disturbances[-1]))
        lake.environment = {"DE_CALENDAR": str(CALENDAR), "DE_STAGING_ROOT": str(lake.folder / "staging")}
        work = {"disturbances": disturbances, "first": f"{HOURS[0]:%Y-%m-%dT%H}", "hours": len(HOURS)}
        done = subprocess.run(
            [sys.executable, str(WORKER), json.dumps(work)],
            env=lake.variables(),
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"{disturbances}: {done.stdout[-1000:]}{done.stderr[-4000:]}"
        contents: dict[str, Contents] = {name: {} for name in disturbances}
        for line in done.stdout.splitlines():
            if line.startswith('{"disturbance"'):
                said = json.loads(line)
                contents[said["disturbance"]][said["asset"]] = said["rows"]
        return contents

    def after(disturbance: str) -> Contents:
        together = next(names for names in LAKES if disturbance in names)
        return fill(*together)[disturbance]

    return after


@pytest.mark.parametrize("asset", ASSETS)
def test_a_clean_lake_has_rows_of_every_asset(asset: str, contents_after: Callable[[str], Contents]) -> None:
    assert contents_after("undisturbed")[asset], "an empty table would be equal to any other empty one"


@pytest.mark.parametrize("asset", ASSETS)
@pytest.mark.parametrize("disturbance", [name for lake in LAKES for name in lake][1:])
def test_the_rows_are_those_of_a_clean_run(
    disturbance: str, asset: str, contents_after: Callable[[str], Contents]
) -> None:
    assert contents_after(disturbance)[asset] == contents_after("undisturbed")[asset]
