"""The Connect server is killed while a run works: the run fails once, with the cause and soon; after `up` the next works."""

from __future__ import annotations

import os
import signal
import time

import pytest
from platform_world import KEYS, Lakehouse, Platform, Report, key_of
from run_worker import wait_for

pytestmark = [pytest.mark.services, pytest.mark.faults]

BRONZE = {"assets": ["bronze/visits", "bronze/visits_dead_letter"], "first": KEYS[0], "last": KEYS[0]}
SLOW = {"assets": ["scratch/slow"], "key": "a"}
SECONDS = 60


def _says_it_once(report: Report, error: str) -> None:
    assert report.status == 0, report.output[-3000:]
    (reason,) = report.runs[0]["failures"].values()
    assert reason.startswith(f"de_resources.spark.{error}"), reason
    assert "de up" in reason
    # One at most: the interpreter tells of a generator whose clean-up met the dead engine.
    assert report.output.count("Traceback") <= 1, report.output[-6000:]


def test_between_two_tables(platform: Platform, lakehouse: Lakehouse) -> None:
    server = platform.status("spark_connect").pid
    before = time.monotonic()
    report = lakehouse.run(
        BRONZE,
        {"assets": ["bronze/devices"]},
        kill={"point": "before_commit", "table": "bronze.visits", "pid": server},
    )
    took = time.monotonic() - before

    _says_it_once(report, "EngineLost")
    (second,) = report.runs[1]["failures"].values()
    assert second.startswith("de_resources.spark.EngineUnreachable"), "no second engine beside the lost one"
    assert report.runs[1]["seconds"] < 10
    assert took < SECONDS
    assert not lakehouse.rows("bronze/visits")

    platform.up()
    lakehouse.run(BRONZE).succeeded()
    dead = lakehouse.per_key("bronze/visits_dead_letter", "landing_hour")
    valid = lakehouse.per_key("bronze/visits", "landing_hour")
    (hour,) = [h for h in platform.truth.hours() if key_of(h) == KEYS[0]]
    assert valid[KEYS[0]] + dead[KEYS[0]] == platform.truth.hour(hour).lines


def test_while_files_are_being_written(platform: Platform, lakehouse: Lakehouse) -> None:
    server = platform.status("spark_connect").pid
    assert server is not None
    worker = lakehouse.start(SLOW, graph="scratch_assets", SCRATCH_BLOCK=lakehouse.folder)
    wait_for(lakehouse.folder / "writing")
    os.kill(server, signal.SIGKILL)
    before = time.monotonic()
    report = worker.end()
    took = time.monotonic() - before
    (lakehouse.folder / "release").touch()

    _says_it_once(report, "EngineLost")
    assert took < SECONDS
    assert not lakehouse.rows("scratch/slow"), "nothing of it is visible"

    platform.up()
    lakehouse.run(SLOW, graph="scratch_assets").succeeded()
    assert len(lakehouse.rows("scratch/slow")) == 20_000
