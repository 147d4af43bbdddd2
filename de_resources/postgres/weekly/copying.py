"""Rows on their way into a new table, by COPY and in bounded memory.

Always with FREEZE: the rows are then visible to whoever sees the table. Without it, a transaction that keeps the
snapshot of an earlier moment would find the new table behind the view, and no row in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

import psycopg2
from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Composable, Composed, Identifier

from de_resources.errors import PermanentError
from de_resources.postgres.weekly.view import IN_ITS_WEEK, WeeklyView, listed

_BUFFER = 1 << 16
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


class TimeWithoutZone(PermanentError):
    """A moment that the server would take for one of its own zone."""

    def __init__(self) -> None:
        super().__init__("A row has a time without a time zone. Nothing was written. Add the zone, such as UTC.")


def stage(statement: cursor, view: WeeklyView, table: str, start: date, end: date) -> str:
    """A new table for the days from `start` until before `end`, which is to take the place of `table`.

    Its rows come once, frozen, and never change: a vacuum would find nothing to do, and hold up the drop.
    """
    name = f"{table}_{uuid4().hex[:8]}"
    create = SQL(
        "CREATE TABLE {} (LIKE {} INCLUDING ALL EXCLUDING INDEXES, CONSTRAINT {} CHECK {}) WITH (autovacuum_enabled = false)"
    )
    check = view.between(start, end)
    statement.execute(create.format(view.part(name), view.template, Identifier(IN_ITS_WEEK), check))
    return name


def finish(statement: cursor, view: WeeklyView, table: str) -> None:
    """Key and statistics of a stage that has its rows: an index is built faster than it grows."""
    key = listed(map(Identifier, view.relation.key))
    statement.execute(SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(view.part(table), key))
    statement.execute(SQL("ANALYZE {}").format(view.part(table)))


def copy_rows(
    statement: cursor, view: WeeklyView, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> int:
    """Write rows, in the order of `columns`, and return how many. What reading them raises comes out as it is."""
    lines = CopyLines(rows)
    try:
        statement.copy_expert(_into(view, table, columns, "text"), lines, _BUFFER)
    except psycopg2.Error:
        if lines.failure is not None:
            raise lines.failure from None
        raise
    return int(statement.rowcount)


def copy_within(
    statement: cursor, view: WeeklyView, table: str, columns: Sequence[str], source: Identifier, where: Composable
) -> int:
    """Write the rows of another relation of the same database, by way of a temporary file, and return how many."""
    select = SQL("COPY (SELECT {} FROM {} WHERE {}) TO STDOUT (FORMAT binary)")
    with TemporaryFile() as file:
        statement.copy_expert(select.format(listed(map(Identifier, columns)), source, where), file, _BUFFER)
        file.seek(0)
        statement.copy_expert(_into(view, table, columns, "binary"), file, _BUFFER)
    return int(statement.rowcount)


def _into(view: WeeklyView, table: str, columns: Sequence[str], format_: str) -> Composed:
    names = listed(map(Identifier, columns))
    return SQL("COPY {} ({}) FROM STDIN (FORMAT {}, FREEZE)").format(view.part(table), names, SQL(format_))


class CopyLines:
    """Rows as a file of COPY's text format, made while it is read. `failure`: what the rows raised."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._lines = _lines(rows)
        self.failure: Exception | None = None

    def read(self, size: int = _BUFFER) -> bytes:
        """The next lines, up to where they fill `size`; nothing at the end."""
        lines, length = [], 0
        try:
            for line in self._lines:
                lines.append(line)
                length += len(line)
                if length >= size:
                    break
        except Exception as failure:  # the driver would make a text of it, with the values that it quotes
            self.failure = failure
            raise
        return b"".join(lines)

    def readline(self, size: int = _BUFFER) -> bytes:
        """For the driver's idea of a file."""
        return self.read(size)


def _lines(rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    for row in rows:
        yield ("\t".join(map(_cell, row)) + "\n").encode()


def _cell(value: Any) -> str:
    if value is None:
        return r"\N"
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise TimeWithoutZone
    return value.isoformat() if isinstance(value, date) else str(value)
