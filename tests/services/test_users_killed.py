"""Users on their way from the database into the lake while capture, broker and database die: the lake equals the database."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from platform_world import Lakehouse, Platform, kill_service
from psycopg2.extensions import cursor
from test_capture import read_committed

from de_assets.sources.capture import USERS_CAPTURE
from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("change_data_capture")]

CHANGES = 50
SERVICES = ("capture", "kafka", "postgres")
COUNTRIES = ("France", "Poland", "Japan", "Peru")
FOLLOW = ["bronze/users_changes", "silver/users"]
COUNT = "gold/users_by_country"


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


def test_the_lake_equals_the_database_after_two_thousand_changes_and_a_death_of_each(
    platform: Platform, lakehouse: Lakehouse
) -> None:
    live_and_die(platform, lakehouse, 11, transactions=40, deaths={8: "capture", 16: "kafka", 28: "postgres"})


def test_the_lake_equals_the_database_after_ten_thousand_changes_and_five_deaths(
    soak_seed: int, platform: Platform, lakehouse: Lakehouse
) -> None:
    random = Random(soak_seed)  # noqa: S311 - moments, not secrets
    deaths = {number: random.choice(SERVICES) for number in sorted(random.sample(range(200), 5))}
    live_and_die(platform, lakehouse, soak_seed, transactions=200, deaths=deaths)


def live_and_die(
    platform: Platform, lakehouse: Lakehouse, seed: int, *, transactions: int, deaths: dict[int, str]
) -> None:
    """Change users and kill services before these transactions; the lake follows in the middle and at the end."""
    with platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as users:
        users.execute("DELETE FROM users WHERE id LIKE 'killed-%'")  # of the round before
    random, known = Random(seed), list[str]()  # noqa: S311 - the same changes every time
    for number in range(transactions):
        if number in deaths:
            kill_service(platform.services, deaths[number])
        with platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as users:
            for n in range(CHANGES):
                change(users, random, known, number * CHANGES + n)
        if number in (transactions // 2, transactions - 1):
            platform.wait_until_captured()
            lakehouse.run({"assets": [*FOLLOW, COUNT] if number == transactions - 1 else FOLLOW}).succeeded()

    with platform.at_home():
        positions = [position for _, value, position in read_committed(USERS_CAPTURE.topic) if value is not None]
    assert len(positions) == len(set(positions)) > transactions * CHANGES, "a change of the key is two records"
    rows = {row[0]: row[1:] for row in platform.query("SELECT id, login, email, country FROM users")}
    current = [row for row in lakehouse.rows("silver/users") if row["is_current"]]
    assert {row["user_id"]: (row["login"], row["email"], row["country"]) for row in current} == rows
    assert len(current) == len(rows) > 5 * transactions
    counted = {row["country"]: row["users"] for row in lakehouse.rows("gold/users_by_country")}
    assert counted == Counter(country for *_, country in rows.values())
