"""A Delta table from folder to folder with its transaction log. Pattern: Passthrough Replicator.

The replica has the source's commits, byte by byte, so that its history and time travel are the source's own. A reader
sees complete versions only: a version's data files and deletion vectors are there before its commit gets its name, and
commits get their names in order. A run copies what is new; a killed one is continued by the next. What the source has
removed since (VACUUM, log retention) is removed here as well, so that an erasure reaches the replica.

A replica that somebody else wrote to is refused: its history is no longer the source's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from de_resources import atomic_files
from de_resources.delta.write.lock import commit_lock
from de_resources.errors import PermanentError, TransientError
from de_resources.replication.delta_log import LAST_CHECKPOINT, LOG, DeltaLog, LogChanged, LogGap
from de_resources.replication.environments import require_apart


class SourceTableMissing(PermanentError):
    """The source of a replica is not a Delta table, or not any more."""

    def __init__(self, table: Path) -> None:
        self.table = table
        super().__init__(
            f"There is no Delta table at `{table}`. The replica stays as it is. Materialise the source, or restore it; if "
            "it was dropped for good, remove the replica by hand."
        )


class ReplicaDiverged(PermanentError):
    """The replica has a commit that is not the source's."""

    def __init__(self, replica: Path, version: int) -> None:
        self.replica, self.version = replica, version
        super().__init__(
            f"Version {version} of the replica `{replica}` is not the source's: somebody else wrote to the replica, or the "
            "source was dropped and made again. Nothing was written. Remove the replica and run again to copy it afresh."
        )


class SourceFileMissing(TransientError):
    """A file that the source's version needs is not there."""

    def __init__(self, table: Path, name: str) -> None:
        self.table, self.name = table, name
        super().__init__(
            f"The table `{table}` needs its file `{name}`, which is not there. The replica keeps its last whole version. Run "
            "again; if the file stays away, the source itself is damaged: restore it."
        )


@dataclass(frozen=True)
class Replicated:
    """What a replication did: the replica's version, the one before (None: there was none), and the files' figures."""

    version: int
    previous: int | None
    files_copied: int
    files_removed: int
    bytes_copied: int


def replicate_table(source: Path, target: Path, *, version: int | None = None) -> Replicated:
    """Bring the replica to a version of the source, by default its newest; older ones stay readable on both sides.

    One replication of a target at a time: a second one waits. A rerun copies nothing. A replica that is newer than
    `version` stays newer.

    Raises `SourceTableMissing`, `SourceFileMissing`, `ReplicaDiverged`, `EnvironmentsOverlap`, and what
    `delta_log` raises for tables that cannot be copied this way.
    """
    require_apart([str(source)], str(target))
    log = DeltaLog.read(source)
    if log is None:
        raise SourceTableMissing(source)
    wanted = log.version if version is None else version
    with commit_lock(str(target), table=target.name, shared=False):
        atomic_files.discard_staged(target)
        replica = DeltaLog.read(target)
        copying = _Copying(log, target, wanted)
        try:
            if replica is not None:
                _require_same_history(log, replica)
            copying.bring(replica)
        except FileNotFoundError:
            raise LogChanged(source) from None
        removed = copying.remove_vanished()
    previous = replica.version if replica else None
    return Replicated(max(wanted, previous or 0), previous, copying.files, removed, copying.bytes)


def _require_same_history(log: DeltaLog, replica: DeltaLog) -> None:
    """Every commit that the replica has must be the source's, as far as the source still has it."""
    for version, commit in replica.commits.items():
        own = log.commits.get(version)
        ahead = own is None and version > log.version
        if ahead or (own is not None and own.read_bytes() != commit.read_bytes()):
            raise ReplicaDiverged(replica.table, version)


