"""How far a reader of a table is behind: in commits that changed rows, in bytes, and by the age of the first of them.

Pattern: Lag Detector. Housekeeping moves the version and no reader has to follow it. Told from the log; no row is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from de_resources.delta.log.table_log import CommitGone, TableLog

_LOOK_BACK = 1_000
"""So many commits are looked at; a reader that is further behind is told to be at least as far."""


@dataclass(frozen=True)
class VersionLag:
    """What a reader of one version has before it. `version` None: it never read the table."""

    version: int | None
    newest: int
    commits: int = 0
    bytes: int = 0
    oldest: datetime | None = None
    """When the first commit was made that the reader does not have."""

    @property
    def is_beyond(self) -> bool:
        """Whether the reader is where the table has not come: it was made again, or restored from a copy."""
        return self.version is not None and self.version > self.newest

    def age(self, now: datetime) -> float:
        """Seconds since that commit; 0 where there is none, or where its clock is ahead of this one."""
        return max((now - self.oldest).total_seconds(), 0.0) if self.oldest else 0.0


def version_lag(log: TableLog, version: int | None) -> VersionLag:
    """Measure a reader of this version; None counts every commit that the log still has."""
    commits = size = 0
    oldest = None
    for number in range(log.version, max(-1 if version is None else version, log.version - _LOOK_BACK), -1):
        try:
            actions = log.actions(number)
        except CommitGone:
            break
        added, changed = _change(actions)
        if changed:
            commits, size, oldest = commits + 1, size + added, _time(actions) or oldest
    return VersionLag(version, log.version, commits, size, oldest)


def _change(actions: list[dict[str, Any]]) -> tuple[int, bool]:
    """Bytes of the files that a commit added, and whether it changed rows at all."""
    changes = [
        (kind, action[kind])
        for action in actions
        for kind in ("add", "remove")
        if (action.get(kind) or {}).get("dataChange")
    ]
    return sum(int(change.get("size") or 0) for kind, change in changes if kind == "add"), bool(changes)


def _time(actions: list[dict[str, Any]]) -> datetime | None:
    told = next((action["commitInfo"].get("timestamp") for action in actions if "commitInfo" in action), None)
    return datetime.fromtimestamp(told / 1000, UTC) if told is not None else None
