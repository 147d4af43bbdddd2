"""Users on their way from the database into the lake while capture, broker and database die: the lake equals the database."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from platform_world import Lakehouse, Platform, kill_service
from psycopg2.extensions import cursor

from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("change_data_capture")]

TRANSACTIONS, CHANGES = 200, 50
DEATHS = {30: "capture", 70: "kafka", 120: "postgres", 160: "capture", 180: "kafka"}
LOOKS = (100, TRANSACTIONS - 1)
"""Transactions after which the lake takes in what is there."""
COUNTRIES = ("France", "Poland", "Japan", "Peru")
FOLLOW = [{"assets": [name]} for name in ("bronze/users_changes", "silver/users", "gold/users_by_country")]


def change(users: cursor, random: Random, known: list[str], number: int) -> None:
    """One insertion, update, deletion or change of the key."""
    choice, fresh = random.random(), f"killed-{number}"
    if choice < 0.5 or not known:
        values = (fresh, f"login-{number}", f"{number}@example.org", random.choice(COUNTRIES))
        users.execute("INSERT INTO users VALUES (%s, %s, %s, %s, now(), clock_timestamp())", values)
        known.append(fresh)
        return
    row = random.randrange(len(known))
    if choice < 0.75:
        users.execute("UPDATE users SET country = %s WHERE id = %s", (random.choice(COUNTRIES), known[row]))
    elif choice < 0.9:
        users.execute("DELETE FROM users WHERE id = %s", (known.pop(row),))
    else:
        users.execute("UPDATE users SET id = %s WHERE id = %s", (fresh, known[row]))
        known[row] = fresh


def test_the_lake_equals_the_database_after_ten_thousand_changes_and_five_deaths(
    platform: Platform, lakehouse: Lakehouse
) -> None:
    random, known = Random(11), list[str]()  # noqa: S311 - the same changes every time
    for number in range(TRANSACTIONS):
        if number in DEATHS:
            kill_service(platform.services, DEATHS[number])
        with platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as users:
            for n in range(CHANGES):
                change(users, random, known, number * CHANGES + n)
        if number in LOOKS:
            platform.wait_until_captured()
            lakehouse.run(*FOLLOW).succeeded()

    rows = {row[0]: row[1:] for row in platform.query("SELECT id, login, email, country FROM users")}
    current = [row for row in lakehouse.rows("silver/users") if row["is_current"]]
    assert {row["user_id"]: (row["login"], row["email"], row["country"]) for row in current} == rows
    assert len(current) == len(rows) > 1_000
    counted = {row["country"]: row["users"] for row in lakehouse.rows("gold/users_by_country")}
    assert counted == Counter(country for *_, country in rows.values())
