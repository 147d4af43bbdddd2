"""A change under a view, in a moment in which no reader uses it.

A view is replaced under a lock that waits for all its readers, and while it waits, every new reader waits behind it. So
the wait is short, gives up, lets the readers pass and tries again: a reader that takes its time, or forgot to end its
transaction, holds up the change and not the others. All of it is a savepoint of the caller's own transaction, whose rows are
in place by then: what readers may have to wait for is a few changes of the catalog.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from psycopg2.errors import DeadlockDetected, LockNotAvailable
from psycopg2.extensions import cursor
from psycopg2.sql import Identifier

from de_resources.errors import TransientError
from de_resources.postgres.creation import lock


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
class LockWait:
    """How long readers may have to wait at a time, how long they are let pass in between, and when to give up.

    A wait below the server's `deadlock_timeout` (a second) also ends in the readers' favour where a transaction of
    theirs has one of the tables and wants the view.
    """

    wait_seconds: float = 0.5
    pause_seconds: float = 0.5
    total_seconds: float = 60.0


PATIENCE = LockWait()
_IN_USE = (LockNotAvailable, DeadlockDetected)


def swapping(statement: cursor, name: str, patience: LockWait, change: Callable[[], None]) -> int:
    """Make a change of the catalog as soon as the readers of the view `schema.name` let it; returns at which attempt.

    Raises `ViewBusy`.
    """
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    statement.execute("SAVEPOINT swap")
    again = Retrying(
        retry=retry_if_exception_type(_IN_USE),
        wait=wait_fixed(patience.pause_seconds),
        stop=stop_after_delay(patience.total_seconds),
        # Also after the last one: who is in the way is asked in a transaction that works.
        after=lambda _: statement.execute("ROLLBACK TO SAVEPOINT swap"),
        reraise=True,
    )
    try:
        again(_change_at_once, statement, name, patience, change)
    except _IN_USE:
        raise ViewBusy(name, patience.total_seconds, _users(statement, name)) from None
    return int(again.statistics["attempt_number"])


def _change_at_once(statement: cursor, name: str, patience: LockWait, change: Callable[[], None]) -> None:
    # A number of milliseconds; zero would mean for ever.
    statement.execute("SET LOCAL lock_timeout = %s", (max(1, round(patience.wait_seconds * 1000)),))
    # Two changes at once, as of different weeks: each has to see what the other did.
    lock(statement, f"{name}: swap")
    change()


def _users(statement: cursor, name: str) -> tuple[int, ...]:
    statement.execute(
        "SELECT DISTINCT pid FROM pg_locks WHERE relation = to_regclass(%s) AND granted AND pid <> pg_backend_pid() "
        "ORDER BY pid",
        (Identifier(*name.split(".")).as_string(statement),),
    )
    return tuple(pid for (pid,) in statement.fetchall())
