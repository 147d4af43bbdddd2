"""Staged files by window: a stream appends them in many commits, so that a staged version means all that is live in it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from de_resources.delta.log import TableLog
from de_resources.delta.log.table_log import CommitGone
from de_resources.delta.log.versions import STAGED
from de_resources.delta.publish.publication import as_text
from de_resources.delta.publish.staging import (
    AUDIT,
    PASSED,
    STAGES,
    Key,
    StagedFile,
    StagedGone,
    StagedSlice,
    keys_of,
    keys_of_files,
    staged_slices,
    staging_of,
)
from de_resources.delta.slices import Slice
from de_resources.delta.table import Table


def live_slices(table: Table, version: int, slice_: Slice) -> dict[Key, StagedSlice]:
    """What lies in a staged version of each key of the slice, whichever commits brought it. Raises `StagedGone`.

    A file whose own commit the log has forgotten comes with its number of rows as its only statistic.
    """
    log = staging_of(table).log()
    if log is None:
        raise StagedGone(table.name, version, "nothing is staged")
    try:
        log.actions(version)
    except CommitGone as error:
        raise StagedGone(table.name, version, str(error)) from None
    keys = keys_of_files(log, slice_, version)
    found: dict[Key, list[StagedFile]] = defaultdict(list)
    for add in _added(log, version, keys):
        values = add["partitionValues"]
        own = {name: value for name, value in values.items() if name != AUDIT}
        path = unquote(add["path"])
        stats = add.get("stats") or ""
        found[keys[path]].append(StagedFile(f"{STAGED}/{path}", add["size"], own, stats, values[AUDIT] == PASSED))
    return {key: StagedSlice(tuple(found[key])) for key in keys_of(slice_)}


def staged_as_of(table: Table, version: int, slice_: Slice | None) -> dict[Key, StagedSlice]:
    """What a staged version says of each key: what its commit brought, of a stream all that was there.

    Raises `StagedGone`.
    """
    log = staging_of(table).log()
    commits = log.commits(log.version - version + 1) if log else []
    if slice_ is None or any(commit.version == version and STAGES in commit.stamp for commit in commits):
        return staged_slices(table, version, slice_)
    return live_slices(table, version, slice_)


def touched_since(log: TableLog, version: int) -> set[str] | None:
    """The files that were added after a staged version, by their paths; None where the log has forgotten it."""
    found: set[str] = set()
    try:
        for later in range(version + 1, log.version + 1):
            found |= {unquote(action["add"]["path"]) for action in log.actions(later) if "add" in action}
    except CommitGone:
        return None
    return found


def _added(log: TableLog, version: int, wanted: Mapping[str, Key]) -> list[Mapping[str, Any]]:
    """How these files were added, from the newest commit back to where the last one of them is found."""
    found: dict[str, Mapping[str, Any]] = {}
    for earlier in range(version, -1, -1):
        if len(found) == len(wanted):
            break
        try:
            actions = log.actions(earlier)
        except CommitGone:
            break
        adds = (action["add"] for action in actions if "add" in action)
        found.update({path: add for add in adds if (path := unquote(add["path"])) in wanted and path not in found})
    forgotten = wanted.keys() - found.keys()
    return [*found.values(), *(_from_state(log, row) for row in _rows(log, forgotten))]


def _rows(log: TableLog, paths: set[str]) -> list[Mapping[str, Any]]:
    return [row for row in log.files().to_pylist() if unquote(row["path"]) in paths] if paths else []


def _from_state(log: TableLog, row: Mapping[str, Any]) -> Mapping[str, Any]:
    values = {c: as_text(row[f"partition.{c}"]) for c in log.partition_columns()}
    stats = json.dumps({"numRecords": row["num_records"]})
    return {"path": row["path"], "size": row["size_bytes"], "partitionValues": values, "stats": stats}
