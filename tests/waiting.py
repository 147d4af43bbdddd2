"""Dagster's waiting between two attempts, without the waiting."""

from __future__ import annotations

import time as real
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch


@dataclass
class Clock:
    """Stands for the module `time` where steps wait for their next attempt: a sleep takes no time and is written down."""

    meanwhile: Callable[[], object] = lambda: None
    slept: list[float] = field(default_factory=list)

    def time(self) -> float:
        """Now, and all that was slept."""
        return real.time() + sum(self.slept)

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
