"""The IO manager of proxied datasets: each run writes a version, then switches the manifest to it.

Configured as `SparkDeltaIOManager`; the asset's metadata has `versions: manifest` besides, which tells checks and jobs how
to read it. The switch concerns the run's partitions only: a rerun of one day shows a new version of that day, beside the
versions of the others. Between the two steps, and when the second one fails, readers see what they saw before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dagster import InputContext
from dagster_delta import WriteMode
from dagster_delta.io_manager.base import TableConnection
from pyspark.sql import DataFrame

from de_resources.compat.io_manager import TableSlice
from de_resources.delta.io_manager import PySparkTypeHandler, SparkDeltaIOManager
from de_resources.delta.slices import Slice
from de_resources.delta.table import Stamp, Table, Written
from de_resources.delta.write.frames import conform
from de_resources.delta.write.stateful_plan import Turn
from de_resources.errors import PermanentError
from de_resources.proxy.switching import publish
from de_resources.proxy.table import ProxiedTable, version_id
from de_resources.stream_source import StreamSource


class NotAVersion(PermanentError):
    """A way of writing that changes a table, where every run writes its own."""

    def __init__(self, table: str, what: str) -> None:
        self.table, self.what = table, what
        super().__init__(
            f"`{table}` keeps immutable versions and cannot be written with {what}. Nothing was written. Leave it out of the "
            "asset's metadata, or give the asset the plain IO manager."
        )


class ProxyDeltaIOManager(SparkDeltaIOManager):
    """Writes each run to a new immutable Delta table and switches one manifest; pattern *Proxy*."""

    def _handler(self) -> PySparkTypeHandler:
        """What writes and reads versions, for one run."""
        return VersionHandler(self)


class VersionHandler(PySparkTypeHandler):
    """Writes and reads frames through manifests."""

    def _write(
        self,
        frame: DataFrame,
        table: Table,
        slice_: Slice | None,
        stamp: Stamp,
        metadata: Mapping[str, Any],
        turn: Turn | None,
        follows: StreamSource | None,  # noqa: ARG002 - of streams, which are refused
    ) -> Written:
        assert isinstance(table, ProxiedTable)  # noqa: S101 - what `_table` makes
        mode, schema_mode = self._modes(metadata)
        for what, unfit in {
            f"the mode `{mode.value}`": mode != WriteMode.overwrite,
            "`schema_mode`": schema_mode is not None,
            "`stateful`": turn is not None,
            "a stream": frame.isStreaming,
        }.items():
            if unfit:
                raise NotAVersion(table.name, what)
        if table.contract is not None:
            frame = conform(frame, table.name, table.contract.struct_type())
        id_, written = table.write_version(self._config.spark.spark_session, frame, stamp, slice_)
        manifest = publish(table.store, id_, now=datetime.now(UTC))
        details: dict[str, str | int | Sequence[str]] = {
            "proxy/version": id_,
            "proxy/versions_live": len(manifest.versions),
            "proxy/versions_stored": len(table.store.complete_versions()),
        }
        # What the table's version is to others, the manifest's number is here.
        return replace(written, version=manifest.number, details=details)

    def _note(self, context: InputContext, table: Table) -> None:
        """Nothing: versions of partitions have no common number that a log would go on from."""

    def _stored(self, table: Table, stamp: Stamp) -> Table:
        assert isinstance(table, ProxiedTable)  # noqa: S101 - what `_table` makes
        return table.version_table(version_id(stamp))

    def _read(self, context: InputContext, table: Table, *, as_of_partition: bool = False) -> DataFrame:
        assert isinstance(table, ProxiedTable)  # noqa: S101 - what `_table` makes
        keys = tuple(context.asset_partition_keys) if context.has_asset_partitions else None
        return super()._read(context, replace(table, keys=keys), as_of_partition=as_of_partition)

    def _table(self, metadata: Mapping[str, Any], table_slice: TableSlice, connection: TableConnection) -> Table:
        plain = super()._table(metadata, table_slice, connection)
        return ProxiedTable(plain.name, plain.uri, plain.contract, plain.partitioned_by, plain.properties)
