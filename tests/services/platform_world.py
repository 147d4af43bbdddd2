"""A platform for tests: real services, a small simulated world with its truth, and runs in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, LiteralString, cast

import psutil
import pytest
import warm_process
from confluent_kafka import Producer
from instances import fresh_instance
from other_reader import multiset
from waiting import PATIENCE

from de_assets.partitions import Calendar
from de_assets.sources.capture import CAPTURES, USERS_CAPTURE
from de_assets.sources.simulator import (
    Irregularities,
    Truth,
    World,
    create_tables,
    feed_database,
    feed_topic,
    hours_between,
    land_devices,
    land_visits,
    visit_messages,
)
from de_assets.sources.topics import TOPICS, VISITS
from de_resources.capture import CaptureSource, prepare, wait_until_captured
from de_resources.delta.log import TableLog
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.local import LocalServices, ServiceState, ServiceStatus
from de_resources.postgres import PostgresDatabase

CALENDAR = Calendar.parse(warm_process.CALENDAR)
HOURS = hours_between(CALENDAR.start, CALENDAR.start + timedelta(hours=6))
RATES = Irregularities(duplicates=0.05, late=0.07, malformed=0.01, missing=0.02, future=0.01, out_of_order=0.05)
WORLD = World(seed=7, epoch=CALENDAR.start - timedelta(days=180), users=50, guests=100)
PER_HOUR = 100
# Its table is made by a test; until then the capture waits for it.
WAITING_CAPTURE = CaptureSource("people", ("public.people",), "people")
DEADLINE = 300.0


_numbers = count()


def key_of(hour: datetime) -> str:
    """The partition key of an hour."""
    return f"{hour:%Y-%m-%d-%H:%M}"


KEYS = [key_of(hour) for hour in HOURS]


@dataclass
class Report:
    """What a worker said: one entry per run, its exit status (negative: a signal), and what else it printed."""

    status: int
    output: str

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.splitlines() if line.startswith('{"success"')]

    def succeeded(self) -> Report:
        """Itself; fails the test, with the output, unless every run succeeded."""
        assert self.status == 0, self.output[-4000:]
        assert self.runs, self.output[-4000:]
        assert all(run["success"] for run in self.runs), [run["failures"] for run in self.runs]
        return self

    def materialised(self, asset: str, run: int = 0) -> list[dict[str, Any]]:
        """The materialisations of an asset in one of the runs."""
        return [m for m in self.runs[run]["materialised"] if m["asset"] == asset]


@dataclass
class Worker:
    """A run worker as the leader of its own process group."""

    process: BaseProcess
    output: Path

    def end(self, timeout: float = DEADLINE) -> Report:
        """Wait for it; nothing of it outlives the call."""
        self.process.join(timeout)
        status = self.process.exitcode
        self.kill()
        report = Report(status or 0, self.output.read_text())
        assert status is not None, f"the worker did not end within {timeout:g} s; it had said: {report.output[-3000:]}"
        return report

    def kill(self) -> None:
        """Kill -9 of the worker and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(cast("int", self.process.pid), signal.SIGKILL)
        self.process.join(PATIENCE)


@dataclass
class Lakehouse:
    """A lake with its own Dagster instance, on the platform's services and sources."""

    services: LocalServices
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The tables."""
        return self.folder / "lake"

    @cached_property
    def instance(self) -> Path:
        """DAGSTER_HOME, where nothing has happened yet."""
        return Path(shutil.copytree(fresh_instance(), self.folder / "dagster"))

    def start(self, *runs: dict[str, Any], graph: str | None = None, **more: Any) -> Worker:
        """Start a worker; upper-case names in `more` go to its environment, the others into its work."""
        variables = {name: str(value) for name, value in more.items() if name.isupper()}
        work = {"runs": runs, **{name: value for name, value in more.items() if not name.isupper()}}
        if graph:
            work["graph"] = graph
        output = self.instance / f"worker-{next(_numbers)}.out"
        environment = {**self.variables(), **variables}
        return Worker(warm_process.start("run_worker:main", work, environment=environment, output=output), output)

    def run(self, *runs: dict[str, Any], **more: Any) -> Report:
        """Start a worker and wait for its end."""
        return self.start(*runs, **more).end()

    def log(self, table: str) -> TableLog:
        """A table's log."""
        log = TableLog.open(str(self.root / table))
        assert log is not None, f"{table} does not exist"
        return log

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows that a reader sees; none of a table whose first write did not commit."""
        log = TableLog.open(str(self.root / table))
        return log.table.to_pyarrow_table().to_pylist() if log else []

    def multiset(self, table: str) -> Counter[str]:
        """The rows as a multiset, for comparison with another lake's."""
        return multiset(self.rows(table))

    def per_key(self, table: str, column: str) -> dict[str, int]:
        """Rows per hour."""
        return dict(Counter(key_of(row[column]) for row in self.rows(table)))

    def files(self, table: str) -> set[str]:
        """Data files on the disk, whether a reader sees them or not."""
        folder = self.root / table
        return {str(p.relative_to(folder)) for p in folder.rglob("*.parquet") if "_delta_log" not in p.parts}

    def variables(self) -> dict[str, str]:
        """The environment of a process that works on this lake."""
        settings = self.services.settings
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DE_", "SPARK_", "DAGSTER_"))},
            "DE_HOME": str(settings.home),
            "DE_JARS": str(settings.jars),
            "DE_CALENDAR": str(CALENDAR),
            "LAKE_ROOT": str(self.root),
            "DAGSTER_HOME": str(self.instance),
            "PYTHONWARNINGS": "ignore",
            **self.environment,
        }


