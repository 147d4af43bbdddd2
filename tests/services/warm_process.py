"""Processes that start in a moment: each is forked from one that has the libraries imported, and the modules of the graph.

A cold interpreter spends seconds on imports that have nothing to do with what a test asks. The graph is put together
(`de_assets.definitions`) by each process, because it reads its places from the environment. Its modules read a calendar: a
process with another one than most imports them again. A process is as real as any other one: it has its own id and group,
and `kill -9` is the system's.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from waiting import PATIENCE

# Whoever is preloaded may start no thread, open no connection, and read no variable of the platform.
PRELOADED = (
    "alembic.command",
    "confluent_kafka",
    "dagster",
    # Dagster's own programs: two seconds of each webserver, one of each daemon and code server.
    "dagster._cli.api",
    "dagster._daemon.cli",
    "dagster._grpc.server",
    # What an instance imports when it is made: half a second of each process.
    "dagster._core.instance.factory",
    "dagster._core.storage.event_log",
    "dagster._core.storage.runs",
    "dagster._core.storage.schedules",
    "dagster_delta",
    "dagster_pyspark",
    "dagster_webserver.cli",
    "dagster_webserver.webserver",
    "deltalake",
    "pandera.pyspark",
    "psycopg2",
    "pyspark.sql.connect.session",
    "sqlalchemy.dialects.sqlite",
    "de_resources.delta.io_manager",
)
MODULES = tuple(f"de_assets.{name}" for name in ("bronze", "silver", "gold", "serving", "staging", "graph_assets"))
CALENDAR = "2024-10-10T00/2024-10-10T06"
"""Of most lakes."""
READ = {"DE_CALENDAR": CALENDAR, "DE_SENSOR_SECONDS": None}
"""What the modules of the graph read from the environment when they are loaded, and what it says then; None: nothing."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*PRELOADED, *MODULES, "loaded_for_good"])


@contextmanager
def _environment_of_most() -> Iterator[None]:
    before = {name: os.environ.pop(name, None) for name in READ}
    os.environ.update({name: value for name, value in READ.items() if value is not None})
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def start(action: str, *arguments: Any, environment: dict[str, str], output: Path) -> BaseProcess:
    """Run `action` (`module:function`) in a process with exactly this environment; what it prints goes to `output`."""
    with _environment_of_most():
        forkserver.ensure_running()
    process: BaseProcess = _context.Process(
        target=_become, args=(action, arguments, environment, str(output), sys.path)
    )
    process.start()
    return process


def dies(action: str, *arguments: Any, **variables: str) -> None:
    """Run `action` in this process's environment with these variables (`DE_KILL_AT`); fails unless `kill -9` ended it.

    It has the calendar of most, so that nothing is imported again for it: no such action asks for another one.
    """
    with tempfile.NamedTemporaryFile() as said:
        environment = {**os.environ, "DE_CALENDAR": CALENDAR, **variables}
        process = start(action, *arguments, environment=environment, output=Path(said.name))
        process.join(PATIENCE)
        status = process.exitcode
        process.kill()
        assert status == -signal.SIGKILL, f"{status}: {said.read().decode()[-3000:]}"


def program(folder: str, name: str, *arguments: str) -> None:
    """To start: `python -m name arguments …`, working in this folder."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _become(action: str, arguments: tuple[Any, ...], environment: dict[str, str], output: str, path: list[str]) -> None:
    """The leader of its own process group, so that a test kills it with all that it started."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    sys.path[:] = path
    if any(environment.get(name) != value for name, value in READ.items()):
        _forget_the_graph()
    module, function = action.split(":")
    getattr(importlib.import_module(module), function)(*arguments)


def _forget_the_graph() -> None:
    """Its modules are loaded again by whoever imports them next."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("de_assets", "de_checks")]:
        del sys.modules[name]