class _Copying:
    """Copies files that are not there yet, in the order in which readers may see them."""

    def __init__(self, log: DeltaLog, target: Path, version: int) -> None:
        self.log, self.target, self.version = log, target, version
        self.files = self.bytes = 0

    def bring(self, replica: DeltaLog | None) -> None:
        """Data first, then the log."""
        base = self.log.base()
        versions = [v for v in sorted(self.log.commits) if v <= self.version]
        if self.version not in versions:
            raise LogGap(self.log.table, self.version)
        live = self.log.live_files(self.version)
        needed = {v: self.log.files(v) for v in versions if replica is None or v not in replica.commits}
        for name in sorted(set().union(live, self.log.live_files(base) if base is not None else (), *needed.values())):
            self._data(name, required=name in live)
        if base is not None and base <= self.version:
            # Commits older than this checkpoint do not build a version by themselves.
            self._log_files(self.log.checkpoints[base])
        for each in versions:
            self._log_files([self.log.commits[each]])
            self._log_files(self.log.checkpoints.get(each, ()))
        self._hint()

    def remove_vanished(self) -> int:
        """Remove what the source removed since; the number of files."""
        kept = _stored(self.log.table)
        if f"{LOG}/{self.log.commits[self.version].name}" not in kept:
            raise SourceTableMissing(self.log.table)  # dropped meanwhile: that empties no replica
        gone = [path for name, path in _stored(self.target).items() if name not in kept]
        for path in gone:
            path.unlink()
        return len(gone)

    def _data(self, name: str, *, required: bool) -> None:
        """A data file has a name of its own and never changes: one that is there with its size is the same."""
        source, target = self.log.table / name, self.target / name
        try:
            if not target.is_file() or target.stat().st_size != source.stat().st_size:
                self._copy(source, target)
        except FileNotFoundError:
            # Only an old version needs it, and the source cannot be read at that version either (VACUUM).
            if required:
                raise SourceFileMissing(self.log.table, name) from None

    def _log_files(self, paths: Iterable[Path]) -> None:
        for path in paths:
            target = self.target / LOG / path.name
            if not target.is_file():
                self._copy(path, target)

    def _hint(self) -> None:
        """The pointer to the last checkpoint spares readers a listing; one to a checkpoint that is not here misleads."""
        hint, target = (table / LOG / LAST_CHECKPOINT for table in (self.log.table, self.target))
        if not hint.is_file():
            return
        text = hint.read_bytes()
        version = json.loads(text)["version"]
        known = version in self.log.checkpoints and version <= self.version
        if known and not (target.is_file() and target.read_bytes() == text):
            atomic_files.copy(hint, target)

    def _copy(self, source: Path, target: Path) -> None:
        atomic_files.copy(source, target)
        self.files += 1
        self.bytes += target.stat().st_size


def _stored(table: Path) -> dict[str, Path]:
    """The files of a table that are a replicator's affair: data, change data, deletion vectors, commits, checkpoints."""
    log = DeltaLog.read(table)
    own = {*log.commits.values(), *chain.from_iterable(log.checkpoints.values())} if log else set()
    stored = {path for path in table.rglob("*") if path.suffix in (".parquet", ".bin") and LOG not in path.parts}
    return {path.relative_to(table).as_posix(): path for path in own | stored if not path.name.startswith(".")}


def table_digests(source: Path, replica: Path) -> tuple[dict[str, str], dict[str, str]]:
    """SHA-256 by name of what makes up both tables at the replica's version: commits, data files, deletion vectors.

    What the source committed after the replication is not looked at. A replica without a log has nothing. Reads every
    live file of both sides once. Raises `SourceTableMissing`.
    """
    log, copy = DeltaLog.read(source), DeltaLog.read(replica)
    if log is None:
        raise SourceTableMissing(source)
    version = min(log.version, copy.version) if copy else log.version
    last = copy.version if copy else log.version
    return _digests(log, version, last, min(log.commits)), _digests(
        copy, version, last, min(log.commits)
    ) if copy else {}


def _digests(log: DeltaLog, version: int, last: int, first: int) -> dict[str, str]:
    commits = [f"{LOG}/{path.name}" for v, path in log.commits.items() if first <= v <= last]
    names = [*commits, *log.live_files(version)]
    return {name: atomic_files.sha256(log.table / name) for name in names if (log.table / name).is_file()}
