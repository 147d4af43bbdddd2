"""A table of last states whose slices can be loaded again in any order, by way of a history of what each slice brought.

Pattern: Stateful Merger, for stores without versions. Delta takes a table back to an earlier version; PostgreSQL has none, so
that beside the table (`schema.name`) lies `schema.name_history`: the rows of every slice, as they came. The table has, for each
key, the row of its last slice. Loading a slice again replaces its rows in the history, and recomputes the keys that it had
and has: first as if the slice and all after it had never been, then with it, then with the later ones, which the history holds.
That is one statement, so that no reader sees the table taken back, and nothing has to be replayed: after any load the
table is what a clean run of all slices in order leaves.

It holds for rows that come from elsewhere. Rows that were computed from the table itself (a total so far) would be wrong in
the history as soon as an earlier slice changes: `take_back` removes that slice and all after it, to be run again in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

from psycopg2.extensions import cursor
from psycopg2.extras import execute_values
from psycopg2.sql import SQL, Composable, Composed, Identifier

from de_resources.delta.write.crash_points import crash_point
from de_resources.errors import PermanentError
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.creation import create_missing, lock
from de_resources.postgres.transaction import REQUIRED, Relation, RowOutsideSlice, explained


class NoHistory(PermanentError):
    """A relation that cannot have a history as it is declared."""

    def __init__(self, relation: str, why: str) -> None:
        self.relation, self.why = relation, why
        super().__init__(f"`{relation}` cannot be kept with a history: {why}. Correct its declaration.")


@dataclass(frozen=True)
class HistoryTable:
    """The table of last states. Its slice column tells which slice gave a row its state; slices follow it in order.

    `deleted` names a boolean column of the loads and of the history: a key whose last row says so has no state. Such
    rows need nothing but key and slice. Raises `NoHistory`.
    """

    relation: Relation
    deleted: str | None = None

    def __post_init__(self) -> None:
        names = {name for name, _ in self.relation.columns}
        if not self.relation.key or self.relation.slice_column in self.relation.key:
            raise NoHistory(self.name, "its key is empty, or has the slice in it, so that no row ever follows another")
        if self.deleted in names:
            raise NoHistory(self.name, f"`{self.deleted}` is one of its columns, and deleted rows are not in the table")

    @property
    def name(self) -> str:
        """`schema.name`, as readers call it."""
        return self.relation.name

    @property
    def history(self) -> Identifier:
        """The table of all that the slices brought."""
        schema, _, base = self.name.partition(".")
        return Identifier(schema, f"{base}_history")

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the table."""
        return tuple(name for name, _ in self.relation.columns)

    @property
    def loaded(self) -> tuple[str, ...]:
        """Of a load: the table's, and the one that marks deleted rows."""
        return (*self.columns, *([self.deleted] if self.deleted else []))


@dataclass(frozen=True)
class Merged:
    """What a load did: its rows, what changed in the table, and how many later slices were played again on top."""

    rows: int
    written: int
    removed: int
    later: int


def merge_slice(
    database: PostgresDatabase, table: HistoryTable, slice_: str | date, rows: Iterable[Mapping[str, Any]]
) -> Merged:
    """Replace what a slice brought, and leave the table as all slices in order would, in one transaction.

    The first load creates both tables. Rows are streamed. Loads of one table wait for each other; readers do not wait.
    A rerun leaves the same rows and writes none in the table.

    Raises:
        RowOutsideSlice: a row belongs to another slice; nothing was written.
        LoadRefused: a key comes twice or is null, or a row violates a constraint; nothing was written.
        LoadInterrupted, ServiceUnavailable: the database went away; visible as a whole or not at all.
    """
    with _changing(database, table, slice_) as statement:
        _touch(statement, table, SQL("{} = %s").format(_slice(table)), slice_)
        statement.execute(SQL("DELETE FROM {} WHERE {} = %s").format(table.history, _slice(table)), (slice_,))
        crash_point("before_write", table.name)
        count = _insert(statement, table, slice_, rows)
        _touch(statement, table, SQL("{} = %s").format(_slice(table)), slice_)
        written, removed = _rebuild(statement, table)
        later = SQL("SELECT count(DISTINCT {0}) FROM {1} WHERE {0} > %s").format(_slice(table), table.history)
        statement.execute(later, (slice_,))
        ((following,),) = statement.fetchall()
        crash_point("before_commit", table.name)
    crash_point("after_commit", table.name)
    return Merged(count, written, removed, following)


