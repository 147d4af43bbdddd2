"""Which versions of a table can still be read, told from its log and its files. Nothing is scanned.

A version is readable while the log can build it, all its data files are there, and it is no older than the table's
retention (`delta.deletedFileRetentionDuration`): Delta refuses older ones even where their files survive. Files of
deletion vectors, which no table of the platform has, are not looked for.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from de_resources.compat.delta_tables import filesystem_of, table_at
from de_resources.delta.log import TableLog
from de_resources.delta.log.retention import retention_of
from de_resources.errors import PermanentError

HOUSEKEEPING = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Operations that leave the rows as they are."""

STAGED = "_staged"
"""The folder below a table in which what is to be published is staged."""

_LOG = "_delta_log"
_COMMIT = re.compile(rf"{_LOG}/(\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{_LOG}/(\d{{20}})\.checkpoint\..*parquet")


class VersionUnreadable(PermanentError):
    """Time travel to a version that does not exist, or whose files are gone."""

    def __init__(self, table: str, version: int, reason: str, readable: Sequence[int]) -> None:
        self.table, self.version, self.reason, self.readable = table, version, reason, tuple(readable)
        super().__init__(
            f"Version {version} of `{table}` cannot be read: {reason}. The oldest readable version is {readable[0]}; "
            f"available are {ranges(readable)}. Choose one of these."
        )


@dataclass(frozen=True)
class StoredFile:
    """A file in the table's folder, whether a reader sees it or not; `modified` in seconds since the epoch."""

    path: str
    bytes: int
    modified: float


@dataclass(frozen=True)
class Folder:
    """A table's folder as of one moment: its data files, and the commits and checkpoints of its log by version."""

    data: Mapping[str, StoredFile]
    commits: Mapping[int, StoredFile]
    checkpoints: frozenset[int]

    @classmethod
    def of(cls, log: TableLog) -> Folder:
        """List the folder once; an object store is asked page by page."""
        found = list(_listed(log))
        matches = {f.path: (_COMMIT.fullmatch(f.path), _CHECKPOINT.fullmatch(f.path)) for f in found}
        return cls(
            data={f.path: f for f in found if not f.path.startswith(f"{_LOG}/") and _is_data(f.path)},
            commits={int(commit[1]): f for f in found if (commit := matches[f.path][0])},
            checkpoints=frozenset(int(point[1]) for _, point in matches.values() if point),
        )


def readable_versions(log: TableLog, folder: Folder | None = None) -> list[int]:
    """All versions that can be read now, oldest first. Reads every commit of the log once."""
    folder = folder or Folder.of(log)
    start = 0 if 0 in folder.commits else min(folder.checkpoints, default=log.version)
    oldest_commit = time.time() - retention_of(log).total_seconds()
    live = files_of(log, start)
    readable = []
    for version in range(start, log.version + 1):
        if version > start:
            _apply(live, _actions(log, folder.commits[version].path))
        young = version == log.version or folder.commits[version].modified >= oldest_commit
        if young and all(_is_foreign(path) or path in folder.data for path in live):
            readable.append(version)
    return readable


def version_to_read(log: TableLog, table: str, version: int) -> int:
    """The version that holds the rows of `version`: itself, or the newest where only housekeeping came after it.

    Raises `VersionUnreadable`, which names the versions that can be read.
    """
    reason = _obstacle(log, version)
    if reason is None:
        return version
    if 0 <= version < log.version and all(
        c.operation in HOUSEKEEPING for c in log.commits(log.version - version) if c.version > version
    ):
        return log.version
    raise VersionUnreadable(table, version, reason, readable_versions(log))


def _obstacle(log: TableLog, version: int) -> str | None:
    """Why a version cannot be read, or None. Looks only for the files that the newest version no longer has."""
    if version == log.version:
        return None
    if not 0 <= version < log.version:
        return "there is no such version"
    filesystem = _filesystem(log)
    commit = filesystem.get_file_info(f"{_LOG}/{version:020}.json")
    try:
        wanted = files_of(log, version)
    except DeltaError:
        return "the log no longer reaches back to it"
    retention = retention_of(log)
    if commit.type == FileType.NotFound or commit.mtime.timestamp() < time.time() - retention.total_seconds():
        return f"it is older than the table's retention of {retention.total_seconds() / 3600:g} hours"
    suspects = sorted(path for path in wanted - files_of(log, log.version) if not _is_foreign(path))
    gone = [f for f in filesystem.get_file_info(suspects) if f.type == FileType.NotFound]
    return f"{len(gone)} of its {len(wanted)} files were vacuumed" if gone else None


def files_of(log: TableLog, version: int) -> set[str]:
    """The data files that a version consists of, by their path in the table's folder."""
    table = log.table
    if version != table.version():
        table = table_at(table, version)
    # The log URL-encodes a path once; the file's name in the folder is the decoded form.
    return {unquote(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()}


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers for people: `0, 3-9`."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _is_foreign(path: str) -> bool:
    """Whether a file lies outside the table's folder, as a clone's do: it is not this table's to keep or to lose."""
    return "://" in path or path.startswith(("/", "file:"))


def _filesystem(log: TableLog) -> PyFileSystem:
    return filesystem_of(log.table)


def _listed(log: TableLog) -> Iterator[StoredFile]:
    for info in _filesystem(log).get_file_info(FileSelector("", recursive=True)):
        if info.type == FileType.File:
            yield StoredFile(info.path, info.size, info.mtime.timestamp())


def _is_data(path: str) -> bool:
    """Hidden files and folders are not data: checksums, checkpoints of streams. `_day=…` is a partition.

    What is staged below a table is data: the table's own log names these files once they are published.
    """
    shown = ("_change_data", STAGED)
    return not any(p.startswith(("_", ".")) and "=" not in p for p in path.split("/") if p not in shown)


def _actions(log: TableLog, path: str) -> Iterator[Mapping[str, Any]]:
    with _filesystem(log).open_input_file(path) as handle:
        yield from map(json.loads, handle.read().splitlines())


def _apply(live: set[str], actions: Iterator[Mapping[str, Any]]) -> None:
    """Follow one commit. Within a commit a path may be removed and added: the addition stands."""
    added = set()
    for action in actions:
        if "remove" in action:
            live.discard(unquote(action["remove"]["path"]))
        elif "add" in action:
            added.add(unquote(action["add"]["path"]))
    live |= added
