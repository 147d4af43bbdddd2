"""Backing up, as docs/second-day.md says it: stop, copy the home, start from the copy. Nothing is looked for where it was."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake
from instances import fresh_instance
from platform_world import KEYS, Lakehouse, Platform
from waiting import PATIENCE

from de_assets.partitions import hourly
from de_assets.sources.topics import TOPICS, VISITS
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.settings import Settings

pytestmark = pytest.mark.services

BRONZE = ["bronze/visits", "bronze/visits_dead_letter"]
Move = Callable[..., LocalServices]
PAGE = (Path(__file__).parents[2] / "docs" / "second-day.md").read_text()
TABLES = [*BRONZE, "bronze/users_changes", "silver/users"]


class Home(Lakehouse):
    """The lake and the instance of the home itself, as `de run` has them."""

    def __init__(self, services: LocalServices) -> None:
        super().__init__(services, services.settings.home)

    @cached_property
    def instance(self) -> Path:
        """The one that lies in the home; one in which nothing has happened where there is none."""
        there = self.services.settings.dagster_home
        return there if there.exists() else Path(shutil.copytree(fresh_instance(), there))

    def known(self, tables: Sequence[str] = TABLES) -> dict[str, Any]:
        """What a person would miss: rows, what each run did, records, the operational database."""
        with dg.DagsterInstance.from_config(str(self.instance)) as instance:
            runs = {run.run_id: run.status for run in instance.get_runs()}
            hours = instance.get_materialized_partitions(dg.AssetKey(["bronze", "visits"]))
        platform = Platform(self.services)
        with platform.at_home():
            ends = {topic.name: AppendLog(KafkaBroker().client_config(), topic.name).ends() for topic in TOPICS}
        rows = {name: self.multiset(name) for name in tables}
        users = platform.query("SELECT id, login, email FROM users ORDER BY id")
        return {"runs": runs, "hours": hours, "ends": ends, "rows": rows, "users": users}


@pytest.fixture
def moved(lone_services: LocalServices) -> Iterator[Move]:
    """Backs the home up into another folder and starts services from there; the first one is gone then."""
    first = lone_services.settings.home
    second = first.with_name(first.name + "-restored")
    restored: list[LocalServices] = []

    def move(*names: str) -> LocalServices:
        (commands,) = re.findall(r"^de down\n(?:cp .*\n)+", PAGE, re.MULTILINE)
        places = {".de": str(first), ".de-backup": str(second), "de": str(Path(sys.executable).with_name("de"))}
        for command in commands.splitlines():
            words = [places.get(word, word) for word in command.split()]
            subprocess.run(words, env={**os.environ, "DE_HOME": str(first)}, check=True)
        for entry in first.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        environment = {"DE_HOME": str(second), "DE_JARS": str(lone_services.settings.jars)}
        restored.append(LocalServices(Settings.from_environment(environment)))
        restored[0].up(names) if names else Platform(restored[0]).up()
        return restored[0]

    yield move
    for services in restored:
        services.down()
    shutil.rmtree(second, ignore_errors=True)


def test_a_copy_of_the_home_has_what_was_in_it_and_goes_on(lone_services: LocalServices, moved: Move) -> None:
    """Database, broker, tables and the record of runs; the engine and the capture have nothing of their own in a home."""
    parts = ("postgres", "kafka")
    lone_services.up(parts, topics=TOPICS)
    home, platform = Home(lone_services), Platform(lone_services)
    with platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE users AS SELECT 1 AS id, 'ann' AS login, 'ann@example.org' AS email")
        produced(VISITS, "first")
    write_deltalake(str(home.root / BRONZE[0]), pa.table({"visit_id": ["a", "b"]}))

    @dg.asset(key=["bronze", "visits"], partitions_def=hourly)
    def visits() -> None: ...

    with dg.DagsterInstance.from_config(str(home.instance)) as instance:
        assert dg.materialize([visits], partition_key=hourly.get_first_partition_key(), instance=instance).success
    before = home.known(BRONZE[:1])
    assert all(before.values())

    restored = Home(moved(*parts))

    assert restored.known(BRONZE[:1]) == before
    again = Platform(restored.services)
    with again.at_home():
        produced(VISITS, "second")
        ends = AppendLog(KafkaBroker().client_config(), VISITS).ends()
    assert sum(ends.values()) == sum(before["ends"][VISITS].values()) + 1
    again.query("UPDATE users SET email = 'restored@example.org' RETURNING id")
    assert again.query("SELECT email FROM users") == [("restored@example.org",)]


def produced(topic: str, value: str) -> None:
    producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
    producer.produce(topic, value.encode())
    assert producer.flush(PATIENCE) == 0


def test_a_copy_of_the_home_goes_on_where_it_was_copied(lone_services: LocalServices, moved: Move) -> None:
    """All of the platform, with runs before and after: more than a minute."""
    platform = Platform(lone_services)
    platform.up()
    platform.feed()
    home = Home(lone_services)
    home.run(
        {"assets": BRONZE, "first": KEYS[0], "last": KEYS[1]}, {"assets": ["bronze/users_changes", "silver/users"]}
    ).succeeded()
    before = home.known()

    restored = Home(moved())

    assert restored.known() == before
    # It goes on: nothing is read twice, what is new is read.
    restored.run(
        {"assets": ["bronze/users_changes"]}, {"assets": BRONZE, "first": KEYS[2], "last": KEYS[2]}
    ).succeeded()
    assert restored.multiset("bronze/users_changes") == before["rows"]["bronze/users_changes"]
    assert set(restored.per_key("bronze/visits", "landing_hour")) == set(KEYS[:3])
    again = Platform(restored.services)
    with again.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("UPDATE users SET email = 'restored@example.org' WHERE id = (SELECT min(id) FROM users)")
    again.wait_until_captured()
    restored.run({"assets": ["bronze/users_changes"]}).succeeded()
    assert len(restored.rows("bronze/users_changes")) == before["rows"]["bronze/users_changes"].total() + 1
