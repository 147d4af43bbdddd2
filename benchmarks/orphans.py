"""Programs whose children outlive them: the JVM of a Spark driver ends a moment after its Python process.

Left alone, its CPU time would count as somebody else's, and its end would disturb the next contender.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_END_SECONDS = 30


@contextmanager
def adopted() -> Iterator[None]:
    """Become the parent of processes that lose theirs meanwhile, and wait for their end. Does nothing but on Linux."""
    if not sys.platform.startswith("linux"):
        yield
        return
    before = set(psutil.Process().children())
    control = ctypes.CDLL(None).prctl
    control(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        psutil.wait_procs(set(psutil.Process().children()) - before, timeout=_END_SECONDS)
        control(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
