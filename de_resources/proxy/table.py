"""A proxied dataset as a table: read through its manifest, written as a new version.

<lake>/<layer>/<dataset>/{versions,manifests}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.delta.log import TableLog
from de_resources.delta.metadata import stored_per_key
from de_resources.delta.slices import Slice
from de_resources.delta.table import CommitInfo, Table, TableMissing, Written
from de_resources.delta.write import overwrite as overwriting
from de_resources.delta.write.lock import local_folder
from de_resources.delta.write.stored_form import AS_IT_IS, StoredForm
from de_resources.errors import PermanentError
from de_resources.proxy.manifest import WHOLE, Manifest, ProxyVersion
from de_resources.proxy.seal import make_immutable
from de_resources.proxy.store import VersionStore
from de_resources.sql.balanced import balanced
from de_resources.sql.identifiers import identifier, type_text


class NoImmutableStore(PermanentError):
    """A proxied dataset in a place where versions cannot be made immutable from here."""

    def __init__(self, table: str, uri: str) -> None:
        self.table, self.uri = table, uri
        super().__init__(
            f"`{table}` keeps immutable versions, which needs a disk: {uri} is none. Nothing was written. Give its asset the "
            "plain IO manager, or a lake in a folder."
        )


class NotVersioned(PermanentError):
    """The dataset's folder holds one plain Delta table, written before the dataset had versions."""

    def __init__(self, table: str, uri: str) -> None:
        self.table, self.uri = table, uri
        super().__init__(
            f"`{table}` has versions, but {uri} holds one plain table, from before. Nothing was changed. Move that folder "
            "away, materialise the partitions again in one backfill, and delete it when the versions are right."
        )


class OneLog(PermanentError):
    """A question about the one log of a dataset that has a log per version."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"`{table}` has no log of its own: each of its versions has one. Read it, or ask the metadata of its "
            "materialisations."
        )


class VersionOutdated(PermanentError):
    """A live version from before its contract changed a column's type."""

    def __init__(self, table: str, column: str, was: str, is_: str, partitions: Sequence[str]) -> None:
        self.table, self.column, self.partitions = table, column, tuple(partitions)
        super().__init__(
            f"In `{table}` the column `{column}` is {was} in the partition(s) {', '.join(partitions[:5])}, and {is_} by its "
            "contract. Materialise these partitions again; the others can be read meanwhile."
        )


