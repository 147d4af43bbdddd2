"""Which files were read while code was loaded, so that one can tell later whether loading again would give the same."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import source_from_cache

_NOT_FILES = ("/proc/", "/dev/", "/sys/")

State = tuple[int, int] | None
"""Time of the last change and size; None: not there."""


class Reads:
    """Files with the state in which they were when they were first asked for, absent ones included."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}

    def note(self, path: str) -> None:
        """Remember the state of a file that is about to be read."""
        if path not in self._states and not path.startswith(_NOT_FILES):
            self._states[path] = _state(path)

    def changed(self) -> str | None:
        """The first file that is not as it was; None when all are."""
        return next((path for path, state in self._states.items() if _state(path) != state), None)

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, path: str) -> bool:
        return path in self._states


@contextmanager
def recorded() -> Iterator[Reads]:
    """Record what is opened for reading while the context is open, imported modules by their sources.

    The interpreter keeps the hook until it ends; outside the context it returns at once.
    """
    reads, is_open = Reads(), True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if is_open and event == "open":
            path, _, flags = arguments
            if isinstance(path, str) and isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR):
                reads.note(os.path.abspath(_source(path)))  # noqa: PTH100 - links stay

    sys.addaudithook(hook)
    try:
        yield reads
    finally:
        is_open = False
        # Compiled modules are opened by the system's linker, which tells nobody.
        for path in _libraries():
            reads.note(path)


def _source(path: str) -> str:
    if not path.endswith(".pyc"):
        return path
    try:
        return source_from_cache(path)
    except ValueError:
        return path


def _libraries() -> Iterable[str]:
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return [file for file in files if isinstance(file, str) and file.endswith(".so")]


def _state(path: str) -> State:
    try:
        found = os.stat(path)  # noqa: PTH116 - thousands of them, before each run
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
