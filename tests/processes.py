"""What processes show of themselves, as the system sees it; workers come and go while one looks."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_TESTS = Path(__file__).resolve().parent
OWN_PROJECT = {"PYTHONPATH": os.pathsep.join(map(str, (_TESTS, _TESTS.parent)))}
"""For an interpreter that a test starts: the tests' modules and the project that they lie in, whatever copy is installed."""


def connections(process: psutil.Process) -> list[Any]:
    """Its connections over IP; one that has just ended has none."""
    with suppress(psutil.NoSuchProcess):
        return list(process.net_connections(kind="inet"))
    return []


def listening(processes: Iterable[psutil.Process]) -> list[str]:
    """The addresses that the processes listen on, one for each socket."""
    found = (connection for process in processes for connection in connections(process))
    return [connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN]


def outlets(processes: Iterable[psutil.Process]) -> set[Path]:
    """The files that what the processes print goes to."""
    found = set()
    for process in processes:
        for number in (1, 2):
            with suppress(OSError):
                found.add(Path(f"/proc/{process.pid}/fd/{number}").readlink())
    return found


def living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended; one that only waits for its parent to notice has."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
