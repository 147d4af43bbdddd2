"""The database feed on a real PostgreSQL: the simulated history is what the tables and the trigger hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection

from de_assets.sources.simulator import World, feed_database, legacy_visits, user_changes, users_at

pytestmark = pytest.mark.services

WORLD = World(seed=11, users=200, guests=50)
START = datetime(2026, 3, 1, tzinfo=UTC)
MIDDLE = START + timedelta(hours=13, minutes=20)
END = START + timedelta(days=2)
ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


def _query(connection: Connection, sql: str) -> list[tuple]:
    with connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def _content(connection: Connection) -> list[list[tuple]]:
    tables = (("users", "id"), ("users_history", "change_id"), ("legacy_visits", "visit_id"))
    return [_query(connection, f"SELECT * FROM {table} ORDER BY {key}") for table, key in tables]


def test_users_and_their_history_are_the_simulated_ones(database: Connection) -> None:
    fed = feed_database(database, WORLD, START, END)
    users = _query(database, "SELECT id, login, email, country, registered_at FROM users ORDER BY id")
    expected = sorted(users_at(WORLD, END).values(), key=lambda user: user.id)
    assert users == [(user.id, user.login, user.email, user.country, user.registered_at) for user in expected]
    changes = user_changes(WORLD, ALWAYS, END)
    assert fed.user_changes == len(changes)
    assert {change.operation for change in changes} == {"I", "U", "D"}
    history = (
        "SELECT user_id, login, email, country, changed_at, operation FROM users_history ORDER BY changed_at, user_id"
    )
    assert _query(database, history) == [
        (c.user.id, c.user.login, c.user.email, c.user.country, c.time, c.operation) for c in changes
    ]


def test_legacy_visits_hold_the_last_state_of_each_row(database: Connection) -> None:
    feed_database(database, WORLD, START, END)
    last = {state.visit_id: state for state in legacy_visits(WORLD, START, END)}
    columns = "visit_id, event_time, user_id, page, ip, is_deleted, ingestion_time"
    rows = _query(database, f"SELECT {columns} FROM legacy_visits ORDER BY visit_id")
    assert rows == [
        (s.visit_id, s.event_time, s.user_id, s.page, s.ip, s.is_deleted, s.ingestion_time)
        for _, s in sorted(last.items())
    ]
    assert {row[5] for row in rows} == {True, False}


def test_feeding_again_or_an_older_window_changes_nothing(database: Connection) -> None:
    feed_database(database, WORLD, START, END)
    before = _content(database)
    again = feed_database(database, WORLD, START, END)
    feed_database(database, WORLD, START, MIDDLE)
    assert (again.user_changes, again.legacy_states) == (0, 0)
    assert _content(database) == before


def test_two_windows_give_what_one_gives(database: Connection) -> None:
    feed_database(database, WORLD, START, MIDDLE)
    feed_database(database, WORLD, MIDDLE, END)
    in_two = [_query(database, f"SELECT {columns}") for columns in _COMPARED]
    _query(database, "DROP TABLE users, users_history, legacy_visits; SELECT 1")
    feed_database(database, WORLD, START, END)
    assert [_query(database, f"SELECT {columns}") for columns in _COMPARED] == in_two


_COMPARED = (
    "* FROM users ORDER BY id",
    "user_id, login, email, country, changed_at, operation FROM users_history ORDER BY changed_at, user_id",
    "* FROM legacy_visits ORDER BY visit_id",
)


def test_changes_by_hand_are_in_the_history_with_the_time_of_the_clock(database: Connection) -> None:
    feed_database(database, WORLD, START, END)
    user = _query(database, "SELECT min(id) FROM users")[0][0]
    earliest = datetime.now(UTC)
    with database, database.cursor() as cursor:
        cursor.execute("UPDATE users SET email = 'by.hand@example.org' WHERE id = %s", (user,))
        cursor.execute("DELETE FROM users WHERE id = %s", (user,))
    by_hand = _query(database, "SELECT operation, email, changed_at FROM users_history ORDER BY change_id DESC LIMIT 2")
    assert [(row[0], row[1]) for row in by_hand] == [("D", "by.hand@example.org"), ("U", "by.hand@example.org")]
    assert earliest <= by_hand[1][2] <= by_hand[0][2] <= datetime.now(UTC)


def test_a_feed_that_fails_leaves_nothing(database: Connection) -> None:
    feed_database(database, WORLD, START, MIDDLE)
    before = _content(database)
    _query(database, "ALTER TABLE legacy_visits ADD CHECK (is_deleted IS NULL) NOT VALID; SELECT 1")
    with pytest.raises(psycopg2.errors.CheckViolation):
        feed_database(database, WORLD, MIDDLE, END)
    assert _content(database) == before
