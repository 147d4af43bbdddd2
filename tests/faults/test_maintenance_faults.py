"""Compaction and vacuum beside writers and readers, held at named points: nobody fails, and no row changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
import writer_process
from deltalake import DeltaTable, write_deltalake
from pyspark import cloudpickle
from waiting import PATIENCE
from writer_process import materialise, wait_for

from de_resources.delta.log.retention import OVERRIDE
from de_resources.delta.maintenance import compact, maintain, vacuum
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.lock import TableBusy, commit_lock
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.faults, pytest.mark.pattern("compactor")]

DEADLINE = PATIENCE


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """`silver/events`: two partitions of two files each."""
    for number, key in ((1, "a"), (2, "a"), (7, "b"), (8, "b")):
        rows = pa.table({"id": [number], "k": [key]})
        write_deltalake(str(tmp_path / "silver" / "events"), rows, partition_by=["k"], mode="append")
    return tmp_path


@pytest.fixture
def released() -> threading.Event:
    """Whoever is held at a point goes on when this is set."""
    return threading.Event()


@pytest.fixture
def beside(released: threading.Event, tmp_path: Path) -> Iterator[ThreadPoolExecutor]:
    """Threads for what happens at the same time. Nothing stays held when a test fails."""
    with ThreadPoolExecutor() as pool:
        yield pool
        released.set()
        (tmp_path / "release").touch()


def table_of(lake: Path) -> Table:
    return Table("silver.events", str(lake / "silver" / "events"), partitioned_by=("k",))


def stamp() -> CommitInfo:
    return CommitInfo("silver.events", "maintenance", "all", "run", "run", uuid4().hex)


def live(lake: Path) -> list[tuple[int, str]]:
    rows = DeltaTable(str(lake / "silver" / "events")).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["k"]) for row in rows)


def files(lake: Path) -> int:
    return len(DeltaTable(str(lake / "silver" / "events")).file_uris())


def waiting_at(point: str, *, reached: threading.Event, released: threading.Event) -> Callable[[str], None]:
    """At the point, say so and wait to be released; whoever comes there later passes."""

    def action(_: str) -> None:
        if not reached.is_set():
            reached.set()
            assert released.wait(DEADLINE), f"nobody released {point}"

    return action


@pytest.mark.parametrize("mode", ["overwrite", "merge"])
def test_a_writer_that_is_about_to_commit_is_not_overtaken(
    engine: SparkEngine, lake: Path, beside: ThreadPoolExecutor, released: threading.Event, mode: str
) -> None:
    """The writer has read the files that compaction would replace. Compaction waits, or leaves the table alone."""
    reached = threading.Event()
    with at("before_commit", waiting_at("before_commit", reached=reached, released=released)):
        writer = beside.submit(materialise, engine, lake, name="events", rows=[3], key="a", mode=mode)
        assert reached.wait(DEADLINE)
        with pytest.raises(TableBusy, match=r"silver\.events"):
            compact(engine.spark_session, table_of(lake), stamp(), lock_seconds=0)
        patient = beside.submit(compact, engine.spark_session, table_of(lake), stamp(), lock_seconds=DEADLINE)
        released.set()
        assert writer.result(DEADLINE).success
        assert patient.result(DEADLINE) is not None
    expected = {
        "overwrite": [(3, "a"), (7, "b"), (8, "b")],
        "merge": [(1, "a"), (2, "a"), (3, "a"), (7, "b"), (8, "b")],
    }
    assert live(lake) == expected[mode]
    assert files(lake) == 2


def test_a_writer_that_comes_during_compaction_waits_and_succeeds(
    engine: SparkEngine, lake: Path, beside: ThreadPoolExecutor, released: threading.Event
) -> None:
    reached, asked = threading.Event(), threading.Event()
    before = live(lake)
    with at("before_commit", waiting_at("before_commit", reached=reached, released=released)):
        compaction = beside.submit(compact, engine.spark_session, table_of(lake), stamp())
        assert reached.wait(DEADLINE)
        table = table_of(lake)
        with pytest.raises(TableBusy), commit_lock(table.uri, table=table.name, shared=True, timeout=0):
            pytest.fail("a writer would not have to wait")

        def write() -> bool:
            asked.set()
            return materialise(engine, lake, name="events", rows=[3], key="a", mode="overwrite").success

        writer: Future[bool] = beside.submit(write)
        assert asked.wait(DEADLINE)
        assert live(lake) == before
        released.set()
        commit = compaction.result(DEADLINE)
        assert writer.result(DEADLINE)
    assert commit is not None
    assert live(lake) == [(3, "a"), (7, "b"), (8, "b")]
    # The writer's commit is after the compaction's: it was made to wait, and it did not fail.
    assert DeltaTable(str(lake / "silver" / "events")).version() == commit.version + 1


def test_readers_before_during_and_after_see_the_same_rows(engine: SparkEngine, lake: Path) -> None:
    before, seen = live(lake), []
    with at("before_commit", lambda _: seen.append(live(lake))), at("after_commit", lambda _: seen.append(live(lake))):
        report = maintain(
            engine.spark_session, table_of(lake), stamp(), retention=timedelta(), override=OVERRIDE, query_runs=0
        )
    assert report.compacted is not None
    # Twice for the compaction, twice for the vacuum.
    assert seen == [before] * 4
    assert live(lake) == before


def test_vacuum_waits_for_a_write_whose_files_nobody_refers_to_yet(
    engine: SparkEngine, lake: Path, beside: ThreadPoolExecutor
) -> None:
    """With a retention of nothing, the files of a running write are exactly what a careless vacuum would eat."""
    # The engine's Python workers cannot import a test's module.
    cloudpickle.register_pickle_by_value(writer_process)
    stored = set((lake / "silver" / "events").rglob("*.parquet"))
    writer = beside.submit(
        materialise, engine, lake, name="events", rows=20_000, key="a", mode="append", block=str(lake)
    )
    wait_for(lake / "writing", DEADLINE)
    _wait_for_a_new_file(lake, stored)
    with pytest.raises(TableBusy):
        vacuum(engine.spark_session, table_of(lake), stamp(), retention=timedelta(), lock_seconds=0)
    patient = beside.submit(
        vacuum, engine.spark_session, table_of(lake), stamp(), retention=timedelta(), lock_seconds=DEADLINE
    )
    (lake / "release").touch()
    assert writer.result(DEADLINE).success
    patient.result(DEADLINE)
    assert len(live(lake)) == 20_004


def _wait_for_a_new_file(lake: Path, known: set[Path]) -> None:
    """Until the write that is blocked has put down its first file."""
    deadline = time.monotonic() + DEADLINE
    while not set((lake / "silver" / "events").rglob("*.parquet")) - known:
        if time.monotonic() > deadline:
            pytest.fail("the blocked write stored no file")
        time.sleep(0.02)
