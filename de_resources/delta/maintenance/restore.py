"""Taking a table back to an earlier version, in one commit. Part of *Full Loader*: every load can be undone.

The restored state is a new version; the versions between stay readable. Source: Delta's `RESTORE`.
"""

from __future__ import annotations

import time
from dataclasses import replace

from pyspark.sql import SparkSession

from de_resources.delta.log import Commit, TableLog
from de_resources.delta.log.versions import files_of, version_to_read
from de_resources.delta.maintenance.statements import stamped
from de_resources.delta.table import CommitInfo, Table, TableMissing, Written
from de_resources.delta.write import constraints
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.lock import commit_lock
from de_resources.delta.write.refusals import explained
from de_resources.errors import PermanentError

READS_POSITIONS = {"reads": "positions"}
"""What the stamp of a commit says whose rows came from the positions after those that were read before."""


class WouldLoseRecords(PermanentError):
    """A restore to before a commit of a stream, whose position would stay where it is."""

    def __init__(self, table: str, version: int, fed: int, uri: str) -> None:
        self.table, self.version, self.fed, self.uri = table, version, fed, uri
        super().__init__(
            f"`{table}` was fed from a stream after version {version}, last in version {fed}. The stream's position is kept "
            "apart from the table and would not go back with it: the records between would never come again. Nothing was "
            f"changed. Go back to version {fed} or a later one; or move the folder {uri} away, with its checkpoint and the "
            "tables that the same asset writes, and materialise the asset: it reads all that its source still holds."
        )


def restore(
    session: SparkSession, table: Table, version: int, stamp: CommitInfo, *, lock_seconds: float = 60
) -> Written:
    """Make the table hold what `version` held, files and schema.

    Nobody else of the platform writes meanwhile. The constraints of the contract stay. Where the table holds that
    already, as after a rerun, nothing is committed and `skipped` says so. Raises `WouldLoseRecords` for a table that a
    stream has fed since, `TableMissing`, `VersionUnreadable`, `TableBusy`, `ConcurrentWrite`.
    """
    with commit_lock(table.uri, table=table.name, shared=False, timeout=lock_seconds):
        _require_position(table, version)
        written = restore_held(session, table, version, stamp)
        # The constraints of that version came back with it: fewer, or those of an older contract.
        blocked = constraints.enforce(session, table)
        return replace(written, details={**written.details, **constraints.told(blocked)})


def _require_position(table: Table, version: int) -> None:
    log = table.log()
    if log is None:
        raise TableMissing(table.name)
    fed = next((commit.version for commit in _commits_after(log, version) if _is_of_a_stream(commit)), None)
    if fed is not None:
        raise WouldLoseRecords(table.name, version, fed, table.uri)


def _commits_after(log: TableLog, version: int) -> list[Commit]:
    """Newest first. Of a version that can still be read, all later commits are in the log."""
    return log.commits(log.version - version) if log.version > version else []


def _is_of_a_stream(commit: Commit) -> bool:
    return commit.operation == "STREAMING UPDATE" or READS_POSITIONS.items() <= commit.stamp.items()


def restore_held(session: SparkSession, table: Table, version: int, stamp: CommitInfo) -> Written:
    """`restore` for a caller that holds the table's commit lock, and goes on writing under it."""
    started = time.monotonic()
    log = table.log()
    if log is None:
        raise TableMissing(table.name)
    source = version_to_read(log, table.name, version)
    if files_of(log, source) == files_of(log, log.version):
        reason = f"the table holds the rows of version {version} already; nothing was committed"
        return Written(log.version, None, None, None, time.monotonic() - started, skipped=reason)
    crash_point("before_commit", table.name)
    _restore(session, table, source, stamp)
    crash_point("after_commit", table.name)
    log = table.log()
    commit = log.find(attempt=stamp.attempt, limit=10) if log else None
    if log is None or commit is None:
        raise TableMissing(table.name)
    return Written(commit.version, commit, None, None, time.monotonic() - started)


def _restore(session: SparkSession, table: Table, version: int, stamp: CommitInfo) -> None:
    with explained(table), stamped(session, stamp) as own:
        own.sql(f"RESTORE TABLE {table.sql} TO VERSION AS OF {version:d}").collect()
