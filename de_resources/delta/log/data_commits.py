"""The commits that brought rows, newest first: what housekeeping wrote meanwhile is passed over.

Compaction and clustering move rows between files and say so (`dataChange: false`); VACUUM and settings add no file; an
overwrite by nothing adds none with rows. DELETE, UPDATE and RESTORE change data, but bring none: erasing a person is no sign
that a source lives.

Source: Delta transaction log protocol, *Add File and Remove File* and *Commit Provenance Information*.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from de_resources.delta.log.table_log import CommitGone, TableLog

CHANGES_ONLY = frozenset({"DELETE", "UPDATE", "RESTORE"})
"""Operations that write rows which the table had before."""


@dataclass(frozen=True)
class DataCommit:
    """One commit: when, by its writer's clock, and the partition values of the files with rows that it added; maybe none."""

    version: int
    at: datetime
    operation: str
    partitions: tuple[Mapping[str, str | None], ...]

    @property
    def brought(self) -> bool:
        """Whether it brought rows."""
        return bool(self.partitions)


def newest_commits(log: TableLog, at_most: int) -> Iterator[DataCommit]:
    """All commits that the log still has, newest first, housekeeping too (with nothing brought), at most so many.

    Each is one file to read: stop as soon as you know enough.
    """
    for version in range(log.version, max(-1, log.version - at_most), -1):
        try:
            actions = log.actions(version)
        except CommitGone:
            return
        yield _commit(version, actions)


def _commit(version: int, actions: list[dict[str, Any]]) -> DataCommit:
    empty: Mapping[str, Any] = {}
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), empty)
    adds = [action["add"] for action in actions if "add" in action]
    operation = str(info.get("operation", ""))
    # A writer need not say when; its files do.
    stamp = (
        info.get("inCommitTimestamp") or info.get("timestamp") or max((a["modificationTime"] for a in adds), default=0)
    )
    brought = (
        () if operation in CHANGES_ONLY else tuple(add.get("partitionValues") or {} for add in adds if _brings(add))
    )
    return DataCommit(version, datetime.fromtimestamp(stamp / 1000, UTC), operation, brought)


def _brings(add: Mapping[str, Any]) -> bool:
    # Left out means true, as writers of the first versions of the format do; so do files without statistics hold rows.
    return bool(add.get("dataChange", True)) and _rows(add) != 0


def _rows(add: Mapping[str, Any]) -> int | None:
    try:
        told = json.loads(add["stats"])["numRecords"]
    except (KeyError, TypeError, ValueError):
        return None
    return int(told)
