"""Feeds the operational database: users as they change over time, their history by trigger, and the legacy visits."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from importlib import resources
from itertools import groupby

from psycopg2.extensions import connection as Connection
from psycopg2.extensions import cursor as Cursor
from psycopg2.extras import execute_batch, execute_values

from de_assets.sources.simulator.legacy import LegacyVisit, legacy_visits
from de_assets.sources.simulator.profiles import UserChange, user_changes
from de_assets.sources.simulator.world import World

_PAGE = 500
_LOCK = 7_205_759_403
# Whoever captures the changes learns the simulated time from a message ahead of each.
_SAYS = "SELECT pg_logical_emit_message(true, 'event_time', %(said)s); "
_STATEMENTS = {
    "I": f"{_SAYS}INSERT INTO users (id, login, email, country, registered_at, updated_at) "
    "VALUES (%(id)s, %(login)s, %(email)s, %(country)s, %(registered_at)s, %(time)s)",
    "U": f"{_SAYS}UPDATE users SET login = %(login)s, email = %(email)s, country = %(country)s, updated_at = %(time)s "
    "WHERE id = %(id)s",
    "D": f"{_SAYS}SELECT set_config('blog.changed_at', %(time)s::text, true); DELETE FROM users WHERE id = %(id)s",
}
_LEGACY = """
    INSERT INTO legacy_visits AS known (visit_id, event_time, user_id, page, ip, is_deleted, ingestion_time) VALUES %s
    ON CONFLICT (visit_id) DO UPDATE SET is_deleted = excluded.is_deleted, ingestion_time = excluded.ingestion_time
    WHERE excluded.ingestion_time > known.ingestion_time
"""


@dataclass(frozen=True, slots=True)
class DatabaseFeed:
    """How many changes a feed applied; both are 0 when all were there before."""

    user_changes: int
    legacy_states: int


def feed_database(
    connection: Connection, world: World, start: datetime, end: datetime, *, legacy_per_hour: int = 60
) -> DatabaseFeed:
    """Bring the database to where it stands at `end`, in one transaction, creating the tables where they are missing.

    Users: every change before `end`, also those before `start` (who registered long ago exists), in the order of
    time; `users_history` gets one row per change, `changed_at` being the simulated time. Legacy visits: the states of
    `[start, end)`. Feeding a window twice, or windows that overlap, leaves the same rows. A second feeder waits for
    the first. Raises psycopg2's errors; nothing of a failed feed remains.
    """
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        cursor.execute(resources.files(__package__).joinpath("database.sql").read_text())
        changes = _unapplied(cursor, user_changes(world, datetime.min.replace(tzinfo=UTC), end))
        for operation, run in groupby(changes, key=lambda change: change.operation):
            rows = [{**asdict(change.user), "time": change.time, "said": change.time.isoformat()} for change in run]
            execute_batch(cursor, _STATEMENTS[operation], rows, page_size=_PAGE)
        states = legacy_visits(world, start, end, legacy_per_hour)
        return DatabaseFeed(len(changes), _apply_states(cursor, states))


def create_tables(connection: Connection) -> None:
    """Make the tables and triggers where they are missing; what is there stays."""
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        cursor.execute(resources.files(__package__).joinpath("database.sql").read_text())


def _unapplied(cursor: Cursor, changes: list[UserChange]) -> list[UserChange]:
    """Changes that the history does not hold: those after the last one known of their user."""
    cursor.execute("SELECT user_id, max(changed_at) FROM users_history GROUP BY user_id")
    known = dict(cursor.fetchall())
    return [change for change in changes if change.user.id not in known or change.time > known[change.user.id]]


def _apply_states(cursor: Cursor, states: list[LegacyVisit]) -> int:
    """Upsert the states in order; the last state of a row wins, and an older one never replaces a newer one."""
    latest = {state.visit_id: state for state in states}
    applied = 0
    rows = [astuple(state) for state in latest.values()]
    for begin in range(0, len(rows), _PAGE):
        page = rows[begin : begin + _PAGE]
        execute_values(cursor, _LEGACY, page, page_size=_PAGE)
        applied += cursor.rowcount
    return applied
