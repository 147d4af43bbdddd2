"""A slice of several PostgreSQL tables and the row that says where it came from, in one transaction.

Pattern: Transactional Writer. Readers see the slice of all tables as the load before left it, or as this one does, and
`loads` tells which, to engineers (Metadata Decorator: business readers cannot read it). The load's row is written first:
it is also the lock of the slice, so that a second load of the same slice waits until the first has committed, and then
replaces what it wrote; other slices go on meanwhile. A rerun leaves the same rows. What fails or is killed at
any point leaves nothing, in any of the tables.

One process writes all of it: tasks that each commit a table or a part, and are tried again one by one, leave halves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg2
from psycopg2.errors import DependentObjectsStillExist
from psycopg2.extensions import cursor
from psycopg2.extras import execute_values
from psycopg2.sql import SQL, Composable, Composed, Identifier

from de_resources.contract import Contract
from de_resources.contract.contract import Column
from de_resources.delta.write.crash_points import crash_point
from de_resources.errors import PermanentError, TransientError
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.audience import open_to_engineers
from de_resources.postgres.constraints import constraints_of, enforce, named
from de_resources.postgres.creation import create_missing
from de_resources.postgres.presence import require
from de_resources.postgres.protection import protect

LOADS = "loads"
REQUIRED = " NOT NULL"
"""In the type of a column that has to have a value."""
REFUSALS = (psycopg2.IntegrityError, psycopg2.DataError, psycopg2.ProgrammingError, DependentObjectsStillExist)
"""What is wrong with the rows or the tables, and would be so again."""
_TYPES = {
    "string": "text",
    "int": "integer",
    "bigint": "bigint",
    "double": "double precision",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamptz",
}
_LOADS_TABLE = """
    CREATE TABLE {} (dataset text, slice text, run_id text NOT NULL, attempt integer NOT NULL,
    rows jsonb NOT NULL, loaded_at timestamptz NOT NULL DEFAULT now(), job_version text, PRIMARY KEY (dataset, slice))
"""
_LOAD = """
    INSERT INTO {} (dataset, slice, run_id, attempt, rows, job_version) VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (dataset, slice) DO UPDATE SET run_id = excluded.run_id, attempt = excluded.attempt,
    rows = excluded.rows, loaded_at = now(), job_version = excluded.job_version
"""
_HAS_VERSION = """
    SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'job_version' AND NOT attisdropped)
"""


class NoSuchColumnType(PermanentError):
    """A column of a contract that has no counterpart in the database."""

    def __init__(self, table: str, column: str, type_: str) -> None:
        self.table, self.column, self.type = table, column, type_
        super().__init__(
            f"The column `{column}` of `{table}` has the type {type_}, which is not written to PostgreSQL. Take one of "
            f"{', '.join(_TYPES)} in its contract, or flatten it."
        )


class RowOutsideSlice(PermanentError):
    """A row that a rerun of its slice would not replace."""

    def __init__(self, table: str, column: str, slice_: object, found: object) -> None:
        self.table, self.column, self.slice, self.found = table, column, slice_, found
        super().__init__(
            f"A row for `{table}` has `{column}` = {found}, but the load is that of {slice_}: a rerun would not replace it. "
            "Nothing was written. Filter the rows by their slice."
        )


class LoadRefused(PermanentError):
    """A load with rows that the database does not take."""

    def __init__(self, dataset: str, slice_: object, reason: str) -> None:
        self.dataset, self.slice, self.reason = dataset, slice_, reason
        super().__init__(
            f"The database refused the load of `{dataset}` for {slice_}: {reason}. All of it was rolled back, readers see what "
            "was there before. Correct the rows, or migrate the tables to their contract, then run again."
        )


class LoadInterrupted(TransientError):
    """A load that the database did not finish."""

    def __init__(self, dataset: str, slice_: object, reason: str) -> None:
        self.dataset, self.slice, self.reason = dataset, slice_, reason
        super().__init__(
            f"The load of `{dataset}` for {slice_} was interrupted ({reason}). It is visible as a whole or not at all. Look at "
            "`de status`, then run again: a rerun leaves one copy in either case."
        )


def sql_columns(contract: Contract) -> tuple[tuple[str, str], ...]:
    """A contract's columns with their SQL types. Raises `NoSuchColumnType`."""
    return tuple((c.name, sql_type(contract.name, c) + ("" if c.nullable else REQUIRED)) for c in contract.columns)


def sql_type(contract: str, column: Column) -> str:
    """The SQL type of a contract's column. Raises `NoSuchColumnType`."""
    spark_type = column.type.simpleString()
    if spark_type not in _TYPES:
        raise NoSuchColumnType(contract, column.name, spark_type)
    return _TYPES[spark_type]


