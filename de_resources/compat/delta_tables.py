"""What `deltalake` knows of a table that was opened, and tells nobody: its files, and how they are reached."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

__all__ = ["filesystem_of", "table_at"]


def filesystem_of(table: DeltaTable) -> PyFileSystem:
    """The table's folder as a file system, reached as the table was."""
    return PyFileSystem(DeltaStorageHandler.from_table(table._table))


def table_at(table: DeltaTable, version: int) -> DeltaTable:
    """The same table at a version, reached as the table was. Raises as `DeltaTable` does."""
    return DeltaTable(table.table_uri, version=version, storage_options=table._storage_options)
