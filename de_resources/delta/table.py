"""A Delta table as a target: where it is, what it promises, and how it comes into being."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from de_resources.contract import Contract
from de_resources.delta.log import Commit, TableLog
from de_resources.delta.log.versions import version_to_read
from de_resources.delta.write.lock import Unfinished, creation_lock, local_folder
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import column_texts, identifier, quoted_path
from de_resources.sql.literals import literal

# Transaction identifiers make retries harmless; kept for ever they would only make the log grow.
_PROPERTIES = {"delta.setTransactionRetentionDuration": "interval 30 days"}
CHECKS = "delta.constraints."
"""How the properties begin in which Delta keeps a table's CHECK constraints."""
_RANDOM_FOLDERS = {"delta.randomizeFilePrefixes": "true"}
_DATA_FILE = re.compile(r"\.?part-\d{5}-[0-9a-f-]{36}[.-]c\d{3}(\.\w+)?\.parquet(\.crc)?")
"""What the engine writes before it commits."""


class TableMissing(PermanentError):
    """A dataset that is read before anything was written to it.

    `has_contract` is known where an input asked for it: only with a contract can an input be optional.
    """

    def __init__(self, table: str, *, has_contract: bool | None = None) -> None:
        self.table, self.has_contract = table, has_contract
        optional = '`AssetIn(metadata={"if_missing": "empty"})`'
        advice = {
            None: "",
            True: f", or mark the input as optional with {optional}",
            False: f", or give its asset a `contract`: an input can then be optional, by {optional}",
        }
        super().__init__(f"The dataset `{table}` does not exist yet. Materialise it first{advice[has_contract]}.")


class LocationTaken(PermanentError):
    """A table's folder that holds something else."""

    def __init__(self, table: str, uri: str, found: Sequence[str]) -> None:
        self.table, self.uri, self.found = table, uri, tuple(found)
        super().__init__(
            f"`{table}` cannot be created: its folder {uri} holds {', '.join(found)} and no readable table. "
            "Nothing was changed. Move the files away, or restore the table's log."
        )


@dataclass(frozen=True)
class NewTable:
    """What a table has from its first commit on. The columns are nullable: nulls are judged, counted and named by the rules.

    `columns`: the type of each, as DDL with its name. `comments`: of each. `description`: of the table, where it has one.
    """

    columns: Mapping[str, str]
    comments: Mapping[str, str]
    partitioned_by: tuple[str, ...]
    properties: Mapping[str, str]
    description: str | None = None

    @property
    def by_its_rows(self) -> bool:
        """Whether a write of rows can create it: of a table's properties a write takes Delta's own only."""
        return not self._others

    def writer(self, frame: DataFrame) -> DataFrameWriter:
        """A write of the frame that creates the table, but for its description and the properties that are not Delta's own.

        Columns have their comments, and nothing that they say of themselves elsewhere.
        """
        described = frame.select(
            *(F.col(identifier(c)).alias(c, metadata={"comment": self.comments[c]}) for c in frame.columns)
        )
        own = {name: value for name, value in self.properties.items() if name not in self._others}
        return described.write.format("delta").options(**own).partitionBy(*self.partitioned_by)

    @property
    def beyond_a_write(self) -> dict[str, str]:
        """What `writer` leaves out, as properties to be set."""
        about = {"comment": self.description} if self.description is not None else {}
        return {**self._others, **about}

    @property
    def _others(self) -> dict[str, str]:
        return {name: value for name, value in self.properties.items() if not name.startswith("delta.")}

    def statement(self, table: str) -> str:
        """SQL that creates the empty table."""
        columns = ", ".join(f"{text} COMMENT {literal(self.comments[name])}" for name, text in self.columns.items())
        layout = f" PARTITIONED BY ({', '.join(map(identifier, self.partitioned_by))})" if self.partitioned_by else ""
        about = f" COMMENT {literal(self.description)}" if self.description is not None else ""
        return (
            f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING DELTA{layout}{about} "
            f"TBLPROPERTIES ({_assignments(self.properties)})"
        )


