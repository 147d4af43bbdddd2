"""Rows into a table of PostgreSQL as into a key-value store: one row per key, and what is written again replaces itself.

Pattern: Keyed Idempotency. Where the key derives from facts that never change, a repeated write finds its own row. It may be a
repetition of something old, from a run that was held up or from a replay that has not come as far yet: the columns
`forward` only ever grow, and a row that would take them back is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg2
from psycopg2.extensions import cursor
from psycopg2.extras import execute_values
from psycopg2.sql import SQL, Composed, Identifier

from de_resources.contract import Contract
from de_resources.delta.write.crash_points import crash_point
from de_resources.errors import PermanentError, TransientError
from de_resources.postgres import PostgresDatabase
from de_resources.postgres import creation as postgres_creation
from de_resources.postgres.constraints import constraints_of
from de_resources.postgres.transaction import REFUSALS, Relation, Rows, reason_of, sql_columns


class UpsertRefused(PermanentError):
    """Rows that the database does not take."""

    def __init__(self, table: str, why: str) -> None:
        self.table, self.why = table, why
        super().__init__(
            f"The database refused rows of `{table}`: {why}. All of them were rolled back, readers see what was there before. "
            "Correct the rows, or migrate the table to its contract, then run again."
        )


class UpsertInterrupted(TransientError):
    """Rows that the database did not finish to take."""

    def __init__(self, table: str, why: str) -> None:
        self.table, self.why = table, why
        super().__init__(
            f"Writing to `{table}` was interrupted ({why}). The rows are visible all or none. Look at `de status`, then run "
            "again: the same rows hit the same keys."
        )


def keyed_relation(contract: Contract) -> Relation:
    """The table that a contract describes, not sliced by anything. Raises `NoSuchColumnType`."""
    columns, constraints = sql_columns(contract), constraints_of(contract)
    return Relation(contract.name, columns, contract.key, "", constraints, contract.consumers)


def exists(database: PostgresDatabase, relation: Relation) -> bool:
    """Whether the database has the table."""
    with database.connect() as session, session.cursor() as statement:
        return postgres_creation.exists(statement, relation.identifier)


def create_if_missing(database: PostgresDatabase, relation: Relation, *, indexed: Sequence[str] = ()) -> dict[str, int]:
    """Make the table, its schema and an index on each column `indexed`, where they are absent; several wait for each other.

    Of a table that is there the constraints are brought to its contract; returns those that older rows break, with the number
    of these rows. Raises `KeyChanged`.
    """
    schema, table = relation.identifier.strings
    create = SQL("CREATE INDEX {} ON {} ({})")
    indexes = [
        (
            Identifier(schema, f"{table}_{column}"),
            create.format(Identifier(f"{table}_{column}"), relation.identifier, Identifier(column)),
        )
        for column in indexed
    ]
    with database.connect() as session, session.cursor() as statement:
        postgres_creation.create_missing(statement, [(relation.identifier, relation.definition()), *indexes])
        blocked = relation.enforce(statement)
        relation.protect(statement)
    return blocked


def upsert(
    database: PostgresDatabase,
    relation: Relation,
    rows: Rows,
    *,
    forward: Sequence[str] = (),
    also: Callable[[cursor], None] | None = None,
) -> int:
    """Write the rows, in one transaction, by the table's key; returns how many took effect.

    A row whose key is there replaces it, unless that would take the columns `forward` (compared in this order) back. `also`
    runs in the same transaction, after the rows. The table has to be there (`create_if_missing`).

    Raises:
        UpsertRefused: a row violates a constraint, or two have one key; all was rolled back.
        UpsertInterrupted: the connection broke; the rows are visible all or none.
        ServiceUnavailable: no connection.
    """
    names = [name for name, _ in relation.columns]
    try:
        with database.connect() as session, session.cursor() as statement:
            values = [[row[name] for name in names] for row in rows]
            # What the pages took, of which the cursor's own count would only tell the last.
            took = execute_values(statement, _statement(relation, forward), values, page_size=1000, fetch=True)
            if also is not None:
                also(statement)
            crash_point("before_commit", f"{relation.name}:rows")
    except REFUSALS as error:
        # Without the details, which hold values of the row.
        raise UpsertRefused(relation.name, reason_of(error)) from None
    except psycopg2.Error as error:
        raise UpsertInterrupted(relation.name, reason_of(error)) from error
    return len(took)


def _statement(relation: Relation, forward: Sequence[str]) -> Composed:
    names = [Identifier(name) for name, _ in relation.columns]
    replaced = [SQL("{0} = excluded.{0}").format(Identifier(n)) for n, _ in relation.columns if n not in relation.key]
    listed = SQL(", ").join
    newer = Composed([])
    if forward:
        ours = listed([SQL("excluded.{}").format(Identifier(name)) for name in forward])
        theirs = listed([SQL("known.{}").format(Identifier(name)) for name in forward])
        newer = SQL(" WHERE ({}) >= ({})").format(ours, theirs)
    return SQL("INSERT INTO {} AS known ({}) VALUES %s ON CONFLICT ({}) DO UPDATE SET {}{} RETURNING 1").format(
        relation.identifier, listed(names), listed(map(Identifier, relation.key)), listed(replaced), newer
    )
