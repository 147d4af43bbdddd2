"""Reading Delta's transaction log without a JVM, through `deltalake`.

Sensors, metadata and checks ask the log what was committed: which version, by whom, how many files, bytes and rows per
partition value. None of it scans data.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from de_resources.compat.delta_tables import filesystem_of
from de_resources.errors import PermanentError

StorageOptions = Mapping[str, str]


class CommitGone(PermanentError):
    """A commit that the log does not have any more: a checkpoint took its place, and the log's retention is over."""

    def __init__(self, uri: str, version: int) -> None:
        self.uri, self.version = uri, version
        super().__init__(f"The log of the table at {uri} has forgotten the commit of version {version}.")


@dataclass(frozen=True)
class Commit:
    """One commit of a table: its version, kind, parameters and counters as the writer reported them."""

    version: int
    operation: str
    metrics: Mapping[str, str]
    stamp: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def metric(self, *names: str) -> int:
        """The first of the named counters that the commit has, or 0."""
        return next((int(self.metrics[n]) for n in names if n in self.metrics), 0)


@dataclass(frozen=True)
class Stored:
    """What lies in a table or in a part of it: live rows, and the files with their bytes."""

    rows: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Stored) -> Stored:
        return Stored(self.rows + other.rows, self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True)
class TableLog:
    """A table's log as of one moment. Make a new one to see later commits."""

    table: DeltaTable

    @classmethod
    def open(cls, uri: str, storage_options: StorageOptions | None = None) -> TableLog | None:
        """The table's log, or None where there is no table."""
        try:
            return cls(DeltaTable(uri, storage_options=dict(storage_options or {})))
        except TableNotFoundError:
            return None

    @property
    def version(self) -> int:
        """The newest version."""
        return self.table.version()

    @property
    def is_blank(self) -> bool:
        """Whether the table was created and nothing was ever written to it, also no frame without rows."""
        return self.version == 0 and self.commits(1)[0].operation == "CREATE TABLE" and self.files().num_rows == 0

    def commits(self, limit: int) -> list[Commit]:
        """The newest commits, newest first."""
        return [_commit(entry) for entry in self.table.history(limit)]

    def actions(self, version: int) -> list[dict[str, Any]]:
        """What one commit did, action by action, as the log has it. Raises `CommitGone` where the log has forgotten it."""
        filesystem = filesystem_of(self.table)
        try:
            with filesystem.open_input_file(f"_delta_log/{version:020}.json") as handle:
                return [json.loads(line) for line in handle.read().splitlines()]
        except FileNotFoundError:
            raise CommitGone(self.table.table_uri, version) from None

    def find(self, limit: int = 100, **stamp: Any) -> Commit | None:
        """The newest commit whose stamp has all these values, among the newest `limit`."""
        # Each commit is one file to fetch, and a writer's own commit is nearly always among the last few.
        for window in (4, limit):
            for commit in self.commits(window):
                if all(commit.stamp.get(k) == v for k, v in stamp.items()):
                    return commit
        return None

    def transaction_version(self, application: str) -> int | None:
        """The last transaction version that `application` committed, or None."""
        found: int | None = self.table.transaction_version(application)
        return found

    def column_names(self) -> list[str]:
        """The columns, as readers name them."""
        return [field.name for field in self.table.schema().fields]

    def partition_columns(self) -> list[str]:
        """The table's physical partition columns."""
        columns: list[str] = self.table.metadata().partition_columns
        return columns

    def stored_names(self) -> dict[str, str]:
        """Each column's name in the files and in the log's own actions: another one where the table maps its names."""
        fields = self.table.schema().fields
        return {f.name: str(f.metadata.get("delta.columnMapping.physicalName", f.name)) for f in fields}

    def files(self) -> pa.Table:
        """One row per live file: `path`, `size_bytes`, `num_records`, `partition.<column>`, statistics."""
        return pa.table(self.table.get_add_actions(flatten=True))

    def rows_by_partition(self) -> dict[tuple[Any, ...], int]:
        """Live rows per combination of physical partition values, from the files' statistics. No scan."""
        return {values: stored.rows for values, stored in self.stored_by_partition().items()}

    def stored_by_partition(self) -> dict[tuple[Any, ...], Stored]:
        """What lies in each combination of physical partition values, from the log alone.

        Rows under a deletion vector are not live.
        """
        columns = self.partition_columns()
        wanted = [f"partition.{c}" for c in columns]
        found: dict[tuple[Any, ...], Stored] = defaultdict(Stored)
        live = self._live_rows()
        for row in self.files().select(["path", *wanted, "num_records", "size_bytes"]).to_pylist():
            deleted = live.get(_file_name(row["path"]), []).count(False)
            found[tuple(row[c] for c in wanted)] += Stored((row["num_records"] or 0) - deleted, 1, row["size_bytes"])
        return dict(found)

    def _live_rows(self) -> dict[str, list[bool]]:
        """Which rows are live, by file name, for the files with a deletion vector; rows beyond the list are live."""
        if "deletionVectors" not in (self.table.protocol().reader_features or []):
            return {}
        vectors = pa.table(self.table.deletion_vectors()).to_pylist()
        return {_file_name(v["filepath"]): v["selection_vector"] for v in vectors}

    def first_rows(self, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
        """A few rows of the newest live file, without the engine. Partition columns come from the log.

        The newest file is the one that the last write added, so a preview shows what was just written.
        """
        wanted = [f"partition.{c}" for c in self.partition_columns()]
        files = self.files().select(["path", "modification_time", "num_records", *wanted]).to_pylist()
        if not files:
            return []
        newest = max(files, key=lambda f: (f["modification_time"], f["num_records"] or 0))
        partition = {c: newest[f"partition.{c}"] for c in self.partition_columns()}
        stored_names = self.stored_names()
        live = self._live_rows().get(_file_name(newest["path"]), [])
        stored_rows = self._head(newest["path"], columns, len(live) + limit)
        rows = [row for i, row in enumerate(stored_rows) if i >= len(live) or live[i]][:limit]
        return [
            {c: (partition[c] if c in partition else row.get(stored_names.get(c, c))) for c in columns} for row in rows
        ]

    def texts(self, paths: Sequence[str], column: str, limit: int) -> list[str | None]:
        """The first values of a text column in some of the live files, without the engine: a sample, at most `limit`."""
        found: list[str | None] = []
        for path in paths:
            if len(found) >= limit:
                break
            stored = self.stored_names().get(column, column)
            found += [row.get(stored) for row in self._head(path, [column], limit - len(found))]
        return found

    def _head(self, path: str, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
        """The first rows that are stored in a file, with those of the columns that it has, by the names in the file."""
        stored_names = self.stored_names()
        filesystem = filesystem_of(self.table)
        # The log URL-encodes a path once; the file's name on disk is the decoded form.
        with filesystem.open_input_file(unquote(path)) as handle:
            stored = pq.ParquetFile(handle)
            names = [n for c in columns if (n := stored_names.get(c, c)) in stored.schema_arrow.names]
            batch = next(stored.iter_batches(batch_size=limit, columns=names), None)
        return batch.to_pylist() if batch is not None else []


def _file_name(path: str) -> str:
    """Unique within a table, and the same in the log's relative paths and in absolute ones."""
    return path.rsplit("/", 1)[-1]


def _commit(entry: Mapping[str, Any]) -> Commit:
    stamp: Any = {}
    if entry.get("userMetadata"):
        try:
            stamp = json.loads(entry["userMetadata"])
        except ValueError:
            stamp = {}
    return Commit(
        version=int(entry["version"]),
        operation=str(entry.get("operation", "")),
        metrics={k: str(v) for k, v in (entry.get("operationMetrics") or {}).items()},
        stamp=stamp if isinstance(stamp, dict) else {},
        parameters=entry.get("operationParameters") or {},
    )
