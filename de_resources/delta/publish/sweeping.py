"""Removing staged files that nobody sees, nothing waits for, and no rollback within the retention needs.

Delta's VACUUM leaves the folder of the staged table alone, whose files two logs name. A file stays while it is live in either
of them, and for the table's retention after both have given it up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import unquote

from de_resources.compat.delta_tables import filesystem_of
from de_resources.delta.log import TableLog
from de_resources.delta.log.versions import STAGED, Folder, files_of
from de_resources.delta.publish.records import forget
from de_resources.delta.publish.staging import staging_of
from de_resources.delta.table import Table
from de_resources.delta.write.lock import commit_lock


def sweep(table: Table, retention: timedelta, *, lock_seconds: float = 60) -> int:
    """Remove what is not needed any more from below the table; how many files these were. A table without a stage has none.

    The caller answers for a retention below the table's own. A rerun finds none. Raises `TableBusy` while somebody writes.
    """
    if staging_of(table).log() is None:
        return 0
    with commit_lock(table.uri, table=table.name, shared=False, timeout=lock_seconds):
        log, staging = table.log(), staging_of(table).log()
        if log is None or staging is None:
            return 0
        cutoff = time.time() - retention.total_seconds()
        needed = {*_needed(log, cutoff), *(f"{STAGED}/{path}" for path in _needed(staging, cutoff))}
        data = Folder.of(log).data.values()
        old = [f.path for f in data if is_staged(f.path) and f.path not in needed and f.modified <= cutoff]
        filesystem = filesystem_of(log.table)
        for path in old:
            filesystem.delete_file(path)
        forget(table, Folder.of(staging).commits)
        return len(old)


def is_staged(path: str) -> bool:
    """Whether a file, by its path in the published table's folder, is one of its stage."""
    return path.startswith(f"{STAGED}/")


def _needed(log: TableLog, cutoff: float) -> Iterator[str]:
    """What a table shows, and what it has shown since."""
    yield from files_of(log, log.version)
    for version in Folder.of(log).commits:
        for action in log.actions(version):
            removed = action.get("remove")
            if removed and removed.get("deletionTimestamp", 0) / 1000 > cutoff:
                yield unquote(removed["path"])
