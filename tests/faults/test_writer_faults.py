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
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from migration_walk import CHANGES, Walk
from other_reader import rows_of
from processes import OWN_PROJECT
from waiting import PATIENCE
from writer_process import DEADLINE, follow, materialise, wait_for

from de_resources.delta.log import TableLog
from de_resources.delta.table import Table
from de_resources.delta.write import full_disk
from de_resources.delta.write.crash_points import POINTS as ALL_POINTS
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.lock import commit_lock
from de_resources.migrations.progress import Phase
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.faults

WORKER = Path(__file__).with_name("writer_process.py")
# A plain table has no versions to switch between.
SWITCHES = ("before_switch", "after_switch")
POINTS = tuple(point for point in ALL_POINTS if point not in SWITCHES)
MODES = ("append", "overwrite", "merge", "overwrite")
"""Who dies at each of them."""
WRITER = "de_resources.delta.publish:AuditedPublish"
OBSERVED = {"before_commit": "de_resources.observers.online:OnlineObserver"}
"""Who is observed there meanwhile: the writes of others are their own."""
SEED, NEW = [1, 2], [2, 3, 4]
AFTER = {"overwrite": NEW, "append": SEED + NEW, "merge": [1, 2, 3, 4]}


@dataclass
class Worker:
    """A process with an engine of its own, as the leader of its process group, so that nothing of it outlives the tests.

    What it is told is done by a fork of it, one after the other: a fork dies alone, and the engine is there for the next one.
    """

    process: subprocess.Popen[str]
    output: IO[str]
    answers: Path

    @classmethod
    def start(cls, answers: Path) -> Worker:
        # A file and not a pipe: the JVM holds the pipe's other end for a while after a kill.
        output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            env={**os.environ, **OWN_PROJECT},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return cls(process, output, answers)

    def begin(self, work: dict[str, Any], **environment: str) -> Path:
        """Tell it to do something; where the answer will be."""
        answer = self.answers / str(uuid4())
        assert self.process.stdin
        print(
            json.dumps(work | {"answer": str(answer), "environment": environment}), file=self.process.stdin, flush=True
        )
        return answer

    def status(self, answer: Path) -> int:
        """How the fork ended that did it; negative: the signal."""
        deadline = time.monotonic() + DEADLINE
        while not answer.exists():
            assert self.process.poll() is None, self.told()[-3000:]
            assert time.monotonic() < deadline, self.told()[-3000:]
            time.sleep(0.02)
        return int(answer.read_text())

    def do(self, work: dict[str, Any], **environment: str) -> int:
        """Both."""
        return self.status(self.begin(work, **environment))

    def told(self) -> str:
        """Everything that was printed."""
        self.output.seek(0)
        return self.output.read()

    def kill_fork(self) -> None:
        """Kill -9 of the fork that works; its engine, which is that of the worker, goes on with what it was told."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (fork,) = [c for c in children if WORKER.name in Path(f"/proc/{c}/cmdline").read_text()]
        os.kill(int(fork), signal.SIGKILL)

    def kill(self) -> None:
        """Kill -9 of the worker, its fork and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=PATIENCE)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Its last step is to be killed with its engine."""
    worker = Worker.start(tmp_path_factory.mktemp("answers"))
    yield worker
    worker.kill()
    worker.output.close()


def there(root: Path, name: str, **partitions: list[int]) -> None:
    """A table with these rows in its partitions, made without an engine: who was there before is not asked."""
    rows = [(id_, key) for key, ids in partitions.items() for id_ in ids]
    columns = {"id": pa.array([id_ for id_, _ in rows], pa.int64()), "k": [key for _, key in rows]}
    write_deltalake(str(root / "silver" / name), pa.table(columns), partition_by=["k"])


def log_of(root: Path, name: str) -> TableLog:
    log = TableLog.open(str(root / "silver" / name))
    assert log is not None
    return log


def live(root: Path, name: str) -> list[int]:
    """The ids that a reader sees."""
    return sorted(id_ for id_, *_ in rows_of(root / "silver" / name))


def orphans(root: Path, name: str) -> set[str]:
    """Data files on the disk that no reader sees."""
    folder = root / "silver" / name
    seen = set(log_of(root, name).files().column("path").to_pylist())
    return {str(p.relative_to(folder)) for p in folder.rglob("*.parquet") if "_delta_log" not in p.parts} - seen


@pytest.mark.pattern("data_overwrite")
class TestTwoProcesses:
    """The worker and this process, each with an engine, go through the same steps and start each of them together."""

    APPENDS = 2

    def together(
        self, worker: Worker, engine: SparkEngine, lake: Path, **steps: dict[str, tuple[str | None, Any]]
    ) -> None:
        """What each of the two writes, by the table: its partition, and its rows."""
        meeting = lake / "meeting"
        meeting.mkdir()
        works = [
            {
                "root": str(lake),
                "meeting": str(meeting),
                "me": me,
                "other": other,
                "steps": [
                    {
                        "name": name,
                        "rows": rows[me][1],
                        "key": rows[me][0],
                        "mode": "append" if name == "events" else "overwrite",
                        "repeat": self.APPENDS if name == "events" else 1,
                    }
                    for name, rows in steps.items()
                ],
            }
            for me, other in ("xy", "yx")
        ]
        answer = worker.begin(works[0])
        follow(engine, works[1])
        assert worker.status(answer) == 0, worker.told()[-3000:]

    def test_different_partitions_both_land(self, worker: Worker, engine: SparkEngine, tmp_path: Path) -> None:
        self.together(worker, engine, tmp_path, apart={"x": ("a", [1, 2]), "y": ("b", [3, 4])})
        assert live(tmp_path, "apart") == [1, 2, 3, 4]

    def test_the_same_partition_has_the_rows_of_one(self, worker: Worker, engine: SparkEngine, tmp_path: Path) -> None:
        self.together(worker, engine, tmp_path, same={"x": ("a", [1, 2, 3]), "y": ("a", [7, 8])})
        assert live(tmp_path, "same") in ([1, 2, 3], [7, 8])
        stamps = [c.stamp["run"] for c in log_of(tmp_path, "same").commits(10) if c.stamp]
        assert len(set(stamps)) == 2, "both committed, one after the other"

    def test_no_append_is_lost(self, worker: Worker, engine: SparkEngine, tmp_path: Path) -> None:
        self.together(worker, engine, tmp_path, events={"x": (None, [100]), "y": (None, [200])})
        expected = sorted([*range(100, 100 + self.APPENDS), *range(200, 200 + self.APPENDS)])
        assert live(tmp_path, "events") == expected
        assert log_of(tmp_path, "events").version == 2 * self.APPENDS - 1


@pytest.mark.pattern("audit_write_audit_publish")
@pytest.mark.parametrize(("point", "seen"), zip(SWITCHES, (SEED, NEW), strict=True))
def test_killed_around_a_publication_readers_see_one_of_the_two_and_the_rerun_publishes(
    worker: Worker, engine: SparkEngine, tmp_path: Path, point: str, seen: list[int]
) -> None:
    audited = {"name": "audited", "key": "a", "writer": WRITER, "audits": "writer_process:AUDITS"}
    materialise(engine, tmp_path, rows=SEED, **audited)
    work = {"root": str(tmp_path), "steps": [{**audited, "rows": NEW}]}
    assert worker.do(work, DE_KILL_AT=f"{point}:silver.audited") == -signal.SIGKILL, worker.told()[-3000:]
    assert live(tmp_path, "audited") == seen
    materialise(engine, tmp_path, rows=NEW, **audited)
    assert live(tmp_path, "audited") == NEW


# How far a migration is, the steps after that of which the last one dies, and where; what is then stored, and by which step a
# person goes on.
HALF_WAY = {
    "columns added, the phase not said": (Phase.NOT_STARTED, ["expand"], "before_switch", "both", "expand"),
    "one partition of two filled": (Phase.EXPANDED, ["migrate"], "after_commit", "both", "migrate"),
    "names mapped, no column dropped": (Phase.MIGRATED, ["contract"], "before_commit", "both", "contract"),
    "column dropped, names still mapped": (Phase.MIGRATED, ["contract"], "after_commit", "new", "contract"),
    "phase taken back, no column added": (
        Phase.MIGRATED,
        ["contract", "rollback"],
        "before_switch",
        "new",
        "rollback",
    ),
    "old column added and still empty": (
        Phase.MIGRATED,
        ["contract", "rollback"],
        "after_switch",
        "both",
        "migrate",
    ),
    "new column dropped, names still mapped": (Phase.EXPANDED, ["rollback"], "after_commit", "old", "rollback"),
}


@pytest.mark.pattern("schema_migrator")
@pytest.mark.parametrize(("phase", "steps", "point", "stored", "again"), HALF_WAY.values(), ids=HALF_WAY)
def test_a_step_of_a_migration_killed_half_way_harms_nobody_and_is_taken_again(
    worker: Worker,
    engine: SparkEngine,
    tmp_path: Path,
    phase: Phase,
    steps: list[str],
    point: str,
    stored: str,
    again: str,
) -> None:
    walk = Walk(engine.spark_session, tmp_path, CHANGES["retype"])
    walk.begin_with(2, phase)
    *done, dying = steps
    for step in done:
        walk.take(step)
    _die_half_way(worker, walk, dying, point)
    _use(walk, stored)
    walk.take(again)
    if again == "expand":
        walk.take("migrate")
    walk.compare_stored()
    assert not _maps_names(walk)


@pytest.mark.pattern("schema_migrator")
def test_columns_become_a_struct_and_come_back_though_the_step_that_drops_them_dies(
    worker: Worker, engine: SparkEngine, tmp_path: Path
) -> None:
    """Of two days each has rows of one side only once: before the columns are filled, or when they come back."""
    walk = Walk(engine.spark_session, tmp_path, CHANGES["nest"])
    walk.begin_with(1)
    walk.take("expand")
    walk.write("new")
    walk.take("migrate")
    _die_half_way(worker, walk, "contract", "after_commit")
    _use(walk, "new")
    walk.take("contract")
    walk.compare_stored()
    assert not _maps_names(walk)
    walk.take("rollback")
    walk.compare_stored()


def _die_half_way(worker: Worker, walk: Walk, step: str, point: str) -> None:
    kind = next(kind for kind, change in CHANGES.items() if change is walk.change)
    work = {"root": str(walk.folder), "migrate": [kind, step]}
    assert worker.do(work, DE_KILL_AT=point) == -signal.SIGKILL, worker.told()[-3000:]


def _use(walk: Walk, stored: str) -> None:
    """Who knows either side writes a row in the table as it was left, which stores so much, and reads every row."""
    old, new = walk.migration.old_names, walk.migration.new_names
    walk.stored = {"old": old, "both": (*old, *new), "new": new}[stored]
    for side in ("old", "new"):
        walk.write(side)
    walk.compare_sides()


def _maps_names(walk: Walk) -> bool:
    return walk.table.properties_now().get("delta.columnMapping.mode", "none") != "none"


@pytest.mark.pattern("data_overwrite")
def test_no_space_left_names_the_table_commits_nothing_and_the_next_run_is_clean(
    worker: Worker, engine: SparkEngine, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the full disk: it needs no privilege, and fails at the same call."""
    # By the worker, whose engine unpacks the libraries that it needs: a limit at which that fails would prove nothing.
    assert worker.do({"root": str(tmp_path), "steps": [{"name": "orders", "rows": SEED, "key": "a"}]}) == 0, (
        worker.told()
    )
    before = log_of(tmp_path, "orders").version
    somebodys = tmp_path / "silver" / "orders" / "k=a" / "part-of-an-earlier-write.parquet"
    somebodys.write_bytes(b"x" * 5000)
    step = {"name": "orders", "rows": 400_000, "key": "a"}
    assert worker.do({"root": str(tmp_path), "steps": [step], "file_limit": 400_000}) == 1
    output = worker.told()
    assert "File too large" in output
    assert "There is no room to write `silver.orders`" in output
    assert re.search(r"390\.6 KiB that this attempt had written were removed", output), output[-2000:]
    told = re.search(
        r"In (\S+) lie (.+?) that readers see and (.+?) of earlier versions and failed writes; its disk has .+ free",
        output,
    )
    assert told, output[-2000:]
    folder = tmp_path / "silver" / "orders"
    seen = sum((folder / path).stat().st_size for path in log_of(tmp_path, "orders").files().column("path").to_pylist())
    assert told.groups() == (str(folder), full_disk._size(seen), full_disk._size(5000)), (
        "what it was, and what lay there"
    )
    assert orphans(tmp_path, "orders") == {str(somebodys.relative_to(tmp_path / "silver" / "orders"))}
    assert log_of(tmp_path, "orders").version == before
    assert live(tmp_path, "orders") == SEED
    materialise(engine, tmp_path, name="orders", rows=NEW, key="a")
    assert live(tmp_path, "orders") == NEW


