"""Compaction and vacuum of one table, with the figures of what they did.

Pattern *Compactor*: many small files become few, in one commit that changes no row; afterwards the files that nobody
may read any more are removed. Both take the table's lock for themselves, so that no writer of the platform is under way
meanwhile: it waits, and neither loses a conflict to the compaction nor a file to the vacuum. Readers take no lock and
notice nothing. What finds nothing to do starts no engine and commits nothing.

Source: Delta's `OPTIMIZE` and `VACUUM … RETAIN`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import SparkSession

from de_resources.delta.log import Commit, TableLog
from de_resources.delta.log.retention import agreed, hours
from de_resources.delta.log.versions import Folder, files_of, readable_versions
from de_resources.delta.maintenance import reference_query
from de_resources.delta.maintenance.statements import stamped
from de_resources.delta.publish.sweeping import is_staged, sweep
from de_resources.delta.table import CommitInfo, Table, TableMissing
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.lock import commit_lock
from de_resources.delta.write.refusals import ConcurrentWrite, explained
from de_resources.errors import PermanentError

ATTEMPTS = 3


class EmptyTable(PermanentError):
    """A table without a file: there is nothing to maintain."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(f"`{table}` holds no files: there is nothing to compact or to remove.")


@dataclass(frozen=True)
class Size:
    """A number of files and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Report:
    """What maintenance did. `live` files are those of the newest version, `stored` ones all that lie in the folder.

    `compacted` is the version that compaction committed, or None where there was nothing to compact; `query` compares
    the reference query on the versions around it. `lost` are the versions that could be read before and cannot now.
    `described`: the table got the description of its contract.
    """

    table: str
    live_before: Size
    live_after: Size
    stored_before: Size
    stored_after: Size
    retention: timedelta
    compacted: int | None
    query: reference_query.Comparison | None
    lost: tuple[int, ...]
    oldest_readable: int
    compaction_seconds: float
    vacuum_seconds: float
    described: bool = False

    @property
    def did_nothing(self) -> bool:
        """Whether the table was in order already."""
        return self.compacted is None and self.stored_before == self.stored_after and not self.described


def maintain(
    session: SparkSession,
    table: Table,
    stamp: CommitInfo,
    *,
    retention: timedelta | None = None,
    override: str | None = None,
    query_runs: int = 3,
    lock_seconds: float = 60,
) -> Report:
    """Compact the table, compare the reference query before and after, then remove files beyond the retention.

    The table gets the description of its contract, where it has another one.
    `retention` defaults to the table's own; less needs the `override` in words. `query_runs=0` leaves the reference
    query out, which otherwise reads a sample of the table (`reference_query`) twice that often. A rerun finds nothing to
    do and commits nothing.
    Raises `RetentionRefused` before anything is touched, `TableMissing`, `EmptyTable`, `TableBusy` when writers hold
    the table for longer than `lock_seconds`, `ConcurrentWrite` when writers from outside the platform win three times.
    """
    log = _opened(table)
    retention = agreed(table.name, log, retention, override)
    if log.files().num_rows == 0:
        raise EmptyTable(table.name)
    folder = Folder.of(log)
    sample = reference_query.sample_of(log) if query_runs else None
    live_before, stored_before, readable_before = _live(log), _stored(folder), readable_versions(log, folder)

    described = describe(session, table, stamp, lock_seconds=lock_seconds)
    started = time.monotonic()
    commit = compact(session, table, stamp, lock_seconds=lock_seconds)
    compaction_seconds = time.monotonic() - started
    query = None
    if commit is not None and sample is not None:
        query = reference_query.compare(session, table, sample, commit.version - 1, commit.version, query_runs)
    started = time.monotonic()
    vacuum(session, table, stamp, retention=retention, lock_seconds=lock_seconds)
    sweep(table, retention, lock_seconds=lock_seconds)
    vacuum_seconds = time.monotonic() - started

    log = _opened(table)
    folder = Folder.of(log)
    readable = readable_versions(log, folder)
    return Report(
        table=table.name,
        live_before=live_before,
        live_after=_live(log),
        stored_before=stored_before,
        stored_after=_stored(folder),
        retention=retention,
        compacted=commit.version if commit else None,
        query=query,
        lost=tuple(sorted(set(readable_before) - set(readable))),
        oldest_readable=readable[0],
        compaction_seconds=compaction_seconds,
        vacuum_seconds=vacuum_seconds,
        described=described,
    )


def describe(session: SparkSession, table: Table, stamp: CommitInfo, *, lock_seconds: float = 60) -> bool:
    """Tell who reads the table without the platform what it holds: the description of its contract; False: it says so already.

    A first write that creates its table has no place for it, and a contract may change its words. Raises `TableBusy`.
    """
    wanted = table.contract.description if table.contract else None
    if wanted is None or _opened(table).table.metadata().description == wanted:
        return False
    with (
        commit_lock(table.uri, table=table.name, shared=False, timeout=lock_seconds),
        explained(table),
        stamped(session, stamp) as own,
    ):
        table.set_properties(own, {"comment": wanted})
    return True


def compact(session: SparkSession, table: Table, stamp: CommitInfo, *, lock_seconds: float = 60) -> Commit | None:
    """Join small files within each partition, in one commit; None where no partition has two files.

    A conflict with a writer that does not know the lock is tried again; the writer's rows stand in any case.
    Raises `TableBusy`, and `ConcurrentWrite` after `ATTEMPTS` conflicts.
    """
    if not _has_small_files(_opened(table)):
        return None
    with commit_lock(table.uri, table=table.name, shared=False, timeout=lock_seconds):
        crash_point("before_commit", table.name)
        insist(lambda: _optimize(session, table, stamp), ATTEMPTS)
        crash_point("after_commit", table.name)
        return _opened(table).find(attempt=stamp.attempt, limit=10)


def insist(action: Callable[[], None], attempts: int) -> None:
    """Do it again after a conflict, up to so many attempts; then raise the last `ConcurrentWrite`."""
    from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

    retrying = Retrying(retry=retry_if_exception_type(ConcurrentWrite), stop=stop_after_attempt(attempts), reraise=True)
    retrying(action)


def vacuum(
    session: SparkSession, table: Table, stamp: CommitInfo, *, retention: timedelta, lock_seconds: float = 60
) -> None:
    """Remove files that no version within the retention needs. Without a file of that age nothing is committed.

    The caller answers for a retention below the table's own (`retention.agreed`). Raises `TableBusy`.
    """
    if not _has_old_files(_opened(table), retention):
        return
    options = {"retentionDurationCheck.enabled": "false", "vacuum.retentionWindowIgnore.enabled": "false"}
    with (
        commit_lock(table.uri, table=table.name, shared=False, timeout=lock_seconds),
        explained(table),
        stamped(session, stamp, **options) as own,
    ):
        crash_point("before_commit", table.name)
        # Hours may be broken ones, and Delta takes them as a decimal number.
        own.sql(f"VACUUM {table.sql} RETAIN {hours(retention):.6f} HOURS").collect()
        crash_point("after_commit", table.name)


def _optimize(session: SparkSession, table: Table, stamp: CommitInfo) -> None:
    with explained(table), stamped(session, stamp) as own:
        own.sql(f"OPTIMIZE {table.sql}").collect()


def _opened(table: Table) -> TableLog:
    log = table.log()
    if log is None:
        raise TableMissing(table.name)
    return log


def _has_small_files(log: TableLog) -> bool:
    """Whether some partition has two files, or the table is clustered, where one file may need work as well."""
    columns = [f"partition.{c}" for c in log.partition_columns()]
    files = Counter(tuple(row[c] for c in columns) for row in log.files().select(["path", *columns]).to_pylist())
    return max(files.values(), default=0) > 1 or "clustering" in (log.table.protocol().writer_features or [])


def _has_old_files(log: TableLog, retention: timedelta) -> bool:
    """Whether a file that the newest version does not need is older than the retention: no tombstone is older.

    Staged files are none of Delta's VACUUM, but of `sweep`.
    """
    live = files_of(log, log.version)
    cutoff = time.time() - retention.total_seconds()
    return any(
        f.path not in live and f.modified <= cutoff for f in Folder.of(log).data.values() if not is_staged(f.path)
    )


def _live(log: TableLog) -> Size:
    sizes = log.files().column("size_bytes").to_pylist()
    return Size(len(sizes), sum(sizes))


def _stored(folder: Folder) -> Size:
    return Size(len(folder.data), sum(f.bytes for f in folder.data.values()))
