"""Which processes on this machine are ours: those that carry our marker in their environment, and their descendants.

A pid says nothing (it may have been given to somebody else since), and a supervisor that was killed cannot be asked.
The environment given at the start stays with a process and all it starts, until it ends. Only marked processes and
their descendants get signals.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

MARKER = "DE_SERVICES_OF"
STOP_SIGNAL = "DE_SERVICE_STOP_SIGNAL"
GRACE_SECONDS = 20.0


def marked(home: Path) -> list[psutil.Process]:
    """All live processes that were started for the services under `home`, the supervisor included."""
    return [process for process in psutil.process_iter() if _environment(process).get(MARKER) == str(home)]


def stop_all(home: Path, grace: float = GRACE_SECONDS) -> int:
    """Stop what is marked, politely first and by force after `grace` seconds; returns how many processes ended."""
    targets = _with_descendants(marked(home))
    for process in targets:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(_polite_signal(process))
    stubborn = running_after(grace, targets)
    # Asked again: a process may have started another one between the look and the signal.
    survivors = _with_descendants([*stubborn, *marked(home)])
    for process in survivors:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    running_after(grace, survivors)
    return len(set(targets) | set(survivors))


def memory_bytes(pid: int) -> int | None:
    """Resident memory of a process and its descendants (shared pages are counted for each); None when it is gone."""
    with suppress(psutil.NoSuchProcess):
        return sum(_resident(process) for process in _with_descendants([psutil.Process(pid)]))
    return None


def works_in(pid: int, folder: Path) -> bool:
    """Whether that process is alive with `folder` as its working directory."""
    with suppress(psutil.Error, OSError):
        return Path(psutil.Process(pid).cwd()) == folder.resolve()
    return False


def running_after(seconds: float, processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that still run then; returns as soon as none does.

    One that has ended runs no more, though its status may never be asked for: in a container nobody may do it for orphans.
    """
    deadline = time.monotonic() + seconds
    while True:
        _, alive = psutil.wait_procs(processes, timeout=0)
        alive = [process for process in alive if not _has_ended(process)]
        if not alive or time.monotonic() >= deadline:
            return alive
        time.sleep(0.02)


def _has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _with_descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    found: dict[psutil.Process, None] = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found |= dict.fromkeys([process, *process.children(recursive=True)])
    return list(found)


def _environment(process: psutil.Process) -> dict[str, str]:
    """Empty when the process is gone, or another user's and therefore not ours."""
    with suppress(psutil.Error, OSError):
        if process.pid != os.getpid():
            return process.environ()
    return {}


def _polite_signal(process: psutil.Process) -> signal.Signals:
    return signal.Signals[f"SIG{_environment(process).get(STOP_SIGNAL, 'TERM')}"]


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0
