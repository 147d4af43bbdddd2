"""Showing a staged slice: one commit to the readers' table that adds and removes names of files, and writes no row.

It goes through `deltalake`, without an engine. A commit that somebody else made meanwhile lets it look again: it never adds to
what it has not seen. What was published is told by the commits' stamps (`publications`), so that it can be taken back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction
from pyarrow.fs import FileType

from de_resources.compat.delta_tables import filesystem_of
from de_resources.delta.log import TableLog
from de_resources.delta.publish.staging import (
    WHOLE,
    Key,
    NotBySlice,
    StagedFile,
    StagedGone,
    StagedSlice,
    keys_of_files,
)
from de_resources.delta.publish.verdicts import Judged, from_texts, keyed_texts
from de_resources.delta.slices import Slice
from de_resources.delta.table import CommitInfo, Table, TableMissing
from de_resources.delta.write.crash_points import crash_point
from de_resources.delta.write.refusals import ConcurrentWrite
from de_resources.errors import PermanentError

By = Literal["audits", "person", "rollback"]
"""Who decided that readers see it."""

FACT = "publication"
"""The name under which the stamp of a commit tells of a publication."""
ATTEMPTS = 10
HISTORY = 1000
"""How many of a table's commits are looked at for publications."""

# Those that can be listed without being in use are told by their property.
_SUPPORTED = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "timestampNtz", "changeDataFeed", "columnMapping"}
)
_FORBIDDEN = (
    "delta.enableChangeDataFeed",
    "delta.enableRowTracking",
    "delta.enableDeletionVectors",
    "delta.appendOnly",
)


class CannotPublish(PermanentError):
    """A table in which files cannot be shown by their names alone."""

    def __init__(self, table: str, why: str) -> None:
        self.table, self.why = table, why
        super().__init__(
            f"Nothing can be published in `{table}`: {why}. Readers see what they saw. Remove it from the table, or leave "
            "`AuditedPublish` out of the asset's `writer`."
        )


class BreaksConstraints(PermanentError):
    """Rows that the store itself would refuse."""

    def __init__(self, table: str, keys: Sequence[str]) -> None:
        self.table, self.keys = table, tuple(keys)
        super().__init__(
            f"`{table}` has constraints, and {', '.join(keys)} holds rows that break the contract: the store itself would "
            "refuse them. Readers see what they saw. Correct the rows, or change the contract."
        )


@dataclass(frozen=True)
class Publication:
    """One commit that showed staged slices. `keys`: by the key's text, what was shown, with the verdict on it."""

    version: int
    by: By
    reason: str
    run: str
    keys: Mapping[str, Judged]


@dataclass(frozen=True)
class Shown:
    """What publishing did: the readers' version, whether a commit was made for it, and how long it took."""

    version: int
    committed: bool
    seconds: float
    files: int = 0
    bytes_written: int = 0


def publications(log: TableLog | None, limit: int = HISTORY) -> Iterator[Publication]:
    """The publications among the newest commits of the readers' table, newest first."""
    for commit in log.commits(limit) if log else ():
        told = commit.stamp.get(FACT)
        if isinstance(told, dict):
            keys = from_texts(told["keys"])
            yield Publication(commit.version, told["by"], told["reason"], str(commit.stamp.get("run", "")), keys)


def published_now(log: TableLog | None, key: Key) -> Publication | None:
    """The publication that readers see of a key; None where none is known."""
    text = WHOLE if key is None else key
    return next((p for p in publications(log) if text in p.keys), None)


def last_before(log: TableLog | None, keys: Sequence[Key]) -> dict[Key, Judged]:
    """For each key the verdict on the slice with which it is compared: the nearest earlier key, or the key's own last one.

    Only what the audits or a person let pass counts.
    """
    known: dict[str, Judged] = {}
    for publication in publications(log):
        for text, judged in publication.keys.items():
            known.setdefault(text, judged)
    found: dict[Key, Judged] = {}
    for key in keys:
        text = WHOLE if key is None else key
        earlier = [k for k in known if k < text] if key is not None else []
        nearest = max(earlier, default=text)
        if nearest in known:
            found[key] = known[nearest]
    return found


