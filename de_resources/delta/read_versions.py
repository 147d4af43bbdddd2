"""Which versions of its inputs a materialisation was computed from, as its metadata `delta/read`.

The version is taken before the input is defined. What is committed afterwards may be in the frame or not, for a lazy frame
follows its table until it is computed; it never counts as read, so that nothing that lands meanwhile is taken for processed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from de_resources.delta.table import Table

READ = "delta/read"
"""Metadata of a materialisation: `{table: {"version": …, "id": …}}`; the id tells a table from one made again at its place."""


@dataclass
class ReadVersions:
    """The versions that one step has read so far, by table; the lowest of each."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, table: Table, pinned: int | None = None) -> None:
        """Remember the version that the table has now, or the one that is read instead. A table that is not there was not."""
        newest = table.newest()
        if newest is not None:
            version, id_ = newest
            version = version if pinned is None else pinned
            # An input that is loaded again may see more, but what was computed from the first one did not.
            self.tables.setdefault(table.name, {"version": version, "id": id_})

    def record(self, context: dg.OutputContext | dg.OpExecutionContext | dg.AssetExecutionContext) -> None:
        """Add them to the materialisation."""
        if self.tables:
            context.add_output_metadata({READ: dg.MetadataValue.json(dict(sorted(self.tables.items())))})


def record_read(context: dg.AssetExecutionContext, *tables: Table, pinned: int | None = None) -> None:
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