@dataclass(frozen=True)
class ProxiedTable(Table):
    """Reads like a table, whose versions are the numbers of its manifests. `keys` limits it to some partitions."""

    keys: tuple[str, ...] | None = None

    VERSIONS: ClassVar[str] = "manifest"
    """What the definition metadata `versions` of a proxied asset says."""

    @classmethod
    def of(cls, plain: Table) -> ProxiedTable:
        """The proxied dataset at the place of a plain table, with its settings."""
        return cls(
            plain.name, plain.uri, plain.contract, plain.partitioned_by, plain.properties, enforced=plain.enforced
        )

    @property
    def store(self) -> VersionStore:
        """Its versions and manifests. Raises `NoImmutableStore`, `NotVersioned`."""
        folder = local_folder(self.uri)
        if folder is None:
            raise NoImmutableStore(self.name, self.uri)
        if (folder / "_delta_log").exists():
            raise NotVersioned(self.name, self.uri)
        return VersionStore(folder, self.name)

    def log(self) -> TableLog | None:
        """None before the first switch; there is no log of all versions. Raises `OneLog`."""
        if self.store.live() is None:
            return None
        raise OneLog(self.name)

    def newest(self) -> None:
        """None: versions of partitions have no common number from which a reader of a log would go on."""

    def limited_to(self, keys: Sequence[str]) -> ProxiedTable:
        """Only these partitions: the versions of others are not looked at."""
        return replace(self, keys=tuple(keys))

    def version_table(self, id_: str) -> Table:
        """The table of one version."""
        uri = str(self.store.versions_folder / id_)
        return Table(self.name, uri, self.contract, self.partitioned_by, self.properties, enforced=self.enforced)

    def read(self, session: SparkSession, version: int | None = None) -> DataFrame:
        """What the live manifest shows, or the manifest with this number; lazily, and the same however it is switched.

        A column that a version does not have yet is null in its rows. Raises `TableMissing`, `NoSuchManifest`,
        `VersionMissing`, `VersionOutdated`.
        """
        manifest = self.store.live() if version is None else self.store.manifest(version)
        if manifest is None:
            raise TableMissing(self.name)
        by_version = manifest.keys_by_version(self.keys)
        if not by_version:
            return self._none_of(session, manifest)
        parts = [self._part(session, id_, keys) for id_, keys in sorted(by_version.items())]
        return balanced(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)

    def read_pinned(self, session: SparkSession) -> DataFrame:
        """As `read`: versions do not change, and which of them are live was asked for now."""
        return self.read(session)

    def _part(self, session: SparkSession, id_: str, keys: Sequence[str]) -> DataFrame:
        """The rows of these partition keys in one version."""
        version = self.store.version(id_)
        reader = session.read.format("delta").option("versionAsOf", version.log_version)
        frame = reader.load(self.version_table(id_).uri)
        if set(version.predicates) != set(keys):
            frame = frame.where(F.expr(" OR ".join(f"({version.predicates[key]})" for key in keys)))
        return self._as_declared(frame, keys)

    def _as_declared(self, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
        if self.contract is None:
            return frame
        own = {field.name: type_text(field.dataType) for field in frame.schema.fields}
        columns = []
        for field in self.contract.struct_type().fields:
            declared = type_text(field.dataType)
            if own.get(field.name, declared) != declared:
                raise VersionOutdated(self.name, field.name, own[field.name], declared, keys)
            present = field.name in own
            column = F.col(identifier(field.name)) if present else F.lit(None).cast(field.dataType).alias(field.name)
            columns.append(column)
        return frame.select(*columns)

    def _none_of(self, session: SparkSession, manifest: Manifest) -> DataFrame:
        """No rows, with the columns that others have."""
        if self.contract is not None:
            return session.createDataFrame([], self.contract.struct_type())
        if not manifest.versions:
            raise TableMissing(self.name)
        any_ = max(manifest.versions)
        return self._part(session, any_, list(self.store.version(any_).predicates)).limit(0)

    def write_version(
        self,
        session: SparkSession,
        frame: DataFrame,
        stamp: CommitInfo,
        slice_: Slice | None,
        form: StoredForm = AS_IT_IS,
    ) -> tuple[str, Written]:
        """Write the slice as a version of its own and close it for good; readers do not see it yet.

        Its name follows from the stamp, so that a retry finds what was committed and closes it without computing it again.
        What was not committed is written again; `retain` removes what stays unfinished.
        """
        id_ = version_id(stamp)
        table = self.version_table(id_)
        written = _committed(table, stamp) or overwriting.replace(
            session, table, frame, stamp, slice_=slice_, form=form
        )
        log_version = make_immutable(self.store.versions_folder / id_)
        self.store.add(
            ProxyVersion(
                id=id_,
                log_version=log_version,
                predicates=_predicates(frame, slice_),
                rows=_rows(table, slice_, written),
                run=stamp.run,
                completed=datetime.now(UTC),
            )
        )
        return id_, written


def version_id(stamp: CommitInfo) -> str:
    """The same for all attempts of one logical write, and different for any other one."""
    return f"{stamp.origin[:8]}-{sha256(stamp.application.encode()).hexdigest()[:16]}"


def _committed(table: Table, stamp: CommitInfo) -> Written | None:
    """What an earlier attempt of the same write committed."""
    log = table.log()
    commit = log.find(origin=stamp.origin, writer=stamp.writer, slice=stamp.slice) if log else None
    if commit is None:
        return None
    reason = "an earlier attempt of this run had written the version; nothing was computed again"
    return Written(commit.version, commit, None, None, 0.0, skipped=reason)


def _predicates(frame: DataFrame, slice_: Slice | None) -> dict[str, str]:
    if slice_ is None:
        return {WHOLE: "TRUE"}
    return {key: slice_.key_predicate(key, frame.schema) for key in slice_.keys}


def _rows(table: Table, slice_: Slice | None, written: Written) -> dict[str, int]:
    log = table.log()
    found = stored_per_key(log, slice_, written) if log else {}
    return {WHOLE if key is None else key: stored.rows for key, stored in found.items()}


def newest_partition(table: Table, session: SparkSession) -> tuple[str, DataFrame]:
    """The greatest live partition key of a proxied dataset, and its rows.

    Raises `TableMissing` before the first switch, and `PermanentError` for a dataset that has no manifest.
    """
    if not isinstance(table, ProxiedTable):
        raise PermanentError(f"`{table.name}` has no manifest that says which partitions are live. Read it as a table.")
    live = table.store.live()
    if live is None or not live.live:
        raise TableMissing(table.name)
    newest = max(live.live)
    return newest, replace(table, keys=(newest,)).read(session)
