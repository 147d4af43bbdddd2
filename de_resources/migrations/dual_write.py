"""The writer of a table under migration: who knows one side of it gets the other one computed.

    @dg.asset(metadata={"writer": "de_resources.migrations.dual_write:DualWrite", "migrations": ["shop.migrations:TITLE"]})

The table says which sides it stores. Before the expansion that is the old one, during grace both, after the contraction the new
one; code that knows either can write in every phase, and so the phase and the code are changed one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from de_resources.contract import Contract
from de_resources.contract.contract import Column
from de_resources.delta.asset_settings import MIGRATIONS
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import Writer
from de_resources.migrations.migration import MigratedField, Migration, Sides, migrations_of, stored_by
from de_resources.migrations.progress import progress_of

DUAL_WRITE = f"{__name__}:DualWrite"


def under_migration(*paths: str) -> dict[str, Any]:
    """The metadata of an asset whose table these migrations change."""
    return {"writer": DUAL_WRITE, MIGRATIONS: list(paths)}


class DualWrite(Writer):
    """Fills what the table stores, from what the frame has. A table that does not exist yet is made as the code says."""

    def prepare(self, request: WriteRequest) -> WriteRequest:
        """The frame and the contract in the form of the table's phase. Raises `Unfit`."""
        log = request.table.log()
        if log is None:
            return request
        table = request.table
        parts = [(m, progress_of(log, table.name, m).sides) for m in migrations_of(request.metadata)]
        if table.contract is not None:
            table = replace(table, contract=reduce(lambda made, part: contract_of(made, *part), parts, table.contract))
        return replace(request, frame=stored_by(request.frame, parts), table=table)


def contract_of(contract: Contract, migration: Migration, sides: Sides) -> Contract:
    """The contract with the columns that the table stores.

    A column that the contract does not know is nullable, and personal where any column of the other side is. Rules on a
    column that is not stored are left out.
    """
    stored, known = migration.fields(sides), set(contract.column_names)
    gone = {*migration.old_names, *migration.new_names} - {f.name for f in stored}
    personal = not contract.personal.isdisjoint((*migration.old_names, *migration.new_names))
    kept = tuple(c for c in contract.columns if c.name not in gone)
    return replace(
        contract,
        columns=(*kept, *_columns([f for f in stored if f.name not in known], migration, personal=personal)),
        rules=tuple(r for r in contract.rules if gone.isdisjoint(r.columns)),
    )


def _columns(fields: Sequence[MigratedField], migration: Migration, *, personal: bool) -> list[Column]:
    told = f"Filled by the migration `{migration.name}`"
    return [Column(f.name, f.type, told, nullable=True, personal=personal) for f in fields]
