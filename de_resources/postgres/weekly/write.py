"""A week of a weekly view, replaced as a table: what is cleaned costs the same for ten rows and for ten million."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2.extensions import cursor
from psycopg2.sql import SQL

from de_resources.delta.write.crash_points import crash_point
from de_resources.iso_week import Week
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.creation import lock
from de_resources.postgres.view_swap import PATIENCE, LockWait, swapping
from de_resources.postgres.weekly.columns import require_columns
from de_resources.postgres.weekly.copying import copy_rows, finish, stage
from de_resources.postgres.weekly.freezing import require_loose
from de_resources.postgres.weekly.refusal import RowsOutsideWeek, explained
from de_resources.postgres.weekly.swap import exchange
from de_resources.postgres.weekly.view import WeeklyView, ensure, lock_whole

__all__ = ["Replaced", "RowsOutsideWeek", "write_week"]

_REGISTER = """
    INSERT INTO {} (week, part, rows, run_id) VALUES (%s, %s, %s, %s) ON CONFLICT (week) DO UPDATE
    SET part = excluded.part, rows = excluded.rows, run_id = excluded.run_id, loaded_at = now()
"""


@dataclass(frozen=True)
class Replaced:
    """What a load did: the table that now holds the week, its rows, and how long it took to fill and to swap it."""

    table: str
    rows: int
    load_seconds: float
    swap_seconds: float
    attempts: int


def write_week(
    database: PostgresDatabase,
    view: WeeklyView,
    week: Week,
    rows: Iterable[Sequence[Any]],
    *,
    run_id: str,
    patience: LockWait = PATIENCE,
) -> Replaced:
    """Fill a new table with the rows (in the order of the declared columns) and put it in the place of the week's.

    One transaction: readers see the week as it was, or as it is now. No rows clean the week. A rerun leaves the same
    rows; a second run of the week waits for the first, and other weeks go on meanwhile. Rows are streamed.

    Raises:
        WeekFrozen: the week lies in the frozen table; nothing was read.
        ColumnsNotAdded, ColumnTypeDiffers: the tables are not as declared; nothing was read.
        RowsOutsideWeek: a row belongs to another week; nothing was written.
        LoadRefused: a row violates a constraint, or a key comes twice; nothing was written.
        ViewBusy: the readers left no gap; nothing was written.
        LoadInterrupted, ServiceUnavailable: the database went away; visible as a whole or not at all.
    """
    started = time.monotonic()
    with explained(view, week):
        ensure(database, view)
        with database.connect() as session, session.cursor() as statement:
            lock_whole(statement, view, shared=True)
            lock(statement, f"{view.name}: {week}")
            require_loose(statement, view, week)
            require_columns(statement, view)
            crash_point("before_write", view.name)
            table = view.table_of(week)
            new = stage(statement, view, table, week.start, week.end)
            count = copy_rows(statement, view, new, view.declared, rows)
            finish(statement, view, new)
            crash_point("before_commit", view.name)
            loaded = time.monotonic()

            def change() -> None:
                register = (week.start, table, count, run_id)
                exchange(statement, view, {table: new}, lambda: _register(statement, view, register))

            attempts = swapping(statement, view.name, patience, change)
    crash_point("after_commit", view.name)
    return Replaced(table, count, loaded - started, time.monotonic() - loaded, attempts)


def _register(statement: cursor, view: WeeklyView, entry: tuple[object, ...]) -> None:
    statement.execute(SQL(_REGISTER).format(view.weeks), entry)