@pytest.mark.pattern("data_overwrite")
def test_no_space_left_for_a_first_write_leaves_nothing_behind(
    worker: Worker, engine: SparkEngine, tmp_path: Path
) -> None:
    step = {"name": "begun", "rows": 400_000, "key": "a"}
    assert worker.do({"root": str(tmp_path), "steps": [step], "file_limit": 400_000}) == 1
    folder = tmp_path / "silver" / "begun"
    assert re.search(rf"390\.6 KiB .+ were removed. In {re.escape(str(folder))} lie 0 bytes that", worker.told())
    assert not list(folder.rglob("*.parquet"))
    materialise(engine, tmp_path, name="begun", rows=NEW, key="a")
    assert live(tmp_path, "begun") == NEW


@pytest.mark.pattern("data_overwrite")
def test_beside_another_writer_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is younger than the failed attempt may be what the other one is about to commit."""
    uri = tmp_path / "silver" / "orders"
    write_deltalake(str(uri), pa.table({"id": [1]}))
    theirs = uri / "part-of-the-other-writer.parquet"
    theirs.write_bytes(b"x" * 100)
    monkeypatch.setattr(full_disk, "_PATIENCE", 0.1)

    def failed() -> full_disk.DiskFull:
        found = full_disk.disk_full(OSError("No space left on device"), Table("silver.orders", str(uri)), since=0)
        assert found is not None
        return found

    with commit_lock(str(uri), table="silver.orders", shared=True):
        beside = failed()
    assert (beside.room.removed, beside.room.other, theirs.exists()) == (0, 100, True)
    assert "0 bytes that this attempt had written were removed" in str(beside)
    alone = failed()
    assert (alone.room.removed, alone.room.other, theirs.exists()) == (100, 0, False)


@pytest.mark.pattern("data_overwrite")
def test_a_foreign_engine_in_between_does_not_lose_the_rows_of_other_partitions(
    engine: SparkEngine, tmp_path: Path
) -> None:
    """Another partition's commit lands while this one is about to commit: Delta sees that they do not meet."""
    there(tmp_path, "orders", a=[1])
    table = f"delta.`{tmp_path}/silver/orders`"

    def interfere(_: str) -> None:
        engine.spark_session.sql(f"INSERT INTO {table} VALUES (5, 'b')")

    with at("before_commit", interfere):
        materialise(engine, tmp_path, name="orders", rows=[2], key="a")
    assert live(tmp_path, "orders") == [2, 5]


