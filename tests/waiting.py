"""Waiting: how long for an event that has to come, and Dagster's pauses between two attempts without the pauses."""

from __future__ import annotations

import time as real
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

PATIENCE = 180.0
"""Seconds for an event that has to come: a process that ends, a server that answers. So long nothing takes, however busy the
machine is, and a test that has waited for it has failed. No verdict depends on how much of it was needed."""


def until(condition: Callable[[], object], why: str = "it did not happen in time", pause: float = 0.05) -> None:
    """Look again and again until it is so; `why` is what a test says that has waited in vain."""
    deadline = real.monotonic() + PATIENCE
    while not condition():
        assert real.monotonic() < deadline, why
        real.sleep(pause)


@dataclass
class Clock:
    """Stands for the module `time` where steps wait for their next attempt: a sleep takes no time and is written down.

    It moves by sleeps alone. A clock that also went on with the machine's would skip a pause that jitter has made short.
    """

    meanwhile: Callable[[], object] = lambda: None
    slept: list[float] = field(default_factory=list)
    began: float = field(default_factory=real.time)

    def time(self) -> float:
        """When it began, and all that was slept."""
        return self.began + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        """Let happen what happens while a step waits."""
        self.slept.append(seconds)
        self.meanwhile()


@contextmanager
def waits(meanwhile: Callable[[], object] = lambda: None) -> Iterator[list[float]]:
    """Steps wait by this clock; `meanwhile` is called in each wait. The seconds of each wait so far."""
    clock = Clock(meanwhile)
    with patch("dagster._core.execution.plan.active.time", clock):
        yield clock.slept
