"""The database refuses to take a promised column away, whoever asks, and says whose promise it is; all else goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import uuid4

import pytest
from waiting import PATIENCE

from de_assets.contracts.serving import DailyTraffic, ServedUsers
from de_resources.contract import Contract
from de_resources.local import LocalServices
from de_resources.local.postgres_binaries import find_binaries
from de_resources.local.postgres_server import PostgresService
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import Load, Relation, write_slice
from de_resources.postgres.upsert import create_if_missing
from de_resources.postgres.versioned_view import ProxyView, ViewProxy

pytestmark = [pytest.mark.services, pytest.mark.pattern("schema_compatibility_enforcer")]

DAY = date(2024, 10, 10)
ROW = {"event_date": DAY, "visits": 3, "users": 1, "bot_visits": 0}
Psql = Callable[..., str]


@pytest.fixture(autouse=True)
def guard(services: LocalServices) -> None:
    """The database has the guard as this code writes it: services that are kept may have been set up by another one."""
    endpoint = services.endpoint("postgres")
    assert endpoint is not None
    PostgresService(services.settings).bootstrap(endpoint)


@pytest.fixture
def psql(at_home: LocalServices) -> Psql:
    """Somebody at a terminal, as the role that owns the tables: returns what he reads, errors too."""
    endpoint = at_home.endpoint("postgres")
    assert endpoint is not None
    found = find_binaries(at_home.settings.home / "postgres" / "data")
    assert found is not None
    name, password = str(endpoint.database), endpoint.password.get_secret_value()

    def run(*statements: str) -> str:
        command = [
            str(found.folder / "psql"),
            "-XAtq",
            "-h",
            endpoint.host,
            "-p",
            str(endpoint.port),
            "-U",
            endpoint.user,
        ]
        asked = [part for statement in statements for part in ("-c", statement)]
        environment = {**os.environ, "PGPASSWORD": password}
        done = subprocess.run(
            [*command, name, *asked], env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
        return done.stdout + done.stderr

    return run


@pytest.fixture
def schema(at_home: LocalServices) -> Iterator[str]:
    name = f"promised_{uuid4().hex[:8]}"
    yield name
    ours(f"DROP SCHEMA IF EXISTS {name} CASCADE; DROP SCHEMA IF EXISTS {name}_versions CASCADE")
    assert ours(f"SELECT count(*) FROM contracts.protected WHERE name LIKE '{name}%'") == [(0,)], "nothing is left over"


def ours(statement: str) -> list[tuple[object, ...]]:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def served(schema: str) -> Relation:
    return Relation.of(replace(Contract.of(DailyTraffic), name=f"{schema}.days", consumers=("team:shop", "a report")))


def load(schema: str, relation: Relation | None = None) -> None:
    write_slice(PostgresDatabase(), Load(f"{schema}.days", "run"), DAY, {relation or served(schema): [ROW]})


BREAKING = {
    "a column is dropped": "ALTER TABLE {0}.days DROP COLUMN visits",
    "a column is dropped among others": "ALTER TABLE {0}.days ADD COLUMN more int, DROP COLUMN IF EXISTS visits CASCADE",
    "a column is renamed": "ALTER TABLE {0}.days RENAME COLUMN visits TO views",
    "a column is retyped": "ALTER TABLE {0}.days ALTER COLUMN visits TYPE integer",
    "the table is dropped": "DROP TABLE {0}.days",
    "the table is renamed": "ALTER TABLE {0}.days RENAME TO years",
    "the schema is dropped": "DROP SCHEMA {0} CASCADE",
    "the schema is renamed": "ALTER SCHEMA {0} RENAME TO {0}_old",
    "in a block": "DO $$ BEGIN EXECUTE 'ALTER TABLE {0}.days DROP COLUMN visits'; END $$",
    "in a transaction": "BEGIN; CREATE TABLE {0}.other (a int); ALTER TABLE {0}.days DROP COLUMN visits; COMMIT",
}


@pytest.mark.parametrize("change", BREAKING)
def test_a_promised_column_is_not_taken_away(psql: Psql, schema: str, change: str) -> None:
    load(schema)
    told = psql(BREAKING[change].format(schema))
    assert f'the contract "{schema}.days" names ' in told
    assert "visits" in told
    assert "Who reads it: a report, team:shop." in told
    assert "de contracts accept" in told
    assert psql(f"SELECT visits, pg_typeof(visits) FROM {schema}.days") == "3|bigint\n"
    assert psql(f"SELECT to_regclass('{schema}.other')") == "\n", "nothing of the transaction is left"


def test_what_breaks_no_promise_goes_on(psql: Psql, schema: str) -> None:
    """The trap: a guard that stands in the way of tables that are none of its business."""
    load(schema)
    own = f"{schema}_own"
    assert (
        psql(
            f"CREATE SCHEMA {own}; CREATE TABLE {own}.days (visits bigint, users bigint)",
            f"ALTER TABLE {own}.days DROP COLUMN visits",
            f"ALTER TABLE {own}.days RENAME COLUMN users TO people",
            f"ALTER TABLE {own}.days ALTER COLUMN people TYPE text",
            f"ALTER TABLE {own}.days RENAME TO months",
            f"DROP SCHEMA {own} CASCADE",
            "CREATE TEMP TABLE days (visits int); ALTER TABLE days DROP COLUMN visits; DROP TABLE days",
            # Of the served table itself, what nobody was promised.
            f"ALTER TABLE {schema}.days ADD COLUMN note text",
            f"ALTER TABLE {schema}.days ALTER COLUMN note TYPE varchar(9), ALTER COLUMN visits SET STATISTICS 10",
            f"ALTER TABLE {schema}.days DROP COLUMN note",
            f"CREATE INDEX ON {schema}.days (visits); CREATE VIEW {schema}.seen AS SELECT visits FROM {schema}.days",
            f"DROP VIEW {schema}.seen; TRUNCATE {schema}.days",
        ).replace("NOTICE:  drop cascades to table " + f"{own}.months\n", "")
        == ""
    )


def test_the_platform_migrates_and_the_promise_follows(psql: Psql, schema: str) -> None:
    load(schema)
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {schema}.days DROP COLUMN bot_visits CASCADE")
        cursor.execute(f"ALTER TABLE {schema}.days ALTER COLUMN users TYPE numeric")
        cursor.execute(f"ALTER TABLE {schema}.days ADD COLUMN new bigint NOT NULL DEFAULT 0")
    assert psql(f"ALTER TABLE {schema}.days ADD COLUMN note text") == "", "what was migrated is no break for ever"
    assert "names users of" in psql(f"ALTER TABLE {schema}.days ALTER COLUMN users TYPE bigint")
    # A column that the platform adds is promised from the next load on, one that left the contract no more.
    old = served(schema)
    columns = (*(c for c in old.columns if c[0] not in ("bot_visits", "users")), ("new", "bigint NOT NULL"))
    changed = replace(old, columns=columns, constraints=())
    create_if_missing(PostgresDatabase(), changed)
    assert "names new of" in psql(f"ALTER TABLE {schema}.days DROP COLUMN new")
    assert psql(f"ALTER TABLE {schema}.days DROP COLUMN users") == ""
    assert psql("SET de.platform = 'on'", f"DROP TABLE {schema}.days") == "", "who says so is let through"


def test_a_view_keeps_its_promise_too_and_versions_switch_under_it(psql: Psql, schema: str) -> None:
    contract = replace(Contract.of(ServedUsers), name=f"{schema}.users", consumers=("a report",))
    proxy = ViewProxy(PostgresDatabase(), ProxyView.of(contract))
    for hour, version in enumerate(("first", "second")):
        proxy.write_version(version, [{"user_id": "u", "country": version, "snapshot_date": DAY}], "run")
        proxy.publish(version, now=datetime(2024, 10, 10, hour, tzinfo=UTC))
    for statement in ("ALTER VIEW {0}.users RENAME COLUMN country TO land", "DROP VIEW {0}.users"):
        told = psql(statement.format(schema))
        assert f'the contract "{schema}.users" names country' in told
    assert "Who reads it: a report." in told
    assert psql(f"SELECT country FROM {schema}.users") == "second\n"


def test_a_rerun_of_the_set_up_and_of_the_load_changes_nothing(psql: Psql, schema: str, at_home: LocalServices) -> None:
    load(schema)
    listed = f"SELECT xmin, * FROM contracts.protected WHERE name = '{schema}.days' ORDER BY column_name"
    triggers = "SELECT oid, evtname, evtevent, evtenabled FROM pg_event_trigger ORDER BY evtname"
    before = psql(listed, triggers)
    endpoint = at_home.endpoint("postgres")
    assert endpoint is not None
    PostgresService(at_home.settings).bootstrap(endpoint)
    load(schema)
    assert psql(listed, triggers) == before
    assert before.count(f"{schema}.days") == 2 * 4
