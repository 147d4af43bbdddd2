"""Changes of a PostgreSQL table on their way into a topic: the platform's capture beside Debezium.

Both read the same server by logical replication (pgoutput), each with a slot, a table and a topic of its own, and run
as one process, alone. Ours writes every transaction as one of Kafka; Debezium runs in Kafka Connect, standalone, with
the defaults of both, which deliver at least once. Start-up: from starting the process until a row that was committed
before is read from the topic. Delay: from a row's insertion, as the database's clock says, until a `read_committed`
consumer has it; single rows, each committed, a hundred a second; the figure of a round is their median. Bulk: one
transaction, from its commit until the consumer has its last row. Debezium's delay is mostly its `poll.interval.ms`, 500
by default. Checked: both topics tell of every row of their tables.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median, quantiles
from threading import Thread

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks import debezium
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Sample
from benchmarks.workbench import Workbench
from de_resources.capture import CaptureSource, drop
from de_resources.errors import TransientError
from de_resources.kafka import KafkaBroker, TopicSpec
from de_resources.local.ports import LOOPBACK
from de_resources.local.service import write_private
from de_resources.postgres import PostgresDatabase

PACE = 0.01
PATIENCE = 120.0
ROUNDS = 3
STAGES = ("start-up", "delay", "bulk")


class ChangeLost(TransientError):
    """A change did not come through."""

    def __init__(self, contender: str, row: int) -> None:
        self.contender, self.row = contender, row
        super().__init__(f"{contender} did not bring row {row} within {PATIENCE:g} s; measure again.")


@dataclass
class Contender:
    """A capture, with its table and topic. `seen` maps the rows that came through to the time at which they did."""

    name: str
    table: str
    topic: str
    command: list[str]
    seen: dict[int, float] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=lambda: {stage: [] for stage in STAGES})
    delays: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    rows: int = 0

    def round(self, commits: int, bulk: int) -> None:
        """Start it, measure the three stages, and stop it."""
        self.insert(1)
        with self.following(), self.running() as process:
            started = time.time()
            self.wait()
            self.keep("start-up", self.seen[self.rows] - started, process, 0.0)

            before = cpu_seconds(process)
            first = self.rows + 1
            inserted = []
            for _ in range(commits):
                time.sleep(PACE)
                inserted.append(self.insert(1))
            self.wait()
            delays = [self.seen[first + n] - at for n, at in enumerate(inserted)]
            self.delays += delays
            self.keep("delay", median(delays), process, before)

            before = cpu_seconds(process)
            self.insert(bulk)
            committed = time.time()
            self.wait()
            self.keep("bulk", self.seen[self.rows] - committed, process, before)
            self.peak_mb = max(self.peak_mb, process.memory_info().rss / 1e6)

    def insert(self, rows: int) -> float:
        """Commit that many rows in one transaction; returns the database's time of the last one."""
        with self.session.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {self.table} SELECT n, clock_timestamp(), 'x' FROM generate_series(%s, %s) n "
                "RETURNING extract(epoch FROM at)",
                (self.rows + 1, self.rows + rows),
            )
            (at,) = cursor.fetchall()[-1]
        self.rows += rows
        return float(at)

    def wait(self) -> None:
        """Until the last row came through."""
        deadline = time.monotonic() + PATIENCE
        while self.rows not in self.seen:
            if time.monotonic() > deadline:
                raise ChangeLost(self.name, self.rows)
            time.sleep(0.001)

    def keep(self, stage: str, wall: float, process: psutil.Process, cpu_before: float) -> None:
        """Take a sample."""
        self.samples[stage].append(Sample(wall, cpu_seconds(process) - cpu_before))

    @cached_property
    def session(self):  # type: ignore[no-untyped-def]
        """The application's connection; every statement is a transaction."""
        session = PostgresDatabase().open()
        session.autocommit = True
        return session

    @contextmanager
    def running(self) -> Iterator[psutil.Process]:
        """The capture's process."""
        with subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            yield psutil.Process(process.pid)
            process.terminate()
            process.wait(30)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Note when which row is read from the topic."""
        consumer = Consumer(
            {**KafkaBroker().client_config(), "group.id": self.topic, "isolation.level": "read_committed"}
        )
        place = TopicPartition(self.topic, 0)
        consumer.assign([TopicPartition(self.topic, 0, consumer.get_watermark_offsets(place, timeout=10)[1])])
        going = [True]

        def follow() -> None:
            while going:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None and (value := message.value()):
                    self.seen.setdefault(json.loads(value)["after"]["id"], time.time())

        reader = Thread(target=follow)
        reader.start()
        try:
            yield
        finally:
            going.clear()
            reader.join()
            consumer.close()


def run(bench: Workbench) -> list[Figure]:
    """Start-up, delay and bulk of both."""
    commits, bulk = bench.pick(small=20, full=500), bench.pick(small=1_000, full=100_000)
    topics = [TopicSpec(f"{name}_rows") for name in ("ours", "theirs")]
    bench.start("postgres", "kafka", topics=topics)
    source = CaptureSource("bench", ("public.ours",), "ours_rows")
    ours, theirs = contenders = [
        Contender("capture", "ours", "ours_rows", _capture(bench, source)),
        Contender("Debezium", "theirs", "theirs_rows", _debezium(bench, "public.theirs", "theirs_rows")),
    ]
    for contender in contenders:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {contender.table} (id BIGINT PRIMARY KEY, at TIMESTAMPTZ, text TEXT)")
    for _ in range(1 + ROUNDS):
        for contender in contenders:
            contender.round(commits, bulk)
    for contender in contenders:
        require_equal(contender.name, set(range(1, contender.rows + 1)), set(contender.seen))
        contender.session.close()
    drop(PostgresDatabase(), source)
    what = {
        "start-up": "from the process's start to the first change",
        "delay": f"from commit to reader, {commits} single rows",
        "bulk": f"{bulk:,} rows in one transaction",
    }
    return [_figure(stage, what[stage], ours, theirs) for stage in STAGES]


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of the process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _figure(stage: str, what: str, ours: Contender, theirs: Contender) -> Figure:
    notes: dict[str, Callable[[Contender], str]] = {
        "delay": lambda c: f"{c.name}: 95 % within {quantiles(c.delays, n=20)[-1] * 1000:.0f} ms",
        "bulk": lambda c: f"{c.name}: {c.peak_mb:.0f} MB resident afterwards",
    }
    note = "; ".join(notes[stage](c) for c in (ours, theirs)) if stage in notes else ""
    # The first round warms up.
    samples = [tuple(c.samples[stage][1:]) for c in (ours, theirs)]
    return Figure("capture", what, Kind.RATIO, ours.name, samples[0], theirs.name, samples[1], note=note)


def _capture(bench: Workbench, source: CaptureSource) -> list[str]:
    declaration = bench.folder("capture") / "sources.json"
    write_private(declaration, json.dumps([source.as_dict()]))
    return [sys.executable, "-m", "de_resources.capture", str(declaration), "0"]


def _debezium(bench: Workbench, table: str, topic: str) -> list[str]:
    options = {name.removeprefix("kafka."): value for name, value in KafkaBroker().spark_options().items()}
    with PostgresDatabase().connect() as session:
        said = session.get_dsn_parameters()
        database = {"hostname": LOOPBACK, "port": said["port"], "user": said["user"], "dbname": said["dbname"]}
        database["password"] = str(session.info.password)
    return debezium.command(
        bench.folder("debezium"), debezium.class_path(bench.settings), options, database, table, topic
    )