@dataclass(frozen=True)
class Relation:
    """A table (`schema.name`), its columns with their SQL types, its key, and the column that tells a row's slice.

    `constraints`: what else its rows have to keep, as name and definition (`postgres.constraints`). `readers`: who outside of
    the graph reads it, for who would take a column away.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    slice_column: str
    constraints: tuple[tuple[str, str], ...] = ()
    readers: tuple[str, ...] = ()

    @classmethod
    def of(cls, contract: Contract) -> Relation:
        """The table that a contract describes, sliced by the one column it is partitioned by.

        Raises `NoSuchColumnType`, `NotForPostgres`.
        """
        (slice_column,) = contract.partitioned_by
        columns, constraints = sql_columns(contract), constraints_of(contract)
        return cls(contract.name, columns, contract.key, slice_column, constraints, contract.consumers)

    @property
    def identifier(self) -> Identifier:
        """Its quoted name."""
        return Identifier(*self.name.split("."))

    def enforce(self, statement: cursor) -> dict[str, int]:
        """Bring presence, references and rules of the table, which is there, to what is declared.

        Returns the rules that rows of the table break, with the number of these rows: they hold for new rows only. Raises
        `KeyChanged`.
        """
        names = [name for name, _ in self.columns]
        required = [name for name, type_ in self.columns if REQUIRED in type_]
        lacking = require(statement, self.identifier, names, required, self.key)
        standing_in = ((named(f"{column}_present"), check) for column, check in lacking)
        return enforce(statement, self.identifier, (*self.constraints, *standing_in))

    def protect(self, statement: cursor) -> None:
        """Let the database refuse statements of others that take a declared column away; the table is there."""
        protect(statement, self.identifier, self.name, (name for name, _ in self.columns), self.readers)

    def definition(self) -> Composed:
        """The statement that creates it."""
        columns = [SQL("{} " + type_).format(Identifier(name)) for name, type_ in self.columns]
        return SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
            self.identifier, _listed(columns), _listed(map(Identifier, self.key))
        )


@dataclass(frozen=True)
class Load:
    """Which dataset (`schema.name`) is loaded by which run of which version of the code; attempts of the run count from 1."""

    dataset: str
    run_id: str
    attempt: int = 1
    job_version: str | None = None


@dataclass(frozen=True)
class Loaded:
    """What a load wrote, by table: its rows, and the rules that older rows break, so that they hold for new rows only."""

    rows: Mapping[str, int]
    blocked: Mapping[str, Mapping[str, int]]


Rows = Sequence[Mapping[str, Any]]


def write_slice(database: PostgresDatabase, load: Load, slice_: str | date, tables: Mapping[Relation, Rows]) -> Loaded:
    """Replace the slice in all tables, and the load's row in `<schema>.loads`.

    Tables that are absent are created first; of existing ones only the constraints are brought to their contract. No rows
    for a table empty its slice.

    Raises:
        KeyChanged: the primary key of a table is another one than declared; nothing was written.
        RowOutsideSlice: a row belongs to another slice; nothing was written.
        LoadRefused: a row violates a constraint, or a table is not as declared; all was rolled back.
        LoadInterrupted: the connection broke, or two loads lock each other; visible as a whole or not at all.
        ServiceUnavailable: no connection.
    """
    for relation, rows in tables.items():
        _require_inside(relation, slice_, rows)
    counts = {relation.name: len(rows) for relation, rows in tables.items()}
    with explained(load.dataset, slice_):
        blocked = _create_missing(database, load, tables)
        with database.connect() as session, session.cursor() as statement:
            crash_point("before_write", load.dataset)
            values = (load.dataset, str(slice_), load.run_id, load.attempt, json.dumps(counts), load.job_version)
            statement.execute(SQL(_LOAD).format(_loads(load)), values)
            for relation, rows in tables.items():
                _replace(statement, relation, slice_, rows)
                crash_point("before_commit", relation.name)
    crash_point("after_commit", load.dataset)
    return Loaded(counts, blocked)


def _require_inside(relation: Relation, slice_: str | date, rows: Rows) -> None:
    for row in rows:
        if row[relation.slice_column] != slice_:
            raise RowOutsideSlice(relation.name, relation.slice_column, slice_, row[relation.slice_column])


def _create_missing(database: PostgresDatabase, load: Load, tables: Iterable[Relation]) -> dict[str, Mapping[str, int]]:
    """A transaction of its own: others who create something wait until it ends."""
    loads = (_loads(load), SQL(_LOADS_TABLE).format(_loads(load)))
    with database.connect() as session, session.cursor() as statement:
        create_missing(statement, [loads, *((table.identifier, table.definition()) for table in tables)])
        _complete_loads(statement, _loads(load))
        blocked: dict[str, Mapping[str, int]] = {table.name: table.enforce(statement) for table in tables}
        for table in tables:
            table.protect(statement)
    return blocked


def _complete_loads(statement: cursor, loads: Identifier) -> None:
    """Who loaded is for engineers. A table that an earlier version of the platform made gets the column that it lacks."""
    statement.execute(_HAS_VERSION, (loads.as_string(statement),))
    if statement.fetchone() != (True,):
        statement.execute(SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS job_version text").format(loads))
    open_to_engineers(statement, loads)


def _replace(statement: cursor, relation: Relation, slice_: str | date, rows: Rows) -> None:
    where = SQL("DELETE FROM {} WHERE {} = %s").format(relation.identifier, Identifier(relation.slice_column))
    statement.execute(where, (slice_,))
    names = [name for name, _ in relation.columns]
    into = SQL("INSERT INTO {} ({}) VALUES %s").format(relation.identifier, _listed(map(Identifier, names)))
    execute_values(statement, into, [[row[name] for name in names] for row in rows], page_size=1000)


def _loads(load: Load) -> Identifier:
    return Identifier(load.dataset.split(".")[0], LOADS)


def _listed(parts: Iterable[Composable]) -> Composed:
    return SQL(", ").join(parts)


@contextmanager
def explained(dataset: str, slice_: object) -> Iterator[None]:
    """Raise `LoadRefused` or `LoadInterrupted` for what the database says about a change, without a value of a row."""
    try:
        yield
    except REFUSALS as error:
        # Without the details, which hold values of the row.
        raise LoadRefused(dataset, slice_, reason_of(error)) from None
    except psycopg2.Error as error:
        raise LoadInterrupted(dataset, slice_, reason_of(error)) from error


def reason_of(error: psycopg2.Error) -> str:
    """What the server said, without values of rows."""
    if isinstance(error, psycopg2.DataError):
        return f"{type(error).__name__}, SQLSTATE {error.pgcode}"  # its text quotes the value
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
