"""Schema Compatibility Enforcer in the database: the columns of a contract that no statement from outside may take away.

The database refuses by an event trigger (`de_resources.local.postgres_guard`), which asks a list. Here the list is kept: what
a table has of the columns of its contract, whose contract it is, and who reads it. A database without that set-up, such as one
that others administer, is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from psycopg2.extensions import cursor
from psycopg2.extras import execute_values
from psycopg2.sql import Identifier

from de_resources.postgres.audience import open_to_business
from de_resources.postgres.creation import lock

_HAS_LIST = "SELECT to_regclass('contracts.protected') IS NOT NULL"
_WANTED = """
    SELECT relation, column_name, type, name, %(contract)s, %(readers)s::text[] FROM contracts.state
    WHERE relation = to_regclass(%(table)s) AND column_name = ANY(%(columns)s) ORDER BY column_name
"""
_PRESENT = """
    SELECT relation, column_name, type, name, contract, readers FROM contracts.protected
    WHERE relation = to_regclass(%(table)s) ORDER BY column_name
"""
_FORGET = "DELETE FROM contracts.protected WHERE relation = to_regclass(%(table)s)"
_REMEMBER = "INSERT INTO contracts.protected (relation, column_name, type, name, contract, readers) VALUES %s"


def protect(
    statement: cursor, relation: Identifier, contract: str, columns: Iterable[str], readers: Sequence[str] = ()
) -> None:
    """Protect these columns of a table or view that exists, and no others of it. A look where they are protected already.

    Who reads promised data by group (`postgres.audience`) may read it from then on.
    """
    open_to_business(statement, relation)
    statement.execute(_HAS_LIST)
    if statement.fetchone() != (True,):
        return
    named = {
        "table": relation.as_string(statement),
        "contract": contract,
        "readers": sorted(readers),
        "columns": list(columns),
    }
    if _found(statement, _WANTED, named) == _found(statement, _PRESENT, named):
        return
    lock(statement, "contracts: protected")
    statement.execute(_FORGET, named)
    execute_values(statement, _REMEMBER, _found(statement, _WANTED, named))


def _found(statement: cursor, query: str, named: Mapping[str, object]) -> list[tuple[object, ...]]:
    statement.execute(query, named)
    return list(statement.fetchall())
