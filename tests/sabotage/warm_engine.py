"""The Java process of an engine that calls of pytest use one after the other, each with an application of its own.

A cold one takes two thirds of the CPU seconds of a usual answer: it loads and compiles what the one before it had loaded and
compiled. What an application leaves (settings, listeners, streams, jobs) ends with it, before the next one begins.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TextIO

from .witness import ENGINE
from .workplace import Workplace

ANSWERS = 40
"""After so many there is a new one: what little each leaves adds up."""
PATIENCE = 60
"""Seconds that it has to start, or to end an application. One that takes longer has something endless in it."""


class WarmEngine:
    """One such process. It is started where it is needed, also again; the workplace has no defect in it."""

    def __init__(self, unharmed: Workplace) -> None:
        self._unharmed = unharmed
        self._keeper: subprocess.Popen[str] | None = None
        self._answers = 0

    def environment(self) -> dict[str, str]:
        """By which `sabotage.witness` finds it; empty where it cannot be started, so that tests start their own."""
        if self._keeper is None:
            self._start()
        return {ENGINE: self._address} if self._keeper else {}

    def clear(self) -> None:
        """End what the last call of pytest left in there; or all of it."""
        self._answers += 1
        if self._keeper is None:
            return
        if self._answers >= ANSWERS or self._ask() != "cleared":
            self.end()

    def end(self) -> None:
        """Nothing of it is left. It may be started again."""
        if self._keeper is not None:
            os.killpg(self._keeper.pid, signal.SIGKILL)
            self._keeper.communicate()
            self._home.cleanup()
            self._keeper = None

    def _start(self) -> None:
        self._answers = 0
        self._home = tempfile.TemporaryDirectory(prefix="de-sabotage-engine-", ignore_cleanup_errors=True)
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "sabotage.engine_keeper"],
            cwd=self._unharmed.folder,
            env={**self._unharmed.environment, "DE_HOME": self._home.name, "TMPDIR": self._home.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._address = _line(self._keeper.stdout)
        if not self._address:
            self.end()

    def _ask(self) -> str:
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write("clear\n")
            self._keeper.stdin.flush()
        except BrokenPipeError:
            return ""
        return _line(self._keeper.stdout)


class WarmEngines:
    """As many as are used at once, for as long as the context lasts."""

    def __init__(self, unharmed: Workplace) -> None:
        self._unharmed = unharmed
        self._idle: SimpleQueue[WarmEngine] = SimpleQueue()

    @contextmanager
    def one(self) -> Iterator[WarmEngine]:
        """One that nobody else uses meanwhile; cleared afterwards."""
        try:
            engine = self._idle.get_nowait()
        except Empty:
            engine = WarmEngine(self._unharmed)
        try:
            yield engine
        finally:
            engine.clear()
            self._idle.put(engine)

    def close(self) -> None:
        """End those that are idle: all, once nobody uses one."""
        while not self._idle.empty():
            self._idle.get().end()


def _line(stream: TextIO | None) -> str:
    """The next line; empty if it does not come in time, or never."""
    assert stream is not None
    ready, _, _ = select.select([stream], [], [], PATIENCE)
    return stream.readline().strip() if ready else ""
