"""Run workers killed in the middle of a write over Spark Connect, and the same hours run again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from platform_world import KEYS, Lakehouse, Platform
from run_worker import wait_for
from waiting import PATIENCE

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("data_overwrite")]

BRONZE = ["bronze/visits", "bronze/visits_dead_letter"]
SILVER = ["silver/visits", "silver/visits_late"]
POINTS = {
    KEYS[0]: "before_commit:bronze.visits",  # its dead letters are committed already
    KEYS[1]: "after_commit:silver.visits",
}
SPARED = KEYS[2]
COLUMN = {"bronze/visits": "landing_hour", "bronze/visits_dead_letter": "landing_hour", "silver/visits": "event_hour"}


def hour(assets: list[str], first: str, last: str | None = None) -> dict[str, object]:
    return {"assets": assets, "first": first, "last": last or first}


@dataclass
class Lakes:
    """One lake in which nobody was disturbed, and one in which a worker was killed in each of two hours."""

    undisturbed: Lakehouse
    killed: Lakehouse
    seen: dict[str, dict[str, int]]
    """Per table: the rows per hour that a reader saw after the kills."""


@pytest.fixture(scope="module")
def lakes(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    fed_platform.up()
    calm = Lakehouse(fed_platform.services, tmp_path_factory.mktemp("calm"))
    lake = Lakehouse(fed_platform.services, tmp_path_factory.mktemp("killed"))
    undisturbed = calm.start(hour(BRONZE, KEYS[0], SPARED), hour(SILVER, KEYS[0], SPARED))
    lake.run(hour(BRONZE, SPARED), hour(SILVER, SPARED)).succeeded()
    undisturbed.end().succeeded()
    # One after the other: whether runs of different hours disturb each other is another test's question.
    for key, point in POINTS.items():
        report = lake.run(hour(BRONZE, key), hour(SILVER, key), DE_KILL_AT=point)
        assert report.status == -signal.SIGKILL, report.output[-3000:]
    seen = {table: lake.per_key(table, column) for table, column in COLUMN.items()}
    lake.run(hour(BRONZE, KEYS[0], KEYS[1]), hour(SILVER, KEYS[0], KEYS[1])).succeeded()
    return Lakes(calm, lake, seen)


def test_readers_saw_the_commits_and_nothing_else(lakes: Lakes) -> None:
    full = {table: lakes.undisturbed.per_key(table, column) for table, column in COLUMN.items()}
    committed = {
        "bronze/visits": KEYS[1:3],
        "bronze/visits_dead_letter": KEYS[:3],
        "silver/visits": [KEYS[1], SPARED],
    }
    for table, keys in committed.items():
        assert lakes.seen[table] == {key: full[table][key] for key in keys if key in full[table]}


@pytest.mark.pattern("dead_letter")
@pytest.mark.parametrize("table", [*BRONZE, *SILVER])
def test_run_again_the_rows_are_those_of_an_undisturbed_lake(lakes: Lakes, table: str) -> None:
    assert lakes.killed.multiset(table) == lakes.undisturbed.multiset(table)
    assert lakes.killed.multiset(table)


def test_a_killed_workers_write_goes_on_in_the_engine_and_never_harms(lakehouse: Lakehouse) -> None:
    """The server does not know that its client is dead: the write may land late, after the rerun of the partition."""
    other = {"assets": ["scratch/slow"], "key": "b"}
    lakehouse.run(other, graph="scratch_assets").succeeded()
    written_before = lakehouse.files("scratch/slow")
    worker = lakehouse.start({**other, "key": "a"}, graph="scratch_assets", SCRATCH_BLOCK=lakehouse.folder)
    wait_for(lakehouse.folder / "writing")
    _until(lambda: len(lakehouse.files("scratch/slow")) > len(written_before))
    worker.kill()
    orphans = lakehouse.files("scratch/slow") - written_before
    assert orphans, "the kill came after a file was written"
    assert {row["letter"] for row in lakehouse.rows("scratch/slow")} == {"b"}, "readers see the version before"

    lakehouse.run({**other, "key": "a"}, graph="scratch_assets").succeeded()
    rerun = lakehouse.multiset("scratch/slow")
    (lakehouse.folder / "release").touch()

    # Another run on the same engine gives the late write time to commit, if it could. It must not, at any time.
    lakehouse.run(other, graph="scratch_assets").succeeded()
    assert lakehouse.multiset("scratch/slow") == rerun
    assert rerun.total() == len(rerun) == 40_000
    assert not orphans & set(lakehouse.log("scratch/slow").files().column("path").to_pylist())


def _until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