@pytest.mark.pattern("data_overwrite")
class TestKilled:
    """`kill -9` at every crash point; between them each kind of writer meets its end."""

    @pytest.mark.pattern("merger")
    @pytest.mark.parametrize(("point", "mode"), zip(POINTS, MODES, strict=True))
    def test_at_a_crash_point_and_run_again(
        self, point: str, mode: str, worker: Worker, engine: SparkEngine, tmp_path: Path
    ) -> None:
        there(tmp_path, mode, a=SEED, b=[9])
        writer = {"writer": OBSERVED[point]} if point in OBSERVED else {}
        step = {"name": mode, "rows": NEW, "key": "a", "mode": mode, **writer}
        ended = worker.do({"root": str(tmp_path), "steps": [step]}, DE_KILL_AT=point)
        assert ended == -signal.SIGKILL, worker.told()[-2000:]
        committed = point in ("after_commit", "recorded")
        assert live(tmp_path, mode) == sorted([*(AFTER[mode] if committed else SEED), 9])
        if mode == "append" and committed:
            return  # a new run appends again: repeating is what an append promises
        materialise(engine, tmp_path, name=mode, rows=NEW, key="a", mode=mode, **writer)
        assert live(tmp_path, mode) == sorted([*AFTER[mode], 9])

    def test_while_its_engine_writes_the_first_files_of_a_table_and_run_again(
        self, worker: Worker, engine: SparkEngine, tmp_path: Path
    ) -> None:
        """What the engine goes on to write reaches nobody: the table came into being without it."""
        step = {"name": "first", "rows": 20_000, "key": "a", "block": str(tmp_path)}
        answer = worker.begin({"root": str(tmp_path), "steps": [step]})
        wait_for(tmp_path / "writing")
        worker.kill_fork()
        assert worker.status(answer) == -signal.SIGKILL
        assert TableLog.open(str(tmp_path / "silver" / "first")) is None
        materialise(engine, tmp_path, name="first", rows=NEW, key="a")
        (tmp_path / "release").touch()
        later = {"root": str(tmp_path), "steps": [{"name": "first", "rows": [9], "key": "b"}]}
        assert worker.do(later) == 0, worker.told()[-3000:]
        assert live(tmp_path, "first") == [*NEW, 9]
        assert orphans(tmp_path, "first"), "the engine had written"

    def test_while_files_are_being_written_and_run_again(
        self, worker: Worker, engine: SparkEngine, tmp_path: Path
    ) -> None:
        mode = "append"
        there(tmp_path, mode, a=SEED, b=[9])
        step = {"name": mode, "rows": 20_000, "key": "a", "mode": mode, "block": str(tmp_path)}
        worker.begin({"root": str(tmp_path), "steps": [step]})
        wait_for(tmp_path / "writing")
        deadline = time.monotonic() + DEADLINE
        while not orphans(tmp_path, mode) and time.monotonic() < deadline:
            time.sleep(0.05)
        worker.kill()
        (tmp_path / "release").touch()
        assert live(tmp_path, mode) == sorted([*SEED, 9]), "readers see the version before"
        left = orphans(tmp_path, mode)
        assert left, "the kill came after a file was written"
        removable = log_of(tmp_path, mode).table.vacuum(
            retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True
        )
        assert left <= {p.removeprefix("/") for p in removable}
        materialise(engine, tmp_path, name=mode, rows=NEW, key="a", mode=mode)
        assert live(tmp_path, mode) == sorted([*AFTER[mode], 9])
        assert left <= orphans(tmp_path, mode), "no reader ever sees them"
