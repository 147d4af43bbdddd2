"""Constraints Enforcer: what a column must have, and what identifies a row, of a PostgreSQL table that exists.

A table is made with both. Later, a column whose contract asks for a value becomes NOT NULL, and one whose contract does not any
more may be null. Where rows lack the value PostgreSQL refuses `SET NOT NULL`: a CHECK stands in, which holds for new rows at
once (`postgres.constraints`), until the rows are mended. A key is never changed here: rows, references and readers hang on it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Identifier

from de_resources.errors import PermanentError
from de_resources.sql.identifiers import quoted_identifier

_COLUMNS = """
    SELECT a.attname, a.attnotnull, coalesce(a.attnum = ANY (i.indkey), FALSE)
    FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class KeyChanged(PermanentError):
    """A table whose primary key is not that of its contract."""

    def __init__(self, table: str, declared: Sequence[str], found: Sequence[str]) -> None:
        self.table, self.declared, self.found = table, tuple(declared), tuple(found)
        has = f"the primary key ({', '.join(found)})" if found else "no primary key"
        super().__init__(
            f"The contract of `{table}` has the key ({', '.join(declared)}), but the table has {has}. Nothing was written. "
            "Give the table that key by `ALTER TABLE`, where its rows allow it, or take the change of the contract back."
        )


@dataclass(frozen=True)
class _Column:
    name: str
    required: bool
    in_key: bool


def require(
    statement: cursor, table: Identifier, columns: Collection[str], required: Collection[str], key: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Bring NOT NULL of the declared columns to what is required; a look where nothing differs.

    Returns the columns of which rows lack the value, each with the CHECK that stands in. Raises `KeyChanged`.
    """
    statement.execute(_COLUMNS, (table.as_string(statement),))
    found = [_Column(*row) for row in statement.fetchall()]
    present = [column.name for column in found if column.in_key]
    if set(present) != set(key):
        raise KeyChanged(".".join(table.strings), key, present)
    standing_in = []
    for column in found:
        if column.in_key or column.name not in columns or column.required == (column.name in required):
            continue
        if column.required:
            _alter(statement, table, column.name, "DROP NOT NULL")
        elif _lacks(statement, table, column.name):
            standing_in.append((column.name, f"CHECK ({quoted_identifier(column.name)} IS NOT NULL)"))
        else:
            _alter(statement, table, column.name, "SET NOT NULL")
    return tuple(standing_in)


def _alter(statement: cursor, table: Identifier, column: str, what: str) -> None:
    statement.execute(SQL("ALTER TABLE {} ALTER COLUMN {} " + what).format(table, Identifier(column)))


def _lacks(statement: cursor, table: Identifier, column: str) -> bool:
    question = SQL("SELECT EXISTS (SELECT FROM {} WHERE {} IS NULL)").format(table, Identifier(column))
    statement.execute(question)
    return statement.fetchone() == (True,)
