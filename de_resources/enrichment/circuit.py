"""The state of a circuit breaker as a file, so that all processes of a home leave alone what is out of order.

`pybreaker` decides: after so many failures in a row the circuit opens, and nobody is asked; after a rest one request is
let through, and closes it or opens it again. Each run is a process of its own, and a state in memory would be
forgotten with it. Two processes that count at the same moment may count one failure: the circuit then opens one request later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from pybreaker import STATE_CLOSED, CircuitBreaker, CircuitBreakerStorage


class CircuitFile(CircuitBreakerStorage):
    """What `pybreaker` remembers, in a small file of JSON. One that is not there, or cannot be read, is a closed circuit."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.stem)
        self._path = path

    @property
    def state(self) -> str:
        """`closed`, `open` or `half-open`."""
        return str(self._read("state", STATE_CLOSED))

    @state.setter
    def state(self, state: str) -> None:
        self._write(state=state)

    @property
    def counter(self) -> int:
        """Failures in a row."""
        return int(self._read("failures", 0))

    def increment_counter(self) -> None:
        """One more failure."""
        self._write(failures=self.counter + 1)

    def reset_counter(self) -> None:
        """It answered."""
        if self.counter:
            self._write(failures=0)

    @property
    def success_counter(self) -> int:
        """Answers since the rest."""
        return int(self._read("successes", 0))

    def increment_success_counter(self) -> None:
        """One more answer since the rest."""
        self._write(successes=self.success_counter + 1)

    def reset_success_counter(self) -> None:
        """The rest begins, or is over."""
        self._write(successes=0)

    @property
    def opened_at(self) -> datetime | None:
        """Since when nobody is asked."""
        said = self._read("opened_at", None)
        return datetime.fromisoformat(said) if said else None

    @opened_at.setter
    def opened_at(self, moment: datetime) -> None:
        self._write(opened_at=moment.isoformat())

    def _all(self) -> dict[str, Any]:
        try:
            said = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}

    def _read(self, name: str, otherwise: Any) -> Any:
        return self._all().get(name, otherwise)

    def _write(self, **values: Any) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fresh.write_text(json.dumps({**self._all(), **values}))
        fresh.replace(self._path)


def circuit(
    path: Path, *, failures: int, rest_seconds: float, lives: Iterable[type[Exception] | Callable[[Any], bool]]
) -> CircuitBreaker:
    """The circuit of this file: opens after so many `failures` in a row, rests so long. Errors in `lives` are no failures."""
    return CircuitBreaker(
        fail_max=failures,
        reset_timeout=rest_seconds,
        exclude=list(lives),
        state_storage=CircuitFile(path),
        throw_new_error_on_trip=False,
    )
