"""The staged table below a published one: where rows wait that no reader sees, and what the log knows of them.

It has the published table's columns and one more, `_audit`, by which it is partitioned besides: rows that were sorted out lie
in files of their own, so that the others can be published without rewriting one. A commit of it is a *staged version*.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.compat.delta_tables import table_at
from de_resources.delta.log import TableLog
from de_resources.delta.log.table_log import CommitGone, Stored
from de_resources.delta.log.versions import STAGED
from de_resources.delta.slices import Slice
from de_resources.delta.table import Table
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier

AUDIT = "_audit"
"""The column of the staged table that says what became of a row."""
PASSED, REJECTED = "passed", "rejected"
WHOLE = "all"
"""What stands for the key of a table without partitions, in the log."""
STAGES = "stages"
"""The name under which a commit of the staged table says which keys it stages; those of a stream do not say it."""

Key = str | None
"""A partition key; None for a table without partitions."""


class StagedGone(PermanentError):
    """A staged version whose commit or files are not there any more."""

    def __init__(self, table: str, version: int, why: str) -> None:
        self.table, self.version, self.why = table, version, why
        super().__init__(
            f"The staged version {version} of `{table}` is gone: {why}. Nothing was changed. Run the partition again."
        )


class NotBySlice(PermanentError):
    """A table whose files hold rows of several partition keys."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self.table, self.columns = table, tuple(columns)
        super().__init__(
            f"`{table}` is not stored by {', '.join(columns)}, so that no file belongs to one partition key and none can be "
            "published alone. Nothing was written. Name the columns in `partitioned_by`."
        )


@dataclass(frozen=True)
class StagedFile:
    """A staged file as the log of the published table will name it. `path` is relative to that table, and not encoded."""

    path: str
    bytes: int
    values: Mapping[str, str | None]
    stats: str
    passed: bool

    @property
    def statistics(self) -> Mapping[str, Any]:
        """Rows and nulls of the columns, as far as the engine took them."""
        found: Mapping[str, Any] = json.loads(self.stats) if self.stats else {}
        return found

    @property
    def rows(self) -> int:
        """The rows in the file."""
        return int(self.statistics.get("numRecords", 0))


@dataclass(frozen=True)
class StagedSlice:
    """What a staged version holds of one partition key."""

    files: tuple[StagedFile, ...] = ()

    @property
    def passed(self) -> tuple[StagedFile, ...]:
        """The files that can be published."""
        return tuple(f for f in self.files if f.passed)

    @property
    def rows(self) -> int:
        """Rows that can be published."""
        return sum(f.rows for f in self.passed)

    @property
    def rejected(self) -> int:
        """Rows that were sorted out."""
        return sum(f.rows for f in self.files if not f.passed)

    def nulls(self, column: str) -> int | None:
        """Nulls of a column; None where the statistics do not have it."""
        counts = [f.statistics.get("nullCount", {}).get(column) for f in self.passed]
        return None if any(c is None for c in counts) else sum(map(int, counts))


def staging_of(table: Table, columns: Sequence[str] | None = None) -> Table:
    """The staged table below `table`. `columns` are those by which the published one is partitioned."""
    layout = (*(table.partitioned_by if columns is None else columns), AUDIT)
    return replace(table, uri=f"{table.uri}/{STAGED}", contract=None, partitioned_by=layout, properties={})


def staged_rows(session: SparkSession, table: Table, version: int | None = None, *, kind: str = PASSED) -> DataFrame:
    """The rows of a staged version, with the columns of the published table; `kind=REJECTED`: those that were sorted out.

    Raises `TableMissing` and `VersionUnreadable`.
    """
    frame = staging_of(table).read(session, version)
    return frame.where(F.col(identifier(AUDIT)) == kind).drop(AUDIT)


def staged_slices(table: Table, version: int, slice_: Slice | None) -> dict[Key, StagedSlice]:
    """What a staged version brought of each key of the slice, by its commit. Raises `StagedGone`."""
    staging = staging_of(table)
    log = staging.log()
    if log is None:
        raise StagedGone(table.name, version, "nothing is staged")
    try:
        added = [action["add"] for action in log.actions(version) if "add" in action]
    except CommitGone as error:
        raise StagedGone(table.name, version, str(error)) from None
    keys = keys_of_files(log, slice_, version)
    found: dict[Key, list[StagedFile]] = defaultdict(list)
    for add in added:
        path = unquote(add["path"])
        if path in keys:
            values = {name: value for name, value in add["partitionValues"].items() if name != AUDIT}
            passed = add["partitionValues"][AUDIT] == PASSED
            found[keys[path]].append(
                StagedFile(f"{STAGED}/{path}", add["size"], values, add.get("stats") or "", passed)
            )
    return {key: StagedSlice(tuple(found[key])) for key in keys_of(slice_)}


def keys_of(slice_: Slice | None) -> tuple[Key, ...]:
    """The partition keys of a slice; None alone for a whole table."""
    return (None,) if slice_ is None else slice_.keys


def keys_of_files(log: TableLog, slice_: Slice | None, version: int | None = None) -> dict[str, Key]:
    """The key of each file inside the slice, by its path, which is not encoded."""
    table = log.table
    if version is not None and version != log.version:
        table = table_at(table, version)
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    if slice_ is None:
        return {unquote(f["path"]): None for f in files}
    keyed = {unquote(f["path"]): slice_.key_of({c: f[f"partition.{c}"] for c in slice_.columns}) for f in files}
    return {path: key for path, key in keyed.items() if key is not None}


def stored_inputs(
    inputs: Sequence[tuple[Table, Slice | None]], slice_: Slice | None
) -> dict[str, Mapping[Key, Stored] | None]:
    """What of each input goes to which key, told by the inputs' logs; None where a log cannot tell.

    An input by hours goes to the day that has the hour. One without partitions goes to every key as a whole.
    """
    return {table.name: _stored_of(table, read, slice_) for table, read in inputs}


def _stored_of(table: Table, read: Slice | None, slice_: Slice | None) -> Mapping[Key, Stored] | None:
    log = table.log() if type(table) is Table else None
    if log is None:
        return None
    columns, total = log.partition_columns(), defaultdict[Key, Stored](Stored)
    if read is not None and not (len(read.columns) == 1 and set(read.columns) <= set(columns)):
        return None
    for values, stored in log.stored_by_partition().items():
        row = dict(zip(columns, values, strict=True))
        if read is None:
            for key in keys_of(slice_):
                total[key] += stored
        elif read.key_of(row) is not None:
            total[_goes_to(row[read.columns[0]], slice_)] += stored
    return {key: total[key] for key in keys_of(slice_)}


def _goes_to(value: Any, slice_: Slice | None) -> Key:
    return None if slice_ is None else slice_.key_of(dict.fromkeys(slice_.columns, value))
