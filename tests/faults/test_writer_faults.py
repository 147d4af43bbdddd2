"""Writers that are killed, that meet each other, and that run out of space: the same rows as an undisturbed run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from writer_process import DEADLINE, materialise, wait_for

from de_resources.delta.crash_points import POINTS as ALL_POINTS
from de_resources.delta.crash_points import at
from de_resources.delta.log import TableLog
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.faults, pytest.mark.pattern("data_overwrite")]

WORKER = Path(__file__).with_name("writer_process.py")
# A plain table has no versions to switch between.
POINTS = tuple(point for point in ALL_POINTS if point != "before_switch")
MODES = ("overwrite", "append", "merge")
SEED, NEW = [1, 2], [2, 3, 4]
AFTER = {"overwrite": NEW, "append": SEED + NEW, "merge": [1, 2, 3, 4]}


@dataclass
class Worker:
    """A worker as the leader of its own process group, so that nothing of it outlives the test."""

    process: subprocess.Popen[str]
    output: IO[str]

    @classmethod
    def start(cls, work: dict[str, Any], **environment: str) -> Worker:
        # A file and not a pipe: the JVM holds the pipe's other end for a while after a kill.
        output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(work)],
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return cls(process, output)

    def end(self) -> str:
        """Wait for the worker, then kill what is left of its group (its JVM). Everything that it printed."""
        try:
            self.process.wait(timeout=DEADLINE)
        finally:
            self.kill()
        self.output.seek(0)
        return self.output.read()

    def kill(self) -> None:
        """Kill -9 of the worker and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)


def log_of(root: Path, name: str) -> TableLog:
    log = TableLog.open(str(root / "silver" / name))
    assert log is not None
    return log


def live(root: Path, name: str, engine: SparkEngine) -> list[int]:
    """The ids that a reader sees."""
    frame = engine.spark_session.read.format("delta").load(str(root / "silver" / name))
    return sorted(r.id for r in frame.collect())


def orphans(root: Path, name: str) -> set[str]:
    """Data files on the disk that no reader sees."""
    folder = root / "silver" / name
    seen = set(log_of(root, name).files().column("path").to_pylist())
    return {str(p.relative_to(folder)) for p in folder.rglob("*.parquet") if "_delta_log" not in p.parts} - seen


