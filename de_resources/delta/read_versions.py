"""Which versions of its inputs a materialisation was computed from, as its metadata `delta/read`.

The version is taken before the input is defined. What is committed afterwards may be in the frame or not, for a lazy frame
follows its table until it is computed; it never counts as read, so that nothing that lands meanwhile is taken for processed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import dagster as dg

from de_resources.compat.io_manager import StepExecutionContext
from de_resources.delta.log.reader_lag import READ as READ


class Versioned(Protocol):
    """What a version is read of: a table."""

    @property
    def name(self) -> str:
        """`<layer>.<dataset>`."""

    def newest(self) -> tuple[int, str] | None:
        """Its version as of now, and its id; None where there is no such table, or no such number."""


@dataclass
class ReadVersions:
    """The versions that one step has read so far, by table; the lowest of each."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, table: Versioned, pinned: int | None = None) -> None:
        """Remember the version that the table has now, or the one that is read instead. A table that is not there was not."""
        newest = table.newest()
        if newest is not None:
            version, id_ = newest
            version = version if pinned is None else pinned
            # An input that is loaded again may see more, but what was computed from the first one did not.
            self.tables.setdefault(table.name, {"version": version, "id": id_})

    def metadata(self) -> dict[str, Any]:
        """As metadata; none where nothing was read."""
        return {READ: dg.MetadataValue.json(dict(sorted(self.tables.items())))} if self.tables else {}

    def record(self, context: dg.OutputContext | dg.OpExecutionContext | dg.AssetExecutionContext) -> None:
        """Add them to the materialisation."""
        if self.tables:
            context.add_output_metadata(self.metadata())


_of_steps: WeakKeyDictionary[StepExecutionContext, ReadVersions] = WeakKeyDictionary()
"""By the attempt of a step: one IO manager may read what another one writes, or what the asset writes itself."""


def reads_of(step: StepExecutionContext) -> ReadVersions:
    """What IO managers have read for this attempt of a step."""
    return _of_steps.setdefault(step, ReadVersions())


def versions_read(context: dg.AssetExecutionContext) -> dict[str, Any]:
    """Which versions the inputs of an asset were read at, as metadata for one that writes its rows itself."""
    return reads_of(context.get_step_execution_context()).metadata()


def record_read(context: dg.AssetExecutionContext, *tables: Versioned, pinned: int | None = None) -> None:
    """Say which versions an asset reads of tables that it opens itself, as the IO manager does of its inputs.

    To be called before they are read. Without it the materialisation tells nobody how far it has read, and
    `keeps_up_with_its_tables` takes it for a reader that has read nothing.
    """
    read = ReadVersions()
    for table in tables:
        read.note(table, pinned)
    read.record(context)


def version_read(metadata: Mapping[str, dg.MetadataValue[Any]], table: str, table_id: str) -> int | None:
    """The version of a table that a materialisation was computed from; None where it does not say."""
    told = metadata.get(READ)
    found = told.value.get(table) if told is not None and isinstance(told.value, dict) else None
    return int(found["version"]) if found and found.get("id") == table_id else None
