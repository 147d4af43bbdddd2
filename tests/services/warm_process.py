"""Processes that start in a moment: each is forked from one that has the libraries imported, and nothing of the graph.

A cold interpreter spends seconds on imports that have nothing to do with what a test asks. The graph itself is imported by
each process, because it reads its calendar and its places from the environment. A process is as real as any other one: it
has its own id and group, and `kill -9` is the system's.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

# Whoever is preloaded may start no thread, open no connection, and read no variable of the platform.
PRELOADED = (
    "alembic.command",
    "confluent_kafka",
    "dagster",
    # What an instance imports when it is made: half a second of each process.
    "dagster._core.instance.factory",
    "dagster._core.storage.event_log",
    "dagster._core.storage.runs",
    "dagster._core.storage.schedules",
    "dagster_delta",
    "dagster_pyspark",
    "deltalake",
    "pandera.pyspark",
    "psycopg2",
    "pyspark.sql.connect.session",
    "sqlalchemy.dialects.sqlite",
    "de_resources.delta.io_manager",
)

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(PRELOADED))


def start(action: str, *arguments: Any, environment: dict[str, str], output: Path) -> BaseProcess:
    """Run `action` (`module:function`) in a process with exactly this environment; what it prints goes to `output`."""
    process: BaseProcess = _context.Process(
        target=_become, args=(action, arguments, environment, str(output), sys.path)
    )
    process.start()
    return process


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
    module, function = action.split(":")
    getattr(importlib.import_module(module), function)(*arguments)
