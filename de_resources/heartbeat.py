"""A sign of life from a long-running job, also while no data comes to it.

The job beats as often as it goes around; at most every `interval` a file says so, replaced in one step. A job that ends in
order takes its file away, so that nothing is expected of it; one that was killed, or hangs, leaves a file that grows old.

Pattern: Flow Interruption Detector (heartbeat).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from de_resources.errors import PermanentError
from de_resources.settings import Settings

FOLDER = "heartbeats"
INTERVAL = timedelta(seconds=10)
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_SUFFIX = ".json"


class UnusableName(PermanentError):
    """A job whose name is no name of a file."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name[:60]!r} is no name for a heartbeat: use lower-case letters, digits, `-`, `_` and `.`.")


@dataclass(frozen=True)
class Beat:
    """What a job said last: when, and when data came to it last, if it ever did."""

    job: str
    at: datetime
    data_at: datetime | None = None


@dataclass
class Heartbeat:
    """The heart of one job. `clock` is the job's. Raises `UnusableName`."""

    job: str
    folder: Path = field(default_factory=lambda: heartbeats())
    interval: timedelta = INTERVAL
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    _written: datetime | None = None
    _data_at: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse a name that could lead elsewhere."""
        if not _NAME.fullmatch(self.job):
            raise UnusableName(self.job)

    @property
    def file(self) -> Path:
        """Where it is told."""
        return self.folder / f"{self.job}{_SUFFIX}"

    def beat(self, *, data: bool = False) -> None:
        """The job lives; `data`: something came to it. Cheap: mostly nothing is written."""
        now = self.clock()
        if data:
            self._data_at = now
        # A clock that was set back must not silence the heart.
        if self._written is None or not timedelta(0) <= now - self._written < self.interval:
            self._write(now)

    def stop(self) -> None:
        """The job ends in order: nothing more is expected of it."""
        self.file.unlink(missing_ok=True)
        self._written = None

    def _write(self, now: datetime) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        draft.write_text(json.dumps({"at": now.isoformat(), "data_at": self._data_at and self._data_at.isoformat()}))
        draft.replace(self.file)
        self._written = now


@contextmanager
def beating(heart: Heartbeat) -> Iterator[Heartbeat]:
    """Beat from the beginning; an orderly end takes the sign away, an error leaves it to grow old."""
    heart.beat()
    yield heart
    heart.stop()


def last_beat(job: str, folder: Path | None = None) -> Beat | None:
    """What the job said last; None where it says nothing, or what nobody can read."""
    try:
        told: Any = json.loads(Heartbeat(job, folder or heartbeats()).file.read_text())
        at, data_at = datetime.fromisoformat(told["at"]), told.get("data_at")
        return Beat(job, at, datetime.fromisoformat(data_at) if data_at else None)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def heartbeats() -> Path:
    """The folder of this home's heartbeats."""
    return Settings.from_environment().home / FOLDER