@dataclass(frozen=True)
class Table:
    """One table. `name` is `<layer>.<dataset>`; `uri` is for deltalake and Spark alike.

    `enforced`: the store itself refuses rows that break a rule of the contract, whoever writes them.
    """

    name: str
    uri: str
    contract: Contract | None = None
    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict)
    enforced: bool = False

    @property
    def sql(self) -> str:
        """The table in SQL text."""
        return quoted_path(self.uri)

    def log(self) -> TableLog | None:
        """The transaction log as of now, or None before the first write."""
        return TableLog.open(self.uri, self.storage_options)

    def newest(self) -> tuple[int, str] | None:
        """The table's version as of now, and its id, which tells it from one made again at its place; None without a log."""
        log = self.log()
        return (log.version, str(log.table.metadata().id)) if log else None

    def limited_to(self, keys: Sequence[str]) -> Table:  # noqa: ARG002 - for tables that are stored by partition key
        """The table as a reader of these partitions needs it, who filters its rows; a plain one is the same for all."""
        return self

    def read(self, session: SparkSession, version: int | None = None) -> DataFrame:
        """The whole table, lazily; `version` travels in time.

        A version that was only compacted since is read in its compacted form where its own files are gone.
        Raises `TableMissing`, and `VersionUnreadable`, which names the versions that can be read.
        """
        log = self._opened()
        reader = session.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version_to_read(log, self.name, version))
        return reader.load(self.uri)

    def read_pinned(self, session: SparkSession) -> DataFrame:
        """The table as it is now, also when it is computed after somebody's commit.

        For frames that are kept (`persist`) while their table is written: after each write Spark plans what is kept of a table
        again, as that is no longer what the table says; of a version it still is. Raises `TableMissing`.
        """
        return session.read.format("delta").option("versionAsOf", self._opened().version).load(self.uri)

    def _opened(self) -> TableLog:
        log = self.log()
        if log is None:
            raise TableMissing(self.name)
        return log

    def create_if_missing(self, session: SparkSession, schema: StructType, keys: Sequence[str] = ()) -> None:
        """Create the empty table where it is missing, so that the first write is checked and stamped like every other.

        `keys` are the partition keys about to be written; one that cannot be the name of a folder makes the table use random
        folders. First writers that come at once find the one table; what a creator left that died before its commit is no
        obstacle. Raises `LocationTaken` where the folder holds anything else; `UnquotableName` and `UnstorableName` for names
        that the table, old or new, cannot have.
        """
        log = self.log()
        if log is not None:
            self._make_fit(session, log, schema, keys)
            return
        new = self._as_new(schema, keys)
        with creation_lock(self.uri, table=self.name) as unfinished:
            if self.log() is None:
                self._create(session, schema, new, unfinished)
                unfinished.forget()

    @contextmanager
    def first_write(
        self, session: SparkSession, schema: StructType, keys: Sequence[str] = ()
    ) -> Iterator[NewTable | None]:
        """What the write inside has to create the table with, in the same commit; None where the table is there.

        Where the write finds nothing to do, the table is made all the same, empty. An empty table that is made first, looked at
        and then written takes the engine three times as long. Other first writers wait until the rows of this one are there, or
        it has failed. Where no such write can create the table, it is there, empty, as `create_if_missing` makes it; so it is
        in an object store, where nobody waits. Raises what that raises.
        """
        log = self.log()
        if log is None and local_folder(self.uri) is not None:
            new = self._as_new(schema, keys)
            with creation_lock(self.uri, table=self.name) as unfinished:
                if self.log() is None and new.by_its_rows:
                    self._left_behind(unfinished)
                    unfinished.note()
                    yield new
                    if self.log() is None:
                        self._create(session, schema, new, unfinished)
                    unfinished.forget()
                    return
        if log is None:
            self.create_if_missing(session, schema, keys)
        else:
            self._make_fit(session, log, schema, keys)
        yield None

    def properties_now(self) -> dict[str, str]:
        """The properties that the table has at present; none where there is no table."""
        log = self.log()
        return {} if log is None else {k: v for k, v in log.table.metadata().configuration.items() if v is not None}

    def constraints(self) -> dict[str, str]:
        """The CHECK constraints that the contract wants the table to have, by name."""
        return self.contract.constraints() if self.contract and self.enforced else {}

    def set_properties(self, session: SparkSession, properties: Mapping[str, str]) -> None:
        """Set these properties of the table and leave the others, in one commit."""
        session.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ({_assignments(properties)})")

    def _make_fit(self, session: SparkSession, log: TableLog, schema: StructType, keys: Sequence[str]) -> None:
        """Let the table that is there take these keys. Raises for names that it cannot have."""
        known = log.table.metadata().configuration
        column_texts(schema, mapped=_maps_names(known))
        if self._unfit(keys) and known.get("delta.randomizeFilePrefixes") != "true":
            self.set_properties(session, _RANDOM_FOLDERS)

    def _left_behind(self, unfinished: Unfinished) -> bool:
        """Whether a first write left data files that no commit names. A log without a commit is removed.

        Nothing else is: an engine may still be writing what its client, which died, had asked for.
        Raises `LocationTaken` where there is anything else.
        """
        folder = local_folder(self.uri)
        if folder is None or not folder.exists():
            return False
        log = folder / "_delta_log"
        commits = [f"_delta_log/{path.name}" for path in log.glob("[!._]*")]
        others = [path for path in folder.iterdir() if path != log]
        theirs = [path.name for path in others if not (unfinished.is_noted and _are_data_files(path))]
        if found := sorted(theirs + commits):
            raise LocationTaken(self.name, self.uri, found[:3])
        # Delta takes such a folder for a table, and creates none in it.
        shutil.rmtree(log, ignore_errors=True)
        return bool(others)

    def _properties(self) -> dict[str, str]:
        """The properties with which the table begins."""
        return {**_PROPERTIES, **(self.contract.properties if self.contract else {}), **self.properties}

    def _unfit(self, keys: Sequence[str]) -> bool:
        return bool(self.partitioned_by) and not all(map(_names_a_folder, keys))

    def _as_new(self, schema: StructType, keys: Sequence[str]) -> NewTable:
        comments = {c.name: c.description for c in self.contract.columns} if self.contract else {}
        checks = {f"{CHECKS}{name}": condition for name, condition in self.constraints().items()}
        extra = _RANDOM_FOLDERS if self._unfit(keys) else {}
        properties = {**self._properties(), **extra, **checks}
        return NewTable(
            columns=column_texts(schema, mapped=_maps_names(properties)),
            comments={name: comments.get(name, "") for name in schema.names},
            # Delta wants at least one column inside the files, so that a table of nothing but keys has no layout.
            partitioned_by=self.partitioned_by if set(schema.names) - set(self.partitioned_by) else (),
            properties=properties,
            description=self.contract.description if self.contract else None,
        )

    def _create(self, session: SparkSession, schema: StructType, new: NewTable, unfinished: Unfinished) -> None:
        try:
            if self._left_behind(unfinished):
                self._create_beside(session, schema, new)
            else:
                session.sql(new.statement(self.sql))
        except ENGINE_ERRORS:
            # A foreign writer takes no lock: of two first ones Delta refuses the second, whose table is there.
            if self.log() is None:
                raise

    def _create_beside(self, session: SparkSession, schema: StructType, new: NewTable) -> None:
        """Create the table in a folder that has files, which Delta's statement does not; a write does."""
        new.writer(session.createDataFrame([], schema)).mode("append").save(self.uri)
        if new.beyond_a_write:
            self.set_properties(session, new.beyond_a_write)


