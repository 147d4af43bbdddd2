"""A Spark standalone cluster on loopback for tests: a master and workers as processes, gone when the context ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from waiting import PATIENCE

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = PATIENCE


@dataclass
class Cluster:
    """`url` is what goes into DE_SPARK; `folders` are the workers' own, with a folder per application and executor."""

    url: str
    ui: str
    folders: list[Path]

    def state(self) -> dict[str, Any]:
        """What the master says of workers and applications."""
        with urllib.request.urlopen(f"{self.ui}/json/", timeout=PATIENCE) as answer:  # noqa: S310 - loopback
            found: dict[str, Any] = json.load(answer)
            return found

    def completed_application(self, patience: float = 60) -> dict[str, Any]:
        """The one application that ended; the master learns of an end a moment after the driver is gone."""
        deadline = time.monotonic() + patience
        while not (completed := self.state()["completedapps"]) and time.monotonic() < deadline:
            time.sleep(0.2)
        (application,) = completed
        found: dict[str, Any] = application
        return found

    def finished_tasks(self) -> list[int]:
        """Tasks that executors finished, per worker."""
        logs = ["".join(log.read_text() for log in folder.glob("app-*/*/stderr")) for folder in self.folders]
        return [log.count("Finished task") for log in logs]


@contextlib.contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers with one core each, ports chosen by the system."""
    with contextlib.ExitStack() as stack:
        master = _start(stack, folder / "master.log", "master.Master", "--port", "0")
        url = _read(master, r"Starting Spark master at (spark://\S+)")
        ui = _read(master, r"started at (http://\S+)")
        folders = [folder / f"worker-{number}" for number in range(workers)]
        for own in folders:
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(own), "--port", "0", url]
            _start(stack, own.with_suffix(".log"), "worker.Worker", *options)
        cluster = Cluster(url, ui, folders)
        deadline = time.monotonic() + START_SECONDS
        while cluster.state()["aliveworkers"] < workers:
            assert time.monotonic() < deadline, "the workers did not register in time"
            time.sleep(0.1)
        yield cluster


def _start(stack: contextlib.ExitStack, log: Path, name: str, *options: str) -> Path:
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "DE_"))},
        # The host name may resolve to an address of the outside; nothing here may listen beyond loopback.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(SPARK_HOME),
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--webui-port", "0", *options],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    stack.callback(_stop, process)
    return log


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Politely first: a worker ends its executors."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _read(log: Path, pattern: str) -> str:
    """What the process says in its log, once it does."""
    deadline = time.monotonic() + START_SECONDS
    while not (match := re.search(pattern, log.read_text())):
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.05)
    return match.group(1)
