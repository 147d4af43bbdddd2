"""Services that died are started again, within limits: three times in an hour, and later each time.

One that dies again and again is broken: starting it for ever would hide that, and wear out what it leaves behind. When the
limit is reached it stays as it is until somebody looks and runs `de up`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from de_resources.local.service import write_private

LIMIT, WITHIN = 3, timedelta(hours=1)
FIRST_PAUSE = timedelta(seconds=20)
AHEAD = timedelta(minutes=5)
"""How far in the future a restart may lie and count: by so much clocks are corrected while they run."""


@dataclass(frozen=True)
class Restarts:
    """When each service was started again, kept in the home."""

    path: Path

    def allows(self, name: str, now: datetime) -> bool:
        """Whether it may be started again now."""
        recent = self.recent(name, now)
        if not recent:
            return True
        pause = FIRST_PAUSE * 2 ** (len(recent) - 1)
        return len(recent) < LIMIT and now - recent[-1] >= pause

    def is_exhausted(self, name: str, now: datetime) -> bool:
        """Whether it was started again as often as it may be."""
        return len(self.recent(name, now)) >= LIMIT

    def note(self, name: str, now: datetime) -> None:
        """Remember one, before it is tried: a start that fails counts."""
        told = self._read()
        told[name] = [*(moment.isoformat() for moment in self.recent(name, now)), now.astimezone(UTC).isoformat()]
        write_private(self.path, json.dumps(told))

    def recent(self, name: str, now: datetime) -> list[datetime]:
        """The restarts within the last hour, oldest first.

        What lies further in the future was told by a clock that was set back since, and is forgotten: the limit counts anew.
        """
        moments = [datetime.fromisoformat(said) for said in self._read().get(name, [])]
        return [moment for moment in moments if -AHEAD <= now - moment < WITHIN]

    def _read(self) -> dict[str, list[str]]:
        try:
            told: dict[str, list[str]] = json.loads(self.path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return told
