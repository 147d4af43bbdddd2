"""Run workers killed in the middle of a write over Spark Connect, and the same hours run again.

Before the first of them dies, the lake has what the simulator put in, hour by hour.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from deltalake import DeltaTable, write_deltalake
from other_reader import multiset
from platform_world import HOURS, KEYS, Lakehouse, Platform, Report, key_of
from run_worker import wait_for
from waiting import until

from de_assets.sources.simulator import Defect, Truth

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("data_overwrite")]

BRONZE = ["bronze/visits", "bronze/visits_dead_letter"]
SILVER = ["silver/visits", "silver/visits_late"]
POINTS = {
    KEYS[0]: (BRONZE, "before_commit:bronze.visits"),  # its dead letters are committed already
    KEYS[1]: (SILVER, "after_commit:silver.visits"),  # bronze has the hour
}
SPARED = KEYS[2]
COLUMN = {
    **dict.fromkeys((*BRONZE, "silver/visits_late"), "landing_hour"),
    "silver/visits": "event_hour",
}


def hour(assets: list[str], first: str, last: str | None = None) -> dict[str, object]:
    return {"assets": assets, "first": first, "last": last or first}


def per_hour(table: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return dict(Counter(key_of(row[COLUMN[table]]) for row in rows))


@dataclass
class Lakes:
    """A lake in which nobody was disturbed, and then a worker was killed in each of two hours."""

    truth: Truth
    """What was injected into the hours."""
    report: Report
    """What the runs said that filled the lake."""
    rows: dict[str, list[dict[str, Any]]]
    """Per table: the rows when nobody had been killed."""
    killed: Lakehouse
    seen: dict[str, list[dict[str, Any]]]
    """Per table: the rows that a reader saw after the kills."""

    def full(self, table: str) -> dict[str, int]:
        """How many rows there were per hour when nobody had been killed."""
        return per_hour(table, self.rows[table])

    def injected(self, *kinds: str) -> dict[str, int]:
        """Defects per hour, hours without one left out, as a count of rows leaves them out."""
        counts = {key_of(hour): self.truth.hour(hour).counts for hour in HOURS[:3]}
        return {key: n for key, count in counts.items() if (n := sum(count[kind] for kind in kinds))}


@pytest.fixture(scope="module")
def lakes(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    fed_platform.up()
    lake = Lakehouse(fed_platform.services, tmp_path_factory.mktemp("killed"))
    filled = lake.run(hour(BRONZE, KEYS[0], SPARED), hour(SILVER, KEYS[0], SPARED)).succeeded()
    undisturbed = {table: lake.rows(table) for table in (*BRONZE, *SILVER)}
    for table, column in COLUMN.items():  # what comes from the hours at which a worker dies is there no longer
        rows, first = DeltaTable(str(lake.root / table)).to_pyarrow_table(), HOURS[1 if table in BRONZE else 2]
        write_deltalake(str(lake.root / table), rows.filter(pa.compute.field(column) >= first), mode="overwrite")
        assert lake.per_key(table, column).keys() <= {key_of(first), SPARED}
    # One after the other: whether runs of different hours disturb each other is another test's question.
    for key, (assets, point) in POINTS.items():
        report = lake.run(hour(assets, key), DE_KILL_AT=point)
        assert report.status == -signal.SIGKILL, report.output[-3000:]
    seen = {table: lake.rows(table) for table in (*BRONZE, *SILVER)}
    lake.run(hour(BRONZE, KEYS[0]), hour(SILVER, KEYS[0], KEYS[1])).succeeded()
    return Lakes(fed_platform.truth, filled, undisturbed, lake, seen)


def test_readers_saw_the_commits_and_nothing_else(lakes: Lakes) -> None:
    committed = {
        "bronze/visits": KEYS[1:3],
        "bronze/visits_dead_letter": KEYS[:3],
        "silver/visits": [KEYS[1], SPARED],
    }
    for table, keys in committed.items():
        full = lakes.full(table)
        assert per_hour(table, lakes.seen[table]) == {key: full[key] for key in keys if key in full}


def test_an_hour_in_a_run_of_its_own_has_the_rows_that_it_has_in_a_range(lakes: Lakes) -> None:
    """Of silver, who died after that commit; bronze's hour was run again alone, and is compared below."""
    alone, ranged = (
        multiset(row for row in rows["silver/visits"] if row["event_hour"] == HOURS[1])
        for rows in (lakes.seen, lakes.rows)
    )
    assert alone == ranged
    assert alone


@pytest.mark.pattern("dead_letter")
@pytest.mark.parametrize("table", [*BRONZE, *SILVER])
def test_run_again_the_rows_are_those_of_an_undisturbed_lake(lakes: Lakes, table: str) -> None:
    assert lakes.killed.multiset(table) == multiset(lakes.rows[table])
    assert lakes.rows[table]


@pytest.mark.pattern("dead_letter", "incremental_loader")
def test_every_landed_line_is_in_one_of_two_tables_and_every_defect_is_found(lakes: Lakes) -> None:
    dead, valid = lakes.full("bronze/visits_dead_letter"), lakes.full("bronze/visits")
    assert dead == lakes.injected(Defect.MALFORMED, Defect.MISSING)
    lines = {key_of(each): lakes.truth.hour(each).lines for each in HOURS[:3]}
    assert {key: valid[key] + dead.get(key, 0) for key in KEYS[:3]} == lines


@pytest.mark.pattern("windowed_deduplicator")
def test_exactly_the_copies_are_removed(lakes: Lakes) -> None:
    landed, valid, late = map(lakes.full, ("bronze/visits", *SILVER))
    removed = {key: landed[key] - valid[key] - late.get(key, 0) for key in KEYS[:3]}
    assert {key: n for key, n in removed.items() if n} == lakes.injected(Defect.DUPLICATE)
    ids = [row["visit_id"] for table in SILVER for row in lakes.rows[table]]
    assert len(ids) == len(set(ids))


@pytest.mark.pattern("late_data_detector")
def test_exactly_the_late_and_the_future_ones_are_set_apart(lakes: Lakes) -> None:
    assert lakes.full("silver/visits_late") == lakes.injected(Defect.LATE, Defect.FUTURE)
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for row in lakes.rows["silver/visits_late"]:
        found[row["lateness_seconds"] > 0].add(row["visit_id"])
    late, future = (set(lakes.truth.ids(kind, HOURS[:3])) for kind in (Defect.LATE, Defect.FUTURE))
    assert found == {True: late, False: future}
    assert late
    assert future


@pytest.mark.parametrize(("table", "run"), [("bronze/visits", 0), ("silver/visits", 1)])
def test_the_rows_per_partition_that_a_range_run_reports_are_the_rows_there_are(
    lakes: Lakes, table: str, run: int
) -> None:
    assert {m["partition"]: m["rows"] for m in lakes.report.materialised(table, run)} == lakes.full(table)


def test_a_killed_workers_write_goes_on_in_the_engine_and_never_harms(lakehouse: Lakehouse) -> None:
    """The server does not know that its client is dead: the write may land late, after the rerun of the partition."""
    other = {"assets": ["scratch/slow"], "key": "b"}
    there = pa.table({"id": range(20_000), "letter": ["b"] * 20_000})
    write_deltalake(str(lakehouse.root / "scratch" / "slow"), there, partition_by=["letter"])
    written_before = lakehouse.files("scratch/slow")
    worker = lakehouse.start({**other, "key": "a"}, graph="scratch_assets", SCRATCH_BLOCK=lakehouse.folder)
    wait_for(lakehouse.folder / "writing")
    until(lambda: len(lakehouse.files("scratch/slow")) > len(written_before))
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