def take_back(database: PostgresDatabase, table: HistoryTable, first: str | date) -> tuple[Any, ...]:
    """Make the table what it was before the slice `first`: that slice and all after it are gone, and returned in order.

    For rows that were computed from the table: run the returned slices again, in order. A rerun finds nothing to do.
    Raises `LoadInterrupted` and `ServiceUnavailable`; done as a whole or not at all.
    """
    with _changing(database, table, first) as statement:
        statement.execute(
            SQL("SELECT DISTINCT {0} FROM {1} WHERE {0} >= %s ORDER BY 1").format(_slice(table), table.history),
            (first,),
        )
        gone = tuple(slice_ for (slice_,) in statement.fetchall())
        _touch(statement, table, SQL("{} >= %s").format(_slice(table)), first)
        statement.execute(SQL("DELETE FROM {} WHERE {} >= %s").format(table.history, _slice(table)), (first,))
        _rebuild(statement, table)
        crash_point("before_commit", table.name)
    crash_point("after_commit", table.name)
    return gone


@contextmanager
def _changing(database: PostgresDatabase, table: HistoryTable, slice_: str | date) -> Iterator[cursor]:
    """A transaction that has the table for itself, among writers, and a list for the keys that it touches."""
    with explained(table.name, slice_), database.connect() as session, session.cursor() as statement:
        lock(statement, f"{table.name}: history")
        _create_missing(statement, table)
        touched = SQL("CREATE TEMPORARY TABLE touched ON COMMIT DROP AS SELECT {} FROM {} LIMIT 0")
        statement.execute(touched.format(_names(table.relation.key), table.history))
        yield statement


def _create_missing(statement: cursor, table: HistoryTable) -> None:
    # Deleted rows are a key and nothing else: what the table requires, it requires of rows that come into it.
    required = {*table.relation.key, table.relation.slice_column}
    columns = [
        SQL("{} " + (type_ if name in required else type_.partition(REQUIRED)[0])).format(Identifier(name))
        for name, type_ in table.relation.columns
    ]
    if table.deleted:
        columns.append(SQL("{} boolean").format(Identifier(table.deleted)))
    key = _names((*table.relation.key, table.relation.slice_column))
    history = SQL("CREATE TABLE {} ({}, PRIMARY KEY ({})); CREATE INDEX ON {} ({})").format(
        table.history, SQL(", ").join(columns), key, table.history, _names((table.relation.slice_column,))
    )
    create_missing(statement, [(table.relation.identifier, table.relation.definition()), (table.history, history)])
    table.relation.enforce(statement)


def _insert(statement: cursor, table: HistoryTable, slice_: str | date, rows: Iterable[Mapping[str, Any]]) -> int:
    count = 0

    def values() -> Iterator[Sequence[Any]]:
        nonlocal count
        for count, row in enumerate(rows, 1):  # noqa: B007 - the number of rows is the result
            if row[table.relation.slice_column] != slice_:
                raise RowOutsideSlice(table.name, table.relation.slice_column, slice_, row[table.relation.slice_column])
            yield [row.get(name) for name in table.loaded]

    into = SQL("INSERT INTO {} ({}) VALUES %s").format(table.history, _names(table.loaded))
    execute_values(statement, into, values(), page_size=1000)
    return count


def _touch(statement: cursor, table: HistoryTable, where: Composable, slice_: str | date) -> None:
    """Note the keys of the slices that `where` names."""
    note = SQL("INSERT INTO touched SELECT {} FROM {} WHERE {}")
    statement.execute(note.format(_names(table.relation.key), table.history, where), (slice_,))


def _rebuild(statement: cursor, table: HistoryTable) -> tuple[int, int]:
    """Bring the touched keys to the state that the history tells, and return how many rows were written and removed."""
    key, columns = _names(table.relation.key), _names(table.columns)
    alive = SQL("NOT coalesce({}, false)").format(Identifier(table.deleted)) if table.deleted else SQL("true")
    newest = SQL(
        "CREATE TEMPORARY TABLE newest ON COMMIT DROP AS SELECT {columns} FROM (SELECT DISTINCT ON ({key}) * FROM {history} "
        "JOIN (SELECT DISTINCT {key} FROM touched) AS t USING ({key}) ORDER BY {key}, {slice} DESC) AS last WHERE {alive}"
    )
    statement.execute(newest.format(columns=columns, key=key, history=table.history, slice=_slice(table), alive=alive))
    remove = SQL("DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM touched EXCEPT SELECT {key} FROM newest)")
    statement.execute(remove.format(table=table.relation.identifier, key=key))
    removed = statement.rowcount
    write = SQL(
        "INSERT INTO {table} AS current ({columns}) SELECT {columns} FROM newest ON CONFLICT ({key}) DO UPDATE SET {sets} "
        "WHERE ({before}) IS DISTINCT FROM ({after})"
    )
    sets = [SQL("{0} = excluded.{0}").format(Identifier(name)) for name in table.columns]
    before, after = (
        SQL(", ").join(Identifier(source, name) for name in table.columns) for source in ("current", "excluded")
    )
    statement.execute(
        write.format(
            table=table.relation.identifier,
            columns=columns,
            key=key,
            sets=SQL(", ").join(sets),
            before=before,
            after=after,
        )
    )
    return statement.rowcount, removed


def _names(names: Iterable[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))


def _slice(table: HistoryTable) -> Identifier:
    return Identifier(table.relation.slice_column)
