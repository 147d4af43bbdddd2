"""Paid answers on the disk, from the moment they arrive until they are in their table, and for some days after it.

Each bulk call's answers are one file, complete and synced before its name appears. Who looks something up takes what is staged
first, whichever run has paid for it: one that died, failed at a later call, or has just committed. So nothing is paid for twice
but what an answer on its way loses: the one bulk call between the API's answer and the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from de_resources.delta.write.crash_points import crash_point
from de_resources.enrichment.errors import LookupBusy, StagedAnswersGone

Attributes = Mapping[str, str]
"""What is known of a value."""


@dataclass(frozen=True)
class StagedAnswer:
    """What was answered about one value; `found` None: the API does not know it. `batch` names the bulk call."""

    value: str
    found: Attributes | None
    answered_at: datetime
    batch: str


class StagedAnswers:
    """The folder of what was asked for one table. Nothing is made before something is written."""

    def __init__(self, folder: Path, table: str) -> None:
        self.folder, self.table = folder, table

    @contextmanager
    def alone(self, seconds: float) -> Iterator[None]:
        """One run at a time asks. Raises `LookupBusy` after so many seconds; a killed run holds nothing."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(self.folder / ".lock")
        try:
            with lock.acquire(timeout=seconds):
                yield
        except Timeout:
            raise LookupBusy(self.table, seconds) from None

    def note_wanted(self, values: Collection[str]) -> str:
        """Keep what is to be looked up; the name under which `wanted` finds it."""
        return self._write("wanted", sorted(values))

    def wanted(self, name: str) -> list[str]:
        """Raises `StagedAnswersGone`."""
        said = self._read(name)
        if not isinstance(said, list):
            raise StagedAnswersGone(name, "it is no list")
        return said

    def add(self, answers: Mapping[str, Attributes | None], at: datetime) -> str:
        """Keep a bulk call's answers; they are on the disk when this returns. The name of the call."""
        crash_point("before_write", f"{self.table}:answers")
        name = self._write("answers", {"at": at.isoformat(), "answers": dict(answers)})
        crash_point("after_commit", f"{self.table}:answers")
        return name

    def since(self, values: Collection[str], moment: datetime) -> dict[str, StagedAnswer]:
        """The newest staged answer about each of the values, given at this moment or later."""
        names = sorted(path.name for path in self.folder.glob("answers-*.json"))
        return {a.value: a for a in self._newest(names) if a.value in set(values) and a.answered_at >= moment}

    def read(self, names: Sequence[str]) -> list[StagedAnswer]:
        """The newest answer about each value of these calls. Raises `StagedAnswersGone`."""
        return list(self._newest(names))

    def sweep(self, before: datetime) -> int:
        """Remove what was written before this moment, and tell how much it was: it is in the table, or was never taken."""
        old = [path for path in self.folder.glob("*-*.json") if path.stat().st_mtime < before.timestamp()]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    def _newest(self, names: Iterable[str]) -> Iterable[StagedAnswer]:
        found: dict[str, StagedAnswer] = {}
        for name in names:
            for answer in self._of_call(name):
                if answer.value not in found or found[answer.value].answered_at < answer.answered_at:
                    found[answer.value] = answer
        return found.values()

    def _of_call(self, name: str) -> Iterator[StagedAnswer]:
        said = self._read(name)
        try:
            at = datetime.fromisoformat(said["at"])
            for value, found in said["answers"].items():
                yield StagedAnswer(value, found, at, name)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise StagedAnswersGone(name, "it is not what was written") from None

    def _write(self, kind: str, content: object) -> str:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"{kind}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid4().hex[:8]}.json"
        fresh = self.folder / f".{name}"
        with fresh.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.folder / name)
        _sync(self.folder)
        return name

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            raise StagedAnswersGone(name, "it is not there any more") from None
        except ValueError:
            raise StagedAnswersGone(name, "it is no JSON") from None


def _sync(folder: Path) -> None:
    """A name is on the disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