class TestKilled:
    """`kill -9` at every crash point of every writer, all workers at once."""

    @pytest.fixture(scope="class")
    def killed(self, engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
        """One lake per crash point in which a worker was killed while it wrote; `writing` is a kill between files."""
        lakes = {point: tmp_path_factory.mktemp(point) for point in (*POINTS, "writing")}
        workers = {}
        for point, lake in lakes.items():
            # Each writer meets its end at the same point: the table's name selects it.
            mode = MODES[list(lakes).index(point) % 3]
            materialise(engine, lake, name=mode, rows=SEED, key="a", mode="overwrite" if mode == "append" else mode)
            materialise(engine, lake, name=mode, rows=[9], key="b", mode="append")
            step: dict[str, Any] = {"name": mode, "rows": NEW, "key": "a", "mode": mode}
            if point == "writing":
                step |= {"rows": 20_000, "block": str(lake)}
            workers[point] = Worker.start(
                {"root": str(lake), "steps": [step]}, **({} if point == "writing" else {"DE_KILL_AT": point})
            )
        try:
            writing = lakes["writing"]
            wait_for(writing / "writing")
            deadline = time.monotonic() + DEADLINE
            while not orphans(writing, self.mode(lakes, "writing")) and time.monotonic() < deadline:
                time.sleep(0.05)
            workers["writing"].kill()
            (writing / "release").touch()
            for point in POINTS:
                output = workers[point].end()
                assert workers[point].process.returncode == -signal.SIGKILL, output[-2000:]
            yield lakes
        finally:
            for worker in workers.values():
                worker.kill()
                worker.output.close()

    @staticmethod
    def mode(lakes: dict[str, Path], point: str) -> str:
        return MODES[list(lakes).index(point) % 3]

    @pytest.mark.pattern("merger")
    @pytest.mark.parametrize("point", POINTS)
    def test_at_a_crash_point_and_run_again(self, killed: dict[str, Path], engine: SparkEngine, point: str) -> None:
        lake, mode = killed[point], self.mode(killed, point)
        committed = point in ("after_commit", "recorded")
        assert live(lake, mode, engine) == sorted([*(AFTER[mode] if committed else SEED), 9])
        if mode == "append" and committed:
            return  # a new run appends again: repeating is what an append promises
        materialise(engine, lake, name=mode, rows=NEW, key="a", mode=mode)
        assert live(lake, mode, engine) == sorted([*AFTER[mode], 9])

    def test_while_files_are_being_written_and_run_again(self, killed: dict[str, Path], engine: SparkEngine) -> None:
        lake, mode = killed["writing"], self.mode(killed, "writing")
        assert live(lake, mode, engine) == sorted([*SEED, 9]), "readers see the version before"
        left = orphans(lake, mode)
        assert left, "the kill came after a file was written"
        removable = log_of(lake, mode).table.vacuum(
            retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True
        )
        assert left <= {p.removeprefix("/") for p in removable}
        materialise(engine, lake, name=mode, rows=NEW, key="a", mode=mode)
        assert live(lake, mode, engine) == sorted([*AFTER[mode], 9])
        assert left <= orphans(lake, mode), "no reader ever sees them"


class TestTwoProcesses:
    APPENDS = 8

    @pytest.fixture(scope="class")
    def lake(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Both workers go through the same steps and start each of them together."""
        lake, meeting = tmp_path_factory.mktemp("lake"), tmp_path_factory.mktemp("meeting")
        plans = {
            "x": {"apart": ("a", [1, 2]), "same": ("a", [1, 2, 3]), "events": (None, [100])},
            "y": {"apart": ("b", [3, 4]), "same": ("a", [7, 8]), "events": (None, [200])},
        }
        workers = []
        for me, other in ("xy", "yx"):
            steps = [
                {
                    "name": name,
                    "rows": rows,
                    "key": key,
                    "mode": "append" if name == "events" else "overwrite",
                    "repeat": self.APPENDS if name == "events" else 1,
                }
                for name, (key, rows) in plans[me].items()
            ]
            work = {"root": str(lake), "meeting": str(meeting), "me": me, "other": other, "steps": steps}
            workers.append(Worker.start(work))
        for worker in workers:
            output = worker.end()
            assert worker.process.returncode == 0, output[-3000:]
        return lake

    def test_different_partitions_both_land(self, lake: Path, engine: SparkEngine) -> None:
        assert live(lake, "apart", engine) == [1, 2, 3, 4]

    def test_the_same_partition_has_the_rows_of_one(self, lake: Path, engine: SparkEngine) -> None:
        assert live(lake, "same", engine) in ([1, 2, 3], [7, 8])
        stamps = [c.stamp["run"] for c in log_of(lake, "same").commits(10) if c.stamp]
        assert len(set(stamps)) == 2, "both committed, one after the other"

    def test_no_append_is_lost(self, lake: Path, engine: SparkEngine) -> None:
        expected = sorted([*range(100, 100 + self.APPENDS), *range(200, 200 + self.APPENDS)])
        assert live(lake, "events", engine) == expected
        assert log_of(lake, "events").version == 2 * self.APPENDS


def test_no_space_left_names_the_table_commits_nothing_and_the_next_run_is_clean(
    engine: SparkEngine, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the full disk: it needs no privilege, and fails at the same call."""
    materialise(engine, tmp_path, name="orders", rows=SEED, key="a")
    before = log_of(tmp_path, "orders").version
    somebodys = tmp_path / "silver" / "orders" / "k=a" / "part-of-an-earlier-write.parquet"
    somebodys.write_bytes(b"x" * 5000)
    step = {"name": "orders", "rows": 2_000_000, "key": "a"}
    worker = Worker.start({"root": str(tmp_path), "steps": [step], "file_limit": 2_000_000})
    output = worker.end()
    assert worker.process.returncode not in (0, -signal.SIGKILL)
    assert "File too large" in output
    assert "There is no room to write `silver.orders`" in output
    assert re.search(r"1\.9 MiB that this attempt had written were removed", output), output[-2000:]
    assert orphans(tmp_path, "orders") == {str(somebodys.relative_to(tmp_path / "silver" / "orders"))}
    assert log_of(tmp_path, "orders").version == before
    assert live(tmp_path, "orders", engine) == SEED
    materialise(engine, tmp_path, name="orders", rows=NEW, key="a")
    assert live(tmp_path, "orders", engine) == NEW


def test_a_foreign_engine_in_between_does_not_lose_the_rows_of_other_partitions(
    engine: SparkEngine, tmp_path: Path
) -> None:
    """Another partition's commit lands while this one is about to commit: Delta sees that they do not meet."""
    materialise(engine, tmp_path, name="orders", rows=[1], key="a")
    table = f"delta.`{tmp_path}/silver/orders`"

    def interfere(_: str) -> None:
        engine.spark_session.sql(f"INSERT INTO {table} VALUES (5, 'b')")

    with at("before_commit", interfere):
        materialise(engine, tmp_path, name="orders", rows=[2], key="a")
    assert live(tmp_path, "orders", engine) == [2, 5]