def publish(
    table: Table,
    slice_: Slice | None,
    slices: Mapping[Key, StagedSlice],
    verdicts: Mapping[Key, Judged],
    stamp: CommitInfo,
    *,
    by: By = "audits",
    reason: str = "",
    still: Callable[[TableLog], None] = lambda _: None,
) -> Shown:
    """Let readers see these staged slices in place of what they see of the same keys, in one commit of 0 bytes of data.

    Keys of `slice_` that are not among `slices` stay as they are. Where readers see it already, nothing is committed. The
    caller holds the table's commit lock; of several publishers at once each takes its turn, and looks again at what is there.
    `still` is asked before each attempt, and raises where this is not to be shown any more. Raises `TableMissing`,
    `CannotPublish`, `BreaksConstraints`, `StagedGone`, and `ConcurrentWrite` after `ATTEMPTS` turns of others.
    """
    started = time.monotonic()
    fact = {FACT: {"by": by, "reason": reason, "keys": keyed_texts({key: verdicts[key] for key in slices})}}
    stamp = replace(stamp, facts={**stamp.facts, **fact})
    for _ in range(ATTEMPTS):
        log = table.log()
        if log is None:
            raise TableMissing(table.name)
        require_publishable(table, log)
        _require_constraints(table, log, {key: verdicts[key] for key in slices})
        still(log)
        add, remove = _difference(log, slice_, slices)
        if not add and not remove:
            return Shown(log.version, False, time.monotonic() - started)
        _require_there(table, log, add, max((judged.staged or 0 for judged in verdicts.values()), default=0))
        crash_point("before_switch", table.name)
        try:
            _commit(log, add, remove, stamp)
        except CommitFailedError:
            continue
        crash_point("after_switch", table.name)
        return Shown(log.version + 1, True, time.monotonic() - started, len(add))
    raise ConcurrentWrite(table.name, f"others committed {ATTEMPTS} times before it")


def vanished(table: Table, slice_: Slice | None) -> int:
    """How many of the files that readers see of a slice are not there any more."""
    log = table.log()
    if log is None:
        return 0
    found = filesystem_of(log.table).get_file_info(list(keys_of_files(log, slice_)))
    return sum(f.type == FileType.NotFound for f in found)


def require_publishable(table: Table, log: TableLog) -> None:
    """Raise `CannotPublish` for a table whose features make a file more than its rows."""
    protocol, properties = log.table.protocol(), log.table.metadata().configuration
    foreign = {*(protocol.reader_features or []), *(protocol.writer_features or [])} - _SUPPORTED
    if foreign:
        raise CannotPublish(table.name, f"it has the feature `{min(foreign)}`")
    for name in _FORBIDDEN:
        if str(properties.get(name)).lower() == "true":
            raise CannotPublish(table.name, f"it has the property `{name}`")
    if (properties.get("delta.columnMapping.mode") or "none") != "none":
        raise CannotPublish(table.name, "it maps the names of its columns")


def require_stored_by(table: Table, log: TableLog, columns: Sequence[str]) -> None:
    """Raise `NotBySlice` where no file belongs to one key."""
    if not set(columns) <= set(log.partition_columns()):
        raise NotBySlice(table.name, columns)


def _require_constraints(table: Table, log: TableLog, verdicts: Mapping[Key, Judged]) -> None:
    broken = [WHOLE if key is None else key for key, judged in verdicts.items() if judged.violations]
    if broken and any(name.startswith("delta.constraints.") for name in log.table.metadata().configuration):
        raise BreaksConstraints(table.name, broken)


def _difference(
    log: TableLog, slice_: Slice | None, slices: Mapping[Key, StagedSlice]
) -> tuple[list[StagedFile], list[Mapping[str, Any]]]:
    """The files to add, and those to remove, so that of these keys exactly the staged files are live."""
    keys = keys_of_files(log, slice_)
    live = {
        path: row
        for row in pa.table(log.table.get_add_actions(flatten=True)).to_pylist()
        if keys.get(path := unquote(row["path"]), WHOLE) in slices
    }
    wanted = {f.path: f for each in slices.values() for f in each.passed}
    return [f for path, f in wanted.items() if path not in live], [
        {**row, "path": path} for path, row in live.items() if path not in wanted
    ]


def _require_there(table: Table, log: TableLog, files: Sequence[StagedFile], version: int) -> None:
    filesystem = filesystem_of(log.table)
    gone = [f.path for f in filesystem.get_file_info([f.path for f in files]) if f.type == FileType.NotFound]
    if gone:
        raise StagedGone(table.name, version, f"{len(gone)} of its {len(files)} files were vacuumed")


def _commit(log: TableLog, add: Sequence[StagedFile], remove: Sequence[Mapping[str, Any]], stamp: CommitInfo) -> None:
    now = int(time.time() * 1000)
    columns = log.partition_columns()
    actions: list[AddAction | RemoveAction] = [
        AddAction(f.path, f.bytes, {c: f.values.get(c) for c in columns}, now, True, f.stats) for f in add
    ]
    actions += [
        RemoveAction(row["path"], True, now, row["size_bytes"], {c: as_text(row[f"partition.{c}"]) for c in columns})
        for row in remove
    ]
    metrics = {
        "numFiles": str(len(add)),
        "numRemovedFiles": str(len(remove)),
        "numOutputRows": str(sum(f.rows for f in add)),
        # Of what is written now: the files are there.
        "numOutputBytes": "0",
    }
    # Whoever commits in between is looked at, and not retried past: its files may be of the same slice.
    properties = CommitProperties(
        max_commit_retries=0, custom_metadata={"userMetadata": stamp.text(), "operationMetrics": metrics}
    )
    log.table.create_write_transaction(actions, "append", log.table.schema(), columns, commit_properties=properties)


def as_text(value: Any) -> str | None:
    """A partition value as the log writes it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat(sep=" ")
        case date():
            return value.isoformat()
    return str(value)
