"""A write for which there was no room: what it left behind is removed, and the error says how much lies where.

The engine leaves the files of a failed write where they are, for a reader never sees them. On a full disk they are what
keeps it full. They are removed here where that is safe: on a local disk, with the table's lock held alone so that no other
writer of the platform is under way, and only files that are younger than this attempt and that no commit names.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from de_resources.delta.log import TableLog
from de_resources.delta.log.versions import Folder, StoredFile, files_of
from de_resources.delta.table import Table
from de_resources.delta.write.lock import TableBusy, commit_lock, local_folder
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.errors import PermanentError

_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded|File too large")
_PATIENCE = 5.0


@dataclass(frozen=True)
class DiskUsage:
    """Bytes of the attempt's own files that were removed, of what readers see, of all else in the folder, and free ones."""

    removed: int
    live: int
    other: int
    free: int


class DiskFull(PermanentError):
    """A write for which the disk, or the quota on it, has no room."""

    def __init__(self, table: str, folder: Path, reason: str, room: DiskUsage) -> None:
        self.table, self.folder, self.reason, self.room = table, folder, reason, room
        super().__init__(
            f"There is no room to write `{table}` ({reason}). Nothing was committed, readers see what was there. "
            f"{_size(room.removed)} that this attempt had written were removed. In {folder} lie {_size(room.live)} that "
            f"readers see and {_size(room.other)} of earlier versions and failed writes; its disk has {_size(room.free)} "
            "free. Make room - the job `maintenance` removes what no version within the retention needs - and run again."
        )


@contextmanager
def room_explained(table: Table) -> Iterator[None]:
    """Raise `DiskFull` for a write inside that found no room; other failures as they are.

    The table's lock is taken inside of it, so that it is free again when what was left behind is removed.
    """
    began = time.time()
    try:
        yield
    except ENGINE_ERRORS as error:
        full = disk_full(error, table, began)
        if full is None:
            raise
        raise full from error


def disk_full(error: Exception, table: Table, since: float) -> DiskFull | None:
    """The platform's error for a write that began at `since` and found no room; None for other failures.

    The caller does not hold the table's lock any more.
    """
    reason, folder = _NO_ROOM.search(str(error)), local_folder(table.uri)
    if reason is None or folder is None or not folder.exists():
        return None
    removed = _removed(table, folder, since)
    found, seen = _contents(table.log(), folder)
    live = sum(found.data[path].bytes for path in seen & found.data.keys())
    other = sum(file.bytes for file in found.data.values()) - live
    return DiskFull(table.name, folder, reason[0], DiskUsage(removed, live, other, shutil.disk_usage(folder).free))


def _removed(table: Table, folder: Path, since: float) -> int:
    """Remove the files of the failed attempt; the number of their bytes. None are, where somebody else is writing."""
    try:
        with commit_lock(table.uri, table=table.name, shared=False, timeout=_PATIENCE):
            log = TableLog.open(table.uri, table.storage_options)
            left = list(_left_behind(log, folder, since))
            for file in left:
                path = folder / file.path
                path.unlink(missing_ok=True)
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            return sum(file.bytes for file in left)
    except TableBusy:
        return 0


def _contents(log: TableLog | None, folder: Path) -> tuple[Folder, set[str]]:
    """What lies in the folder, and the paths that readers see; none without a log, which the first write would have made."""
    if log is not None:
        return Folder.of(log), files_of(log, log.version)
    found = ((path, path.stat()) for path in folder.rglob("*.parquet"))
    files = (StoredFile(str(path.relative_to(folder)), stat.st_size, stat.st_mtime) for path, stat in found)
    return Folder({file.path: file for file in files}, {}, frozenset()), set()


def _left_behind(log: TableLog | None, folder: Path, since: float) -> Iterator[StoredFile]:
    """Files written since then that no commit names. A commit that names one of them was written since then as well."""
    found, named = _contents(log, folder)
    for commit in found.commits.values():
        if commit.modified >= since:
            named |= set(_names(folder / commit.path))
    for file in found.data.values():
        if file.modified >= since and file.path.endswith(".parquet") and file.path not in named:
            yield file


def _names(commit: Path) -> Iterator[str]:
    for line in commit.read_text().splitlines():
        for action in json.loads(line).values():
            if isinstance(action, dict) and isinstance(action.get("path"), str):
                yield unquote(action["path"])


def _size(count: int) -> str:
    """Bytes for people: `1.5 GiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
