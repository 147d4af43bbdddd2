"""The IO manager of proxied datasets: each run writes a version, then switches the manifest to it.

Configured as `SparkDeltaIOManager`; the asset's metadata has `versions: manifest` besides, which tells checks and jobs how
to read it. The switch concerns the run's partitions only: a rerun of one day shows a new version of that day, beside the
versions of the others. Between the two steps, and when the second one fails, readers see what they saw before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from dagster_delta import WriteMode

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.table import Table, Written
from de_resources.delta.write.frames import match_schema
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import Write, Writer
from de_resources.errors import PermanentError
from de_resources.proxy.switching import publish
from de_resources.proxy.table import ProxiedTable


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

    def writers(self) -> Sequence[Writer]:
        """What writes versions."""
        return (VersionWriter(),)

    def stored_as(self, table: Table) -> Table:
        """A dataset that is read through its manifest."""
        return ProxiedTable.of(table)


class VersionWriter(Writer):
    """Stores a write as an immutable version of its own, and shows it."""

    def write(self, request: WriteRequest, proceed: Write) -> Written:  # noqa: ARG002 - no table is changed
        """Write the version, then switch the manifest to it. Raises `NotAVersion` before anything is written.

        A retry shows the version that had been written, and writes none; one that was shown before is not shown again.
        """
        table = request.table
        assert isinstance(table, ProxiedTable)  # noqa: S101 - what the manager makes
        _require_version(request)
        frame = request.frame
        if table.contract is not None:
            frame = match_schema(frame, table.name, table.contract.struct_type())
        id_, written = table.write_version(request.session, frame, request.stamp, request.slice, request.form)
        manifest = publish(table.store, id_, now=datetime.now(UTC))
        details: dict[str, str | int | Sequence[str]] = {
            "proxy/version": id_,
            "proxy/versions_live": len(manifest.versions),
            "proxy/versions_stored": len(table.store.complete_versions()),
        }
        # What the table's version is to others, the manifest's number is here.
        return replace(written, version=manifest.number, details=details, table=table.version_table(id_))


def _require_version(request: WriteRequest) -> None:
    unfit = {
        f"the mode `{request.mode.value}`": request.mode != WriteMode.overwrite,
        "`schema_mode`": request.schema_mode is not None,
        "`stateful`": request.turn is not None,
        "a stream": request.frame.isStreaming,
    }
    for what, so in unfit.items():
        if so:
            raise NotAVersion(request.table.name, what)
