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

from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.faults]

DEVICES = {"assets": ["bronze/devices"]}
CHANGES, USERS = {"assets": ["bronze/users_changes"]}, {"assets": ["silver/users"]}
BRONZE: dict[str, Any] = {"assets": ["bronze/visits", "bronze/visits_dead_letter"], "first": KEYS[0], "last": KEYS[0]}
SLOW: dict[str, Any] = {"assets": ["scratch/slow"], "key": "a", "graph": "scratch_assets"}
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


@pytest.mark.pattern("change_data_capture")
def test_under_the_merge_of_users(soak_seed: int, platform: Platform, lakehouse: Lakehouse) -> None:
    """The changes that were under way arrive once with the next run, whether their merge was committed or not."""
    random = Random(soak_seed)  # noqa: S311 - a place, not a secret
    point = random.choice(("before_commit", "after_commit"))
    who = f"lost-{soak_seed}-{random.randrange(10**9)}"
    lakehouse.run(CHANGES, USERS).succeeded()
    with platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as users:
        users.execute(
            "INSERT INTO users VALUES (%s, 'before', %s, 'Peru', now(), clock_timestamp())", (who, f"{who}@example.org")
        )
        users.execute("UPDATE users SET login = 'after' WHERE id = %s", (who,))
    platform.wait_until_captured()
    lakehouse.run(CHANGES).succeeded()

    kill = {"point": point, "table": "silver.users", "pid": platform.status("spark_connect").pid}
    report = lakehouse.run(USERS, DEVICES, kill=kill)
    if point == "before_commit":
        _says_it_once(report, "EngineLost")
    _refuses_a_second_engine(report)

    platform.up()
    lakehouse.run(USERS).succeeded()
    versions = [(row["login"], row["is_current"]) for row in lakehouse.rows("silver/users") if row["user_id"] == who]
    assert sorted(versions) == [("after", True), ("before", False)]
