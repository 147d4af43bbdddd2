"""Named points inside every writer at which a test can stop, interleave or kill it deterministically.

A point costs one dictionary look-up. In the same process a test installs a callable
(`at("after_commit", barrier.wait)`); in another process the environment variable `DE_KILL_AT=point` or `point:table`
ends the process as `kill -9` does. Where `DE_KILL_ONCE` names a file, only the process dies that removes it: a retry lives.

| point           | what has happened                                      |
|-----------------|--------------------------------------------------------|
| `before_write`  | the slice is known, nothing is written                 |
| `before_commit` | the frame is planned and guarded, the engine is next   |
| `after_commit`  | the commit is in the log, nobody has been told         |
| `before_switch` | a version is complete, readers see the one before it   |
| `after_switch`  | readers see the new version, nobody has been told      |
| `recorded`      | metadata is handed to the orchestrator                 |
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POINTS = ("before_write", "before_commit", "after_commit", "before_switch", "after_switch", "recorded")

_installed: dict[str, Callable[[str], None]] = {}


def crash_point(point: str, table: str) -> None:
    """Called by writers. Runs what a test installed for the point, or ends the process where asked to."""
    action = _installed.get(point)
    if action is not None:
        action(table)
    wanted = os.environ.get("DE_KILL_AT")
    if wanted is not None and wanted in (point, f"{point}:{table}") and _is_our_turn():
        os.kill(os.getpid(), signal.SIGKILL)


def _is_our_turn() -> bool:
    once = os.environ.get("DE_KILL_ONCE")
    if once is None:
        return True
    try:
        Path(once).unlink()
    except FileNotFoundError:
        return False
    return True


@contextmanager
def at(point: str, action: Callable[[str], None]) -> Iterator[None]:
    """Install `action(table)` for one point while the context is open. Raises `ValueError` for an unknown point."""
    if point not in POINTS:
        raise ValueError(f"{point!r} is no crash point; there are {', '.join(POINTS)}")
    _installed[point] = action
    try:
        yield
    finally:
        del _installed[point]