def kill_service(services: LocalServices, name: str) -> None:
    """Kill -9, wait until it is known to be dead, and start it again."""
    take_away(services, name)
    services.up([name])


def pid_of(services: LocalServices, name: str) -> int:
    """Of a service that runs. None is nobody's: a signal to it would reach the tests themselves."""
    pid = next(status.pid for status in services.status() if status.name == name)
    assert pid, f"{name} does not run"
    return pid


def take_away(services: LocalServices, name: str) -> None:
    """Kill -9 it with its own processes, and wait until it is known to be dead.

    A session of PostgreSQL is one of these. It ends by itself when it sees the server gone, which may be after its next answer.
    """
    server = psutil.Process(pid_of(services, name))
    for process in [server, *server.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + DEADLINE
    while next(s.state for s in services.status() if s.name == name) is not ServiceState.FAILED:
        assert time.monotonic() < deadline, f"nobody noticed that {name} is dead"
        time.sleep(0.05)


@dataclass
class Platform:
    """The services of one home, fed with the world."""

    services: LocalServices
    fed: dict[int, int] = field(default_factory=dict)
    """By partition of the topic of visits, where the messages of `feed` end: tests publish more behind them."""

    @property
    def landing(self) -> Path:
        """The drop folder, with the truth beside it."""
        return self.services.settings.landing

    @property
    def truth(self) -> Truth:
        """What was injected into the landed visits."""
        return Truth(self.landing)

    @property
    def stream_truth(self) -> Truth:
        """What was injected into the messages."""
        return Truth(self.landing / "_topic")

    def up(self) -> None:
        """Start what does not run."""
        if not all(status.is_running for status in self.services.status()):
            self.services.up(topics=TOPICS, captures=[*CAPTURES, WAITING_CAPTURE])

    def status(self, name: str) -> ServiceStatus:
        """One service."""
        return next(status for status in self.services.status() if status.name == name)

    @contextmanager
    def at_home(self) -> Iterator[None]:
        """Resources of this process find the platform's services meanwhile."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DE_HOME", str(self.services.settings.home))
            yield

    def feed(self) -> None:
        """Land files, and feed database and broker; of services that are kept between processes only the first time."""
        record = self.landing / "_fed.json"
        if not record.exists():
            self._feed()
            with self.at_home():
                record.write_text(json.dumps(AppendLog(KafkaBroker().client_config(), VISITS).ends()))
            self.wait_until_captured()
        self.fed = {int(partition): end for partition, end in json.loads(record.read_text()).items()}

    def _feed(self) -> None:
        land_visits(self.landing, WORLD, HOURS, per_hour=PER_HOUR, irregularities=RATES)
        land_devices(self.landing, WORLD, HOURS[-1])
        with self.at_home(), closing(PostgresDatabase().open()) as connection:
            create_tables(connection)
            prepare(PostgresDatabase(), USERS_CAPTURE)
            feed_database(connection, WORLD, HOURS[0], HOURS[-1] + timedelta(hours=1), legacy_per_hour=10)
        self.publish(HOURS[:2])

    def wait_until_captured(self) -> None:
        """Until what the database has committed is in the topic."""
        with self.at_home():
            wait_until_captured(PostgresDatabase(), USERS_CAPTURE, DEADLINE)

    def publish(self, hours: Sequence[datetime]) -> int:
        """Produce the messages of these hours; returns their number."""
        messages = visit_messages(
            WORLD, hours, per_hour=PER_HOUR, irregularities=RATES, truth_beside=self.landing / "_topic"
        )
        with self.at_home():
            return feed_topic(Producer({**KafkaBroker().client_config(), "log_level": 0}), VISITS, messages)

    def query(self, statement: LiteralString) -> list[tuple[Any, ...]]:
        """What the operational database answers."""
        with self.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()
