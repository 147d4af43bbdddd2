"""Other tables behind the view, in the moment in which no reader uses it.

A view is replaced under a lock that waits for all its readers, and while it waits, every new reader waits behind it. So
the wait is short, gives up, lets the readers pass and tries again: a reader that takes its time, or forgot to end its
transaction, holds up the swap and not the others. All of it is a savepoint of the load's own transaction, whose rows are
in place by then: what readers may have to wait for is a few changes of the catalog.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from psycopg2.errors import DeadlockDetected, LockNotAvailable
from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Identifier

from de_resources.errors import TransientError
from de_resources.postgres_creation import lock
from de_resources.weekly.view import WeeklyView, parts, view_over


class ViewBusy(TransientError):
    """Readers that did not let go of a view."""

    def __init__(self, view: str, seconds: float, sessions: tuple[int, ...]) -> None:
        self.view, self.seconds, self.sessions = view, seconds, sessions
        told = f" (process {', '.join(map(str, sessions))} of the server)" if sessions else ""
        super().__init__(
            f"The view `{view}` was in use for {seconds:g} s without a pause{told}. Nothing was changed, readers see what was "
            "there before. Run again; if it stays like this, look in `pg_stat_activity` for a session that is `idle in "
            "transaction`."
        )


@dataclass(frozen=True)
class Patience:
    """How long readers may have to wait at a time, how long they are let pass in between, and when to give up.

    A wait below the server's `deadlock_timeout` (a second) also ends in the readers' favour where a transaction of
    theirs has one of the tables and wants the view.
    """

    wait_seconds: float = 0.5
    pause_seconds: float = 0.5
    total_seconds: float = 60.0


PATIENCE = Patience()


def swapping(statement: cursor, view: WeeklyView, patience: Patience, change: Callable[[], None]) -> int:
    """Make a change of the catalog as soon as the readers let it, and return at which attempt. Raises `ViewBusy`."""
    started = time.monotonic()
    attempt = 1
    statement.execute("SAVEPOINT swap")
    while True:
        try:
            # A number of milliseconds; zero would mean for ever.
            statement.execute("SET LOCAL lock_timeout = %s", (max(1, round(patience.wait_seconds * 1000)),))
            # Two loads of different weeks: each has to see the tables of the other.
            lock(statement, f"{view.name}: swap")
            change()
        except (LockNotAvailable, DeadlockDetected):
            statement.execute("ROLLBACK TO SAVEPOINT swap")
            if time.monotonic() - started >= patience.total_seconds:
                raise ViewBusy(view.name, patience.total_seconds, _users(statement, view)) from None
            time.sleep(patience.pause_seconds)
            attempt += 1
        else:
            return attempt


def exchange(statement: cursor, view: WeeklyView, staged: Mapping[str, str], register: Callable[[], None]) -> None:
    """Put the `staged` tables in the place of those that they are named for, and drop what no week lies in any more.

    `register` writes down where the weeks lie now. The view goes first: who has it, has nothing of the tables below it.
    """
    before = parts(statement, view)
    register()
    after = parts(statement, view)
    statement.execute(view_over(statement, view, [staged.get(part, part) for part in after]))
    for part in before:
        if part in staged or part not in after:
            statement.execute(SQL("DROP TABLE {}").format(view.part(part)))
    for part, stage in staged.items():
        statement.execute(SQL("ALTER TABLE {} RENAME TO {}").format(view.part(stage), Identifier(part)))


def _users(statement: cursor, view: WeeklyView) -> tuple[int, ...]:
    statement.execute(
        "SELECT DISTINCT pid FROM pg_locks WHERE relation = to_regclass(%s) AND granted AND pid <> pg_backend_pid() "
        "ORDER BY pid",
        (view.relation.identifier.as_string(statement),),
    )
    return tuple(pid for (pid,) in statement.fetchall())
