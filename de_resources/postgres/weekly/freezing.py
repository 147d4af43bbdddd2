"""Closed weeks in one table, so that the view does not grow by a table every week for ever; and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg2.extensions import cursor
from psycopg2.sql import SQL

from de_resources.delta.write.crash_points import crash_point
from de_resources.errors import PermanentError
from de_resources.iso_week import Week
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.view_swap import PATIENCE, LockWait, swapping
from de_resources.postgres.weekly.copying import copy_within, finish, stage
from de_resources.postgres.weekly.refusal import explained
from de_resources.postgres.weekly.swap import exchange
from de_resources.postgres.weekly.view import WeeklyView, columns_of, ensure, lock_whole


class WeekFrozen(PermanentError):
    """A load of a week that no longer has a table of its own."""

    def __init__(self, view: str, week: Week) -> None:
        self.view, self.week = view, week
        super().__init__(
            f"{week} of `{view}` is frozen: it lies in one table with other closed weeks, and cannot be replaced alone. "
            f"Nothing was changed. To correct it all the same, run the job `thaw_week` for `{week.start}`, then this again."
        )


class WeekNotFrozen(PermanentError):
    """A week that cannot be taken out of the frozen table, because it is not in it."""

    def __init__(self, view: str, week: Week) -> None:
        self.view, self.week = view, week
        super().__init__(
            f"{week} of `{view}` is not frozen, nothing was changed. It can be run again as it is. Where each week lies is "
            f"told by the table `{view}_weeks`."
        )


@dataclass(frozen=True)
class Moved:
    """Which weeks changed their table, and how many rows were copied for it."""

    weeks: tuple[Week, ...]
    rows: int


def freeze(database: PostgresDatabase, view: WeeklyView, before: Week, *, patience: LockWait = PATIENCE) -> Moved:
    """Put all weeks before one into the frozen table, with those that are in it already.

    One transaction: the view's rows are the same before, meanwhile and after. Loads wait until it is over, readers do
    not; all rows of the frozen table are copied. A rerun finds nothing to do. Raises `ViewBusy`, `LoadInterrupted` and
    `ServiceUnavailable`; nothing was changed.
    """
    with explained(view, f"the weeks before {before}"):
        ensure(database, view)
        with database.connect() as session, session.cursor() as statement:
            lock_whole(statement, view)
            frozen, loose = _split(statement, view, before)
            if not loose:
                return Moved((), 0)
            weeks = sorted(frozen + loose)
            new, rows = _copy(statement, view, view.frozen, weeks)
            crash_point("before_commit", view.name)
            _exchange(statement, view, {view.frozen: new}, {view.frozen: loose}, patience)
    crash_point("after_commit", view.name)
    return Moved(tuple(sorted(loose)), rows)


def thaw(database: PostgresDatabase, view: WeeklyView, week: Week, *, patience: LockWait = PATIENCE) -> Moved:
    """Give a frozen week a table of its own again, so that it can be replaced.

    Raises `WeekNotFrozen`, and as `freeze`, to whose price it comes.
    """
    with explained(view, week):
        ensure(database, view)
        with database.connect() as session, session.cursor() as statement:
            lock_whole(statement, view)
            frozen, _ = _split(statement, view)
            if week not in frozen:
                raise WeekNotFrozen(view.name, week)
            table = view.table_of(week)
            own, rows = _copy(statement, view, table, [week])
            staged = {table: own}
            rest = [w for w in frozen if w != week]
            if rest:
                staged[view.frozen], others = _copy(statement, view, view.frozen, rest)
                rows += others
            crash_point("before_commit", view.name)
            _exchange(statement, view, staged, {table: [week]}, patience)
    crash_point("after_commit", view.name)
    return Moved((week,), rows)


def require_loose(statement: cursor, view: WeeklyView, week: Week) -> None:
    """Raise `WeekFrozen` for a week without a table of its own."""
    frozen, _ = _split(statement, view)
    if week in frozen:
        raise WeekFrozen(view.name, week)


def _split(statement: cursor, view: WeeklyView, before: Week | None = None) -> tuple[list[Week], list[Week]]:
    """The frozen weeks, and the others that lie before one."""
    statement.execute(SQL("SELECT week, part = %s FROM {}").format(view.weeks), (view.frozen,))
    known = [(Week(day), is_frozen) for day, is_frozen in statement.fetchall()]
    frozen = [week for week, is_frozen in known if is_frozen]
    return frozen, [week for week, is_frozen in known if not is_frozen and (before is None or week < before)]


def _copy(statement: cursor, view: WeeklyView, table: str, weeks: Sequence[Week]) -> tuple[str, int]:
    """A stage for `table` with the rows that the weeks have now, and how many these are."""
    start, end = min(weeks).start, max(weeks).end
    new = stage(statement, view, table, start, end)
    where = SQL(" OR ").join([view.between(week.start, week.end) for week in weeks])
    rows = copy_within(
        statement, view, new, list(columns_of(statement, view.template)), view.relation.identifier, where
    )
    finish(statement, view, new)
    return new, rows


def _exchange(
    statement: cursor,
    view: WeeklyView,
    staged: dict[str, str],
    moved: dict[str, Sequence[Week]],
    patience: LockWait,
) -> None:
    def register() -> None:
        for part, weeks in moved.items():
            days = [week.start for week in weeks]
            statement.execute(SQL("UPDATE {} SET part = %s WHERE week = ANY (%s)").format(view.weeks), (part, days))

    swapping(statement, view.name, patience, lambda: exchange(statement, view, staged, register))
