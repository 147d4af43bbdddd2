"""A Delta table as a target: where it is, what it promises, and how it comes into being."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from de_resources.contract import Contract
from de_resources.delta.log import Commit, TableLog
from de_resources.delta.log.versions import version_to_read
from de_resources.delta.write.lock import creation_lock, local_folder
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import column_texts, identifier, quoted_path
from de_resources.sql.literals import literal

# Transaction identifiers make retries harmless; kept for ever they would only make the log grow.
_PROPERTIES = {"delta.setTransactionRetentionDuration": "interval 30 days"}
CHECKS = "delta.constraints."
"""How the properties begin in which Delta keeps a table's CHECK constraints."""
_RANDOM_FOLDERS = {"delta.randomizeFilePrefixes": "true"}


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

        The columns are nullable: nulls are judged, counted and named by the contract's rules. `keys` are the partition
        keys about to be written; one that cannot be the name of a folder makes the table use random folders.
        First writers that come at once find the one table; what a creator left that died before its commit is removed.
        Raises `LocationTaken` where the folder holds anything else; `UnquotableName` and `UnstorableName` for names that
        the table, old or new, cannot have.
        """
        log = self.log()
        known = self._properties() if log is None else log.table.metadata().configuration
        column_texts(schema, mapped=_maps_names(known))
        unfit = bool(self.partitioned_by) and not all(map(_names_a_folder, keys))
        if log is None:
            with creation_lock(self.uri, table=self.name):
                if self.log() is None:
                    self._clear_location()
                    self._create(session, schema, _RANDOM_FOLDERS if unfit else {})
        elif unfit and log.table.metadata().configuration.get("delta.randomizeFilePrefixes") != "true":
            self.set_properties(session, _RANDOM_FOLDERS)

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

    def _clear_location(self) -> None:
        """Remove a log without a commit. Delta takes such a folder for a table, and creates none in it."""
        folder = local_folder(self.uri)
        if folder is None or not folder.exists():
            return
        log = folder / "_delta_log"
        commits = [f"_delta_log/{path.name}" for path in log.glob("[!._]*")]
        found = sorted([path.name for path in folder.iterdir() if path != log] + commits)
        if found:
            raise LocationTaken(self.name, self.uri, found[:3])
        shutil.rmtree(log, ignore_errors=True)

    def _properties(self) -> dict[str, str]:
        """The properties with which the table begins."""
        return {**_PROPERTIES, **(self.contract.properties if self.contract else {}), **self.properties}

    def _create(self, session: SparkSession, schema: StructType, extra: Mapping[str, str]) -> None:
        comments = {c.name: c.description for c in self.contract.columns} if self.contract else {}
        checks = {f"{CHECKS}{name}": condition for name, condition in self.constraints().items()}
        properties = {**self._properties(), **extra, **checks}
        texts = column_texts(schema, mapped=_maps_names(properties))
        columns = ", ".join(f"{text} COMMENT {literal(comments.get(name, ''))}" for name, text in texts.items())
        # Delta wants at least one column inside the files, so that a table of nothing but keys has no layout.
        physical = self.partitioned_by if set(schema.names) - set(self.partitioned_by) else ()
        layout = f" PARTITIONED BY ({', '.join(map(identifier, physical))})" if physical else ""
        about = f" COMMENT {literal(self.contract.description)}" if self.contract else ""
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self.sql} ({columns}) USING DELTA{layout}{about} "
            f"TBLPROPERTIES ({_assignments(properties)})"
        )
        try:
            session.sql(statement)
        except ENGINE_ERRORS:
            # A foreign writer takes no lock: of two first ones Delta refuses the second, whose table is there.
            if self.log() is None:
                raise


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
