"""Schemas and tables of PostgreSQL that are made when they are first needed, by whoever comes first.

`IF NOT EXISTS` does not wait: of two transactions that create the same name, the later one fails as the first commits.
Hence everybody who creates something in a schema holds that schema's lock until the end of the transaction.
Source: PostgreSQL's manual, "Explicit Locking", advisory locks.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Composable, Identifier


def exists(statement: cursor, relation: Identifier) -> bool:
    """Whether there is such a table or view."""
    statement.execute("SELECT to_regclass(%s) IS NOT NULL", (relation.as_string(statement),))
    return statement.fetchone() == (True,)


def lock(statement: cursor, name: str, *, shared: bool = False) -> None:
    """Wait for whoever holds the name, and hold it until the end of the transaction; `shared`: beside others who share it."""
    call = f"SELECT pg_advisory_xact_lock{'_shared' if shared else ''}(hashtextextended(%s, 0))"
    statement.execute(call, (name,))


def claim_schema(statement: cursor, schema: str) -> None:
    """Make the schema if it is absent; until the end of the transaction nobody else creates in it."""
    lock(statement, f"schema {schema}: creation")
    statement.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(schema)))


def create_missing(statement: cursor, definitions: Sequence[tuple[Identifier, Composable]]) -> None:
    """Make the relations that are absent, each by its definition and in this order, and their schemas.

    What exists is left as it is, and costs a look-up. Whoever comes at the same time waits, and then finds them.
    """
    if all(exists(statement, relation) for relation, _ in definitions):
        return
    for schema in sorted({relation.strings[0] for relation, _ in definitions}):
        claim_schema(statement, schema)
    for relation, definition in definitions:
        if not exists(statement, relation):
            statement.execute(definition)
