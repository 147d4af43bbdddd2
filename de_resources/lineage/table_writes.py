"""What code has written to tables of the lake by itself: around the IO managers, and so without anybody having declared it.

A writer of the platform stamps its commits. A commit that changes rows and has the mark of this process instead
(`engine.own_commits`) was made through one of its sessions by somebody's own code, and the step that was at work then is
whose. Of each table one look asks whether its log has a commit more; only such a commit is read.

What only Python writes, without the engine, has no mark and is not found, nor is what is written outside of the lake.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from de_resources.engine.own_commits import marked_since, session_mark

_CLOCKS = 60.0
"""Seconds by which the clock of the lake's files may be behind this one."""


@dataclass(frozen=True)
class TableWrite:
    """One commit: `table` is `layer/dataset`, the folder below the lake's root; `at` in seconds, as its file says."""

    table: str
    version: int
    at: float


@dataclass
class TableWrites:
    """The unstamped commits of this process to the tables below one root, since the process looked first."""

    root: Path
    since: float
    """Older commits are not asked: the process had no session then."""
    _seen: dict[str, tuple[int, tuple[int, int] | None]] = field(default_factory=dict)
    """By table the newest version that was looked at, and which file that was."""
    _found: list[TableWrite] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def look(self) -> list[TableWrite]:
        """All that were found and not taken yet. Costs one question per table."""
        with self._lock:
            for log in self.root.glob("*/*/_delta_log"):
                # A table may be removed, or made again, at any time.
                with suppress(OSError):
                    self._found += self._new(log)
            return list(self._found)

    def take(self, writes: Iterable[TableWrite]) -> None:
        """These are told, and are not told again."""
        with self._lock:
            taken = set(writes)
            self._found = [each for each in self._found if each not in taken]

    def _new(self, log: Path) -> Iterator[TableWrite]:
        table = f"{log.parent.parent.name}/{log.parent.name}"
        if table not in self._seen and log.stat().st_mtime < self.since:
            return  # a folder that got no file since has no commit of this process
        version, newest = self._seen.get(table, (-1, None))
        if newest is None or newest != _identity(_commit(log, version)):
            version = self._first(log)
        while (commit := _commit(log, version + 1)).exists():
            version += 1
            if _is_own(commit):
                yield TableWrite(table, version, commit.stat().st_mtime)
        self._seen[table] = (version, _identity(_commit(log, version)))

    def _first(self, log: Path) -> int:
        """The newest version from before this process could write; -1 where there is none."""
        versions = sorted((int(each.stem) for each in log.glob("[0-9]*.json") if each.stem.isdigit()), reverse=True)
        oldest = versions[-1] if versions else 0
        return next((v for v in versions if _commit(log, v).stat().st_mtime < self.since), oldest - 1)


def _commit(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


def _identity(commit: Path) -> tuple[int, int] | None:
    """Which file it is: a table that was made again has others."""
    try:
        told = commit.stat()
    except FileNotFoundError:
        return None
    return told.st_ino, told.st_mtime_ns


_watched: defaultdict[tuple[int, str], list[TableWrites]] = defaultdict(list)
_watched_lock = Lock()


def watched(root: str) -> TableWrites | None:
    """This process's view of the lake at a root, the same for all of its steps; None where it has used no engine."""
    since = marked_since()
    if since is None:
        return None
    place = root.removeprefix("file://").removeprefix("file:")
    with _watched_lock:
        found = _watched[os.getpid(), place]
        if not found:
            found.append(TableWrites(Path(place), since - _CLOCKS))
        return found[0]


def _is_own(commit: Path) -> bool:
    """Whether a commit has this process's mark and changes rows. What others wrote is read as far as it says who."""
    is_marked = False
    with commit.open(encoding="utf-8") as lines:
        for line in lines:
            action: Mapping[str, Any] = json.loads(line)
            if "commitInfo" in action and not is_marked:
                is_marked = action["commitInfo"].get("userMetadata") == session_mark()
                if not is_marked:
                    return False
            elif any((action.get(kind) or {}).get("dataChange", False) for kind in ("add", "remove")):
                # A writer that tells of itself last is none of the engine's.
                return is_marked
    return False