def _are_data_files(path: Path) -> bool:
    """Whether it is a data file of the engine, or a folder of nothing else."""
    return all(map(_are_data_files, path.iterdir())) if path.is_dir() else bool(_DATA_FILE.fullmatch(path.name))


def _maps_names(properties: Mapping[str, str | None]) -> bool:
    """Whether a table with these properties stores its columns under other names, and so can have any."""
    return (properties.get("delta.columnMapping.mode") or "none") != "none"


def _assignments(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(k)} = {literal(v)}" for k, v in properties.items())


def _names_a_folder(key: str) -> bool:
    """Whether `column=key` fits a file system's 255 bytes, with every byte escaped and room for the column's name."""
    return "\0" not in key and len(quote(key, safe="").encode()) <= 120


@dataclass(frozen=True)
class CommitInfo:
    """Who writes: in the commit for people, and in the transaction identifier so that a retry does not repeat.

    `writer` is the asset: several may share a table. `origin` is the run, or the first run of a chain of automatic
    retries; `attempt` is unique per try. `facts` is what one kind of writer wants to find again in its commits. `job_version`
    is that of the code; commits of earlier versions of the platform do not tell it (Metadata Decorator).
    """

    table: str
    writer: str
    slice: str
    run: str
    origin: str
    attempt: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    job_version: str = ""

    @property
    def application(self) -> str:
        """Delta's transaction application: one logical write. A new run has a new one, and so writes again."""
        return f"{self.table}/{self.writer}/{self.slice}/{self.origin}"

    def options(self, application: str | None = None) -> dict[str, str]:
        """What a frame's writer is told, so that its commit says who wrote, and is made once for each application."""
        return {"txnAppId": application or self.application, "txnVersion": "1", "userMetadata": self.text()}

    def text(self) -> str:
        """The commit's user metadata."""
        facts = ("writer", "slice", "run", "origin", "attempt")
        version = {"job_version": self.job_version} if self.job_version else {}
        return json.dumps({name: getattr(self, name) for name in facts} | version | dict(self.facts))


@dataclass(frozen=True)
class ObservedBatch:
    """One micro-batch of a stream: what it committed, and what each observation of the stream saw of it, by their names."""

    commit: Commit
    observed: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Written:
    """What a write did. `skipped` says why nothing was committed; `version` is then the table's present one.

    `repeated`: it was skipped because an earlier attempt of the same run had committed, with what that one had computed.
    `table`: the table that holds the rows, where that is another one than was asked for; `shown_at`: where readers look then.
    `per_key`: more metadata of single partition keys. `batches`: the micro-batches of a stream, oldest first; none where
    the engine did not tell of one of them.
    """

    version: int
    commit: Commit | None
    rows: int | None
    violations: Mapping[str, int] | None
    seconds: float
    skipped: str | None = None
    repeated: bool = False
    changes: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, str | float | Sequence[str]] = field(default_factory=dict)
    table: Table | None = None
    shown_at: str | None = None
    per_key: Mapping[str | None, Mapping[str, Any]] = field(default_factory=dict)
    batches: tuple[ObservedBatch, ...] = ()

    def counters(self) -> dict[str, Any]:
        """Files and bytes of the commit."""
        commit = self.commit
        return {
            "files_added": commit.metric("numFiles", "numAddedFiles", "numTargetFilesAdded") if commit else 0,
            "bytes_added": commit.metric("numOutputBytes", "numAddedBytes", "numTargetBytesAdded") if commit else 0,
            "files_removed": commit.metric("numRemovedFiles", "numTargetFilesRemoved") if commit else 0,
        }
