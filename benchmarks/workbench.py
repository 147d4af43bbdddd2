"""A place to measure in: a home, a lake and engines of its own, all of it gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import yaml
from dagster_delta import LocalConfig
from pyspark.sql import SparkSession

from benchmarks.orphans import adopted
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.table import CommitInfo, Table
from de_resources.errors import PermanentError
from de_resources.lake import Lake
from de_resources.local.services import LocalServices
from de_resources.local.topics import TopicSpec
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

PROJECT = Path(__file__).resolve().parents[1]
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_PROGRAM_SECONDS = 1200


class Size(StrEnum):
    """`small` shows in a few minutes that every case works; only `full` gives figures."""

    SMALL = "small"
    FULL = "full"


class ProgramFailed(PermanentError):
    """A measured program ended with an error."""

    def __init__(self, command: list[str], output: str) -> None:
        self.command, self.output = command, output
        super().__init__(f"`{' '.join(command[1:])}` failed; correct what it says and measure again:\n{output[-3000:]}")


@dataclass
class Workbench:
    """Everything a case needs. `settings.home` is a temporary folder."""

    size: Size
    settings: Settings
    servers: list[int] = field(default_factory=list)
    """Process ids of servers that work for the bench but are nobody's children here."""
    _services: LocalServices = field(init=False)

    def __post_init__(self) -> None:
        self._services = LocalServices(self.settings)

    def pick(self, *, small: int, full: int) -> int:
        """An amount for the chosen size."""
        return small if self.size is Size.SMALL else full

    @cached_property
    def engine(self) -> SparkEngine:
        """The classic engine of this process, with one thread per core."""
        return SparkEngine(url=f"local[{os.cpu_count()}]", spark_config={"spark.log.level": "FATAL"})

    @property
    def spark(self) -> SparkSession:
        """Its session."""
        return self.engine.spark_session

    def folder(self, name: str) -> Path:
        """A path for data of a case; not made."""
        return self.settings.home / "bench" / name

    def table(self, name: str, **options: Any) -> Table:
        """A table that does not exist yet."""
        return Table(name=f"bench.{name}", uri=str(self.folder("tables") / name), **options)

    @staticmethod
    def stamp(table: Table) -> CommitInfo:
        """A write that nobody has done before."""
        run = uuid4().hex
        return CommitInfo(table=table.name, writer="benchmarks", slice="all", run=run, origin=run, attempt=run)

    @contextmanager
    def dagster(self, name: str) -> Iterator[dg.DagsterInstance]:
        """An instance that keeps runs and events on the disk where `dagster.yaml` says, as a local installation does."""
        folder = self.folder("instances") / name
        folder.mkdir(parents=True)
        with dg.DagsterInstance.local_temp(str(folder), overrides=_recording()) as instance:
            yield instance

    def resources(self, name: str) -> dict[str, Any]:
        """The IO manager on a lake of its own, and that lake, for runs inside this process."""
        root, storage = str(self.folder("lakes") / name), LocalConfig()
        return {
            "io_manager": SparkDeltaIOManager(root_uri=root, storage_options=storage, spark=self.engine),
            "lake": Lake(root_uri=root, storage_options=storage, spark=self.engine),
        }

    def connect_server(self) -> str:
        """Start the Spark Connect server where it does not run, and return its address with token (keep it secret)."""
        statuses = {status.name: status for status in self._services.up(["spark_connect"])}
        endpoint, pid = self._services.endpoint("spark_connect"), statuses["spark_connect"].pid
        if endpoint is None or pid is None:
            raise PermanentError(f"Spark Connect does not run: {statuses['spark_connect'].why} Run `de doctor`.")
        self.servers = [pid]
        return f"sc://{endpoint.address}/;token={endpoint.password.get_secret_value()}"

    def start(self, *names: str, topics: Sequence[TopicSpec] = ()) -> None:
        """Start services of the bench's home. Raises `PermanentError` for one that does not run."""
        for status in self._services.up(names, topics=topics):
            if status.name not in names:
                continue
            if status.pid is None:
                raise PermanentError(f"{status.name} does not run: {status.why} Run `de doctor`.")
            self.servers.append(status.pid)

    def program(self, *arguments: str, environment: Mapping[str, str]) -> str:
        """Run `python …` in the project to its end, and that of all it started, and return what it printed.

        Raises `ProgramFailed`.
        """
        command = [sys.executable, *arguments]
        with adopted():
            done = subprocess.run(
                command,
                cwd=PROJECT,
                env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_PROGRAM_SECONDS,
                check=False,
            )
        if done.returncode:
            raise ProgramFailed(command, done.stdout)
        return done.stdout

    def worker_environment(self, name: str, **variables: str) -> dict[str, str]:
        """Variables of a run worker with a lake and a Dagster instance of its own."""
        home = self.folder("workers") / name
        (home / "dagster").mkdir(parents=True, exist_ok=True)
        (home / "dagster" / "dagster.yaml").write_text(yaml.safe_dump(_recording()))
        return {"LAKE_ROOT": str(home / "lake"), "DAGSTER_HOME": str(home / "dagster"), **variables}

    def materialize(self, module: str, selection: str, environment: Mapping[str, str]) -> str:
        """Dagster's own command for one run in a process of its own: import the code location, execute, record."""
        return self.program(
            "-m", "dagster", "asset", "materialize", "--select", selection, "-m", module, environment=environment
        )

    def close(self) -> None:
        """Stop what was started; the services also where the engine is gone already."""
        try:
            if "engine" in self.__dict__:
                self.spark.stop()
        finally:
            self._services.down()


def _recording() -> dict[str, Any]:
    """How `dagster.yaml` has runs and events recorded."""
    configured = yaml.safe_load((PROJECT / "dagster.yaml").read_text())
    return {name: configured[name] for name in ("telemetry", "event_log_storage")}


@contextmanager
def workbench(size: Size) -> Iterator[Workbench]:
    """A bench in a temporary home. The environment points there meanwhile; only the cache of jars is the project's."""
    before = dict(os.environ)
    home = Path(tempfile.mkdtemp(prefix="de-bench-"))
    for name in ("LAKE_ROOT", "DE_SPARK", "DE_CALENDAR", "DAGSTER_HOME"):
        os.environ.pop(name, None)
    os.environ["DE_HOME"] = str(home)
    os.environ.setdefault("DE_JARS", str(PROJECT / ".de" / "jars"))
    bench = Workbench(size, Settings.from_environment())
    try:
        yield bench
    finally:
        try:
            bench.close()
        finally:
            os.environ.clear()
            os.environ.update(before)
            shutil.rmtree(home, ignore_errors=True)
