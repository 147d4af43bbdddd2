"""The Connect server is killed while a run works: the run fails once, with the cause and soon; after `up` the next works."""

from __future__ import annotations

import os
import signal
import time
from random import Random
from typing import Any

import pytest
from platform_world import KEYS, Lakehouse, Platform, Report, key_of
from run_worker import wait_for
from waiting import PATIENCE

pytestmark = [pytest.mark.services, pytest.mark.faults]

DEVICES = {"assets": ["bronze/devices"]}
BRONZE: dict[str, Any] = {"assets": ["bronze/visits", "bronze/visits_dead_letter"], "first": KEYS[0], "last": KEYS[0]}
SLOW: dict[str, Any] = {"assets": ["scratch/slow"], "key": "a", "graph": "scratch_assets"}
CHANGES: dict[str, Any] = {"assets": ["bronze/users_changes"]}
USERS: dict[str, Any] = {"assets": ["silver/users"]}
SECONDS = PATIENCE


def _says_it_once(report: Report, error: str) -> None:
    assert report.status == 0, report.output[-3000:]
    (reason,) = report.runs[0]["failures"].values()
    first, *others = (*report.runs[0]["retried"], reason)
    assert first.startswith(f"de_resources.spark.{error}"), first
    for again in others:
        assert again.startswith("de_resources.spark.EngineUnreachable"), "each attempt asks for a new session"
    assert "de up" in reason
    # One at most: the interpreter tells of a generator whose clean-up met the dead engine.
    assert report.output.count("Traceback") <= 1, report.output[-6000:]


def _refuses_a_second_engine(report: Report) -> None:
    (second,) = report.runs[1]["failures"].values()
    assert second.startswith("de_resources.spark.EngineUnreachable"), "no second engine beside the lost one"
    assert report.runs[1]["seconds"] < SECONDS


def test_between_two_tables(soak_seed: int, platform: Platform, lakehouse: Lakehouse) -> None:
    random = Random(soak_seed)  # noqa: S311 - a place, not a secret
    point, table = random.choice(("before_commit", "after_commit")), random.choice(BRONZE["assets"])
    server = platform.status("spark_connect").pid
    before = time.monotonic()
    kill = {"point": point, "table": table.replace("/", "."), "pid": server}
    report = lakehouse.run(BRONZE, DEVICES, kill=kill)
    took = time.monotonic() - before

    # After the commit of the last table nothing of the run is left that would need an engine, but what it says of itself.
    if (point, table) != ("after_commit", "bronze/visits"):
        _says_it_once(report, "EngineLost")
    _refuses_a_second_engine(report)
    assert took < SECONDS
    assert point == "after_commit" or not lakehouse.rows(table)

    platform.up()
    lakehouse.run(BRONZE).succeeded()
    dead = lakehouse.per_key("bronze/visits_dead_letter", "landing_hour")
    valid = lakehouse.per_key("bronze/visits", "landing_hour")
    (hour,) = [h for h in platform.truth.hours() if key_of(h) == KEYS[0]]
    assert valid[KEYS[0]] + dead[KEYS[0]] == platform.truth.hour(hour).lines


def test_while_files_are_being_written(platform: Platform, lakehouse: Lakehouse) -> None:
    server = platform.status("spark_connect").pid
    assert server is not None
    worker = lakehouse.start(SLOW, DEVICES, SCRATCH_BLOCK=lakehouse.folder)
    wait_for(lakehouse.folder / "writing")
    os.kill(server, signal.SIGKILL)
    before = time.monotonic()
    report = worker.end()
    took = time.monotonic() - before
    (lakehouse.folder / "release").touch()

    _says_it_once(report, "EngineLost")
    _refuses_a_second_engine(report)
    assert took < SECONDS
    assert not lakehouse.rows("scratch/slow"), "nothing of it is visible"

    platform.up()
    lakehouse.run(SLOW).succeeded()
    assert len(lakehouse.rows("scratch/slow")) == 20_000


@pytest.mark.pattern("merger")
def test_while_users_are_being_merged(platform: Platform, lakehouse: Lakehouse) -> None:
    """The engine dies inside of its MERGE: not before the statement, and not after the commit."""
    server = platform.status("spark_connect").pid
    assert server is not None
    lakehouse.run(CHANGES).succeeded()
    held = {"folder": str(lakehouse.folder), "me": "at_the_merge", "other": "merging", "table": "silver.users"}
    slow = {**USERS, "graph": "slow_users"}
    worker = lakehouse.start(slow, DEVICES, meet={"point": "before_commit", **held}, SCRATCH_BLOCK=lakehouse.folder)
    wait_for(lakehouse.folder / "at_the_merge")
    assert not (lakehouse.folder / "writing").exists()
    (lakehouse.folder / "merging").touch()
    wait_for(lakehouse.folder / "writing")
    os.kill(server, signal.SIGKILL)
    report = worker.end()
    (lakehouse.folder / "release").touch()

    _says_it_once(report, "EngineLost")
    _refuses_a_second_engine(report)
    assert not (lakehouse.root / "silver" / "users").exists() or not lakehouse.rows("silver/users")

    platform.up()
    for _ in range(2):  # and a run after it changes nothing
        lakehouse.run(USERS).succeeded()
        rows = {row[0]: row[1:] for row in platform.query("SELECT id, login, email, country FROM users")}
        current = [row for row in lakehouse.rows("silver/users") if row["is_current"]]
        assert {row["user_id"]: (row["login"], row["email"], row["country"]) for row in current} == rows
        assert len(current) == len(rows) > 0
