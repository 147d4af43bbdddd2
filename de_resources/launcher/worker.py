"""A worker: what it does with its run, and how any process knows it again."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dagster import DagsterRun

from de_resources.compat.launching import (
    HIDDEN_TAG_PREFIX,
    ExecuteExternalJobArgs,
    IPCErrorMessage,
    ReconstructableRepository,
    RunInSubprocessComplete,
    deserialize_value,
    serialize_value,
    start_run_in_subprocess,
)

TAG = f"{HIDDEN_TAG_PREFIX}forked_worker"
"""Hidden: the page of a run shows the pid as an event anyway."""

WORKED_OFF = 42
"""Exit status of a worker in which Dagster's own function returned. Everything else is a death, 0 included."""

GO = b"go"
STARTED = b"started"


@dataclass(frozen=True)
class Worker:
    """One process for one run. A pid alone says little: it may have been given to somebody else since."""

    run_id: str
    pid: int
    started: str

    @classmethod
    def this_process(cls, run_id: str) -> Worker:
        """The calling process."""
        return cls(run_id, os.getpid(), _started(os.getpid()) or "")

    @classmethod
    def of(cls, run: DagsterRun) -> Worker | None:
        """The worker that the run's tag names; None without one. A retry copies tags: that of another run does not count."""
        if TAG not in run.tags:
            return None
        worker = cls(**json.loads(run.tags[TAG]))
        return worker if worker.run_id == run.run_id else None

    def tag(self) -> dict[str, str]:
        """What the run has to carry, so that `of` finds the worker."""
        return {TAG: json.dumps(asdict(self))}

    @property
    def is_alive(self) -> bool:
        """Whether the process works; one that ended and waits to be buried does not."""
        return _started(self.pid) == self.started

    def interrupt(self) -> bool:
        """Ask it to end, as Ctrl-C would; False when there is nobody to ask."""
        if not self.is_alive:
            return False
        try:
            os.kill(self.pid, signal.SIGINT)
        except ProcessLookupError:
            return False
        return True


def work(reply: socket.socket, arguments: str, repository: ReconstructableRepository) -> None:
    """Tell who we are, wait for the word, and work the run off; then end this process.

    Without the word nothing happens: the launcher is gone, or has given the run to somebody else.
    """
    _become_a_worker()
    run = deserialize_value(arguments, ExecuteExternalJobArgs)
    reply.sendall(json.dumps(asdict(Worker.this_process(run.run_id))).encode())
    if reply.recv(len(GO)) != GO:
        sys.exit(WORKED_OFF)
    job = repository.get_reconstructable_job(run.job_origin.job_name)
    start_run_in_subprocess(arguments, job, _Reply(reply), multiprocessing.Event())
    sys.exit(WORKED_OFF)


class _Reply:
    """The queue into which Dagster's function puts how the start went."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection: socket.socket | None = connection

    def put(self, status: Any) -> None:
        if self._connection is None or isinstance(status, RunInSubprocessComplete):
            return
        message = serialize_value(status).encode() if isinstance(status, IPCErrorMessage) else STARTED
        with suppress(OSError):  # the launcher went away; the run is ours and goes on
            self._connection.sendall(message)
        self._connection.close()
        self._connection = None


def _become_a_worker() -> None:
    """Undo what the fork server had to itself: its deaf ear for Ctrl-C, and a random state that siblings would share."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # `random` reseeds itself; numpy does not.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: int) -> str | None:
    """When the process started, in ticks of this boot; None when it does not live."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{_boot()}/{fields[19]}"
