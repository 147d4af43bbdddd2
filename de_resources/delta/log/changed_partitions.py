"""Which partitions of a table changed since a version, told by its log. Nothing is scanned, and no JVM is started.

A partition changed where a commit added or removed files of it with `dataChange`. Compaction moves rows between files and
says that no data changed, so that it counts for nothing; neither does a commit of settings. A restore counts.

The log forgets: commits are removed once a checkpoint holds them and the log's retention is over. What happened in the
commits that are gone is not known any more. Every partition that the table still has may have changed in them, and the
answer says so.

Source: pattern *Dynamic Late Data Integrator*.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from deltalake.exceptions import DeltaError
from pyarrow.fs import FileInfo, FileSelector, PyFileSystem

from de_resources.compat.delta_tables import filesystem_of, table_at
from de_resources.delta.log import TableLog
from de_resources.errors import PermanentError

LOG_GONE = "UNKNOWN: THE LOG IS GONE"
"""The operation of a change that nobody can tell any more."""

LONG_AGO = datetime.fromtimestamp(0, UTC)
"""The time of such a change: it needs no patience with others that may belong to it."""

_COMMIT = re.compile(r"(\d{20})\.json")

Values = tuple[str | None, ...]
"""A partition's values in the order of the table's partition columns, as the log writes them."""


class NoPartitions(PermanentError):
    """A table that is not stored by partition: its log cannot tell which of its partitions changed."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(
            f"The table at {uri} has no partition columns, so that its log does not tell which partitions changed. "
            "Store it by partition (`partitioned_by` of its contract), or recompute all that depends on it."
        )


@dataclass(frozen=True)
class PartitionChange:
    """The last commit that changed a partition. `run` is the run that its stamp names; empty: somebody else's commit."""

    version: int
    at: datetime
    operation: str
    run: str = ""


@dataclass(frozen=True)
class ChangedPartitions:
    """What changed in the versions after the asked one, up to `through`.

    `gone_before`: commits before this version were needed and are gone; partitions that the table had by then are among
    `changed` with the version before, and any other that a reader remembers may have changed as well.
    """

    table_id: str
    through: int
    changed: Mapping[Values, PartitionChange]
    gone_before: int | None = None


def changed_partitions(log: TableLog, since: int = -1) -> ChangedPartitions:
    """The partitions that changed in the versions after `since`; -1: ever. Reads each of these commits once.

    Raises `NoPartitions`.
    """
    columns = log.partition_columns()
    if not columns:
        raise NoPartitions(log.table.table_uri)
    return _changed(log, columns, since)


def written_around(log: TableLog, since: int = -1) -> dict[Values, PartitionChange]:
    """The partitions whose last change in the versions after `since` has no run's stamp: somebody wrote around the platform.

    `()` stands for all of a table without partitions. What the log has forgotten is not told.
    """
    changed = _changed(log, log.partition_columns(), since).changed
    return {values: c for values, c in changed.items() if not c.run and c.operation != LOG_GONE}


def _changed(log: TableLog, columns: list[str], since: int) -> ChangedPartitions:
    names = log.stored_names()
    stored = [names[c] for c in columns]
    filesystem = filesystem_of(log.table)
    first, changed, gone_before = since + 1, dict[Values, PartitionChange](), None
    if first <= log.version and (kept := _oldest_kept(filesystem, first, log.version)) > first:
        changed, gone_before = _as_of(log, columns, kept - 1), kept
        first = kept
    for version in range(first, log.version + 1):
        actions = list(_actions(filesystem, version))
        change = _change(version, actions)
        changed |= dict.fromkeys(_touched(actions, stored), change)
    return ChangedPartitions(str(log.table.metadata().id), log.version, changed, gone_before)


def _oldest_kept(filesystem: PyFileSystem, first: int, last: int) -> int:
    """The first version from which on all commits are there, up to `last`. One past `last`: not even that one is."""
    listed: list[FileInfo] = filesystem.get_file_info(FileSelector("_delta_log"))
    names = [_COMMIT.fullmatch(file.base_name) for file in listed]
    kept = {int(name[1]) for name in names if name}
    missing = [version for version in range(first, last + 1) if version not in kept]
    return missing[-1] + 1 if missing else first


def _as_of(log: TableLog, columns: list[str], version: int) -> dict[Values, PartitionChange]:
    """All partitions of the table as it was at a version, or as it is where that cannot be built any more."""
    table = log.table
    if version != log.version:
        try:
            table = table_at(table, version)
        except DeltaError:
            table = log.table
    change = PartitionChange(version, LONG_AGO, LOG_GONE)
    partitions = [{str(k): v for k, v in found.items()} for found in table.partitions()]
    return {tuple(found[c] for c in columns): change for found in partitions}


def _change(version: int, actions: list[Mapping[str, Any]]) -> PartitionChange:
    empty: Mapping[str, Any] = {}
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), empty)
    at = datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
    return PartitionChange(version, at, str(info.get("operation", "")), _run(info.get("userMetadata")))


def _run(stamp: object) -> str:
    try:
        told = json.loads(str(stamp)) if stamp else {}
    except ValueError:
        return ""
    return str(told.get("run", "")) if isinstance(told, dict) else ""


def _touched(actions: list[Mapping[str, Any]], columns: list[str]) -> Iterator[Values]:
    for action in actions:
        file = action.get("add") or action.get("remove")
        # Left out means true, as writers of the first versions of the format do.
        if file and file.get("dataChange", True):
            values = file.get("partitionValues") or _by_folder(file["path"])
            yield tuple(values.get(c) or None for c in columns)


def _by_folder(path: str) -> dict[str, str]:
    """A removal need not carry its values; its folders do (`day=2024-01-01`), encoded once more than the path."""
    pairs = (segment.partition("=") for segment in unquote(path).split("/") if "=" in segment)
    return {unquote(name): unquote(value) for name, _, value in pairs if value != "__HIVE_DEFAULT_PARTITION__"}


def _actions(filesystem: PyFileSystem, version: int) -> Iterator[Mapping[str, Any]]:
    with filesystem.open_input_file(f"_delta_log/{version:020}.json") as handle:
        yield from map(json.loads, handle.read().splitlines())
