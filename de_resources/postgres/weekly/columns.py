"""Declared columns beside those that the tables have; the step that adds a new one to all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Identifier

from de_resources.errors import PermanentError
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.view_swap import PATIENCE, LockWait, swapping
from de_resources.postgres.weekly.refusal import explained
from de_resources.postgres.weekly.view import WeeklyView, columns_of, ensure, lock_whole, parts, view_over

_REQUIRED = " NOT NULL"
_CONSTRAINT = re.compile(r" (?:NOT NULL|NULL|CHECK|DEFAULT|UNIQUE|REFERENCES)\b")


class ColumnsNotAdded(PermanentError):
    """A load with columns that the tables do not have yet."""

    def __init__(self, view: str, columns: Sequence[str]) -> None:
        self.view, self.columns = view, tuple(columns)
        super().__init__(
            f"`{view}` is declared with {_told(columns)}, which its tables do not have yet. Nothing was written. Columns are "
            "added to all weeks at once by a step of its own: run the job `add_week_columns`, then this again."
        )


class ColumnsNotOptional(PermanentError):
    """New columns that the rows of earlier weeks cannot have."""

    def __init__(self, view: str, columns: Sequence[str]) -> None:
        self.view, self.columns = view, tuple(columns)
        super().__init__(
            f"{_told(columns)} of `{view}` cannot be added: earlier weeks have no value for what may not be null. Nothing was "
            "changed. Declare it nullable."
        )


class ColumnTypeDiffers(PermanentError):
    """A column whose declared type is not that of the tables."""

    def __init__(self, view: str, column: str, declared: str, found: str) -> None:
        self.view, self.column, self.declared, self.found = view, column, declared, found
        super().__init__(
            f"The column `{column}` of `{view}` is declared as {declared}, and its tables have {found}. Nothing was written. "
            "Declare a new column with the new type, and fill it by a backfill."
        )


def add_columns(database: PostgresDatabase, view: WeeklyView, *, patience: LockWait = PATIENCE) -> tuple[str, ...]:
    """Add the declared columns that are missing to all tables and, at its end, to the view; returns their names.

    Earlier rows have nulls in them, and no row is touched. A rerun adds nothing.

    Raises:
        ColumnsNotOptional, ColumnTypeDiffers: the declaration does not allow it; nothing was changed.
        ViewBusy: the readers left no gap; nothing was changed.
        LoadInterrupted, ServiceUnavailable: the database went away; done as a whole or not at all.
    """
    with explained(view, "the columns"):
        ensure(database, view)
        with database.connect() as session, session.cursor() as statement:
            lock_whole(statement, view)
            missing = missing_columns(statement, view)
            required = [name for name, type_ in missing.items() if _REQUIRED in type_]
            if required:
                raise ColumnsNotOptional(view.name, required)
            if missing:
                swapping(statement, view.name, patience, lambda: _widen(statement, view, missing))
    return tuple(missing)


def require_columns(statement: cursor, view: WeeklyView) -> None:
    """Raise `ColumnsNotAdded` or `ColumnTypeDiffers` unless a load can be written as it is declared."""
    missing = missing_columns(statement, view)
    if missing:
        raise ColumnsNotAdded(view.name, tuple(missing))


def missing_columns(statement: cursor, view: WeeklyView) -> dict[str, str]:
    """Declared columns that the tables do not have, with their definitions. Raises `ColumnTypeDiffers`."""
    found = columns_of(statement, view.template)
    declared = dict(view.relation.columns)
    for name in declared.keys() & found.keys():
        statement.execute("SELECT format_type(to_regtype(%s), NULL)", (_CONSTRAINT.split(declared[name])[0],))
        ((type_,),) = statement.fetchall()
        if type_ != found[name]:
            raise ColumnTypeDiffers(view.name, name, str(type_), found[name])
    return {name: type_ for name, type_ in declared.items() if name not in found}


def _widen(statement: cursor, view: WeeklyView, missing: dict[str, str]) -> None:
    tables = parts(statement, view)
    # The view and then its tables, as readers take them: the other way round each could wait for the other.
    statement.execute(SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(view.relation.identifier))
    for table in (view.template, *map(view.part, tables)):
        for name, type_ in missing.items():
            add = SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} " + type_)
            statement.execute(add.format(table, Identifier(name)))
    statement.execute(view_over(statement, view, tables))


def _told(columns: Sequence[str]) -> str:
    return f"the column{'s' if len(columns) > 1 else ''} {', '.join(f'`{c}`' for c in columns)}"
