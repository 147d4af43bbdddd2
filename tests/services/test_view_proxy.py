"""Immutable versions in a real PostgreSQL behind one view: what the roles may do, what readers see, crashes, the way back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import psycopg2
import pytest
import warm_process
from dagster_delta import LocalConfig
from psycopg2.errors import InsufficientPrivilege
from psycopg2.sql import SQL, Identifier, Literal
from pyspark.sql import DataFrame
from waiting import PATIENCE

from de_assets.automation.maintenance.view_roll_back import roll_back_view_job
from de_assets.gold.users_latest import users_latest
from de_assets.gold.users_snapshot import users_snapshot as snapshots
from de_assets.partitions import daily
from de_assets.serving.users_snapshot import users_snapshot as served_users
from de_assets.serving.users_snapshot import view_proxy
from de_resources.delta.write.crash_points import at
from de_resources.local import LocalServices
from de_resources.postgres import NoWriter, PostgresDatabase
from de_resources.postgres.creation import lock
from de_resources.postgres.transaction import LoadRefused
from de_resources.postgres.versioned_view import ProxyView, VersionTaken, ViewInUse, ViewProxy
from de_resources.postgres.view_swap import LockWait, ViewBusy
from de_resources.proxy.catalogue_view import CatalogueViewIOManager
from de_resources.proxy.io_manager import ProxyDeltaIOManager
from de_resources.proxy.retention import RetentionPolicy
from de_resources.proxy.store import NoSuchManifest, VersionMissing
from de_resources.proxy.switching import NothingPublished
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.services, pytest.mark.pattern("proxy")]

NOON = datetime(2026, 1, 10, 12, tzinfo=UTC)
NOW_ONLY = RetentionPolicy(keep=1, age=timedelta())


@dataclass(frozen=True)
class Shelf:
    """A view in a schema of its own."""

    proxy: ViewProxy

    @property
    def view(self) -> ProxyView:
        return self.proxy.view

    def show(self, id_: str, *prices: int) -> None:
        self.write(id_, *prices)
        self.proxy.publish(id_, now=NOON)

    def write(self, id_: str, *prices: int) -> int:
        return self.proxy.write_version(id_, [{"id": n, "price": p} for n, p in enumerate(prices)], f"run of {id_}")

    def with_columns(self, *columns: tuple[str, str]) -> Shelf:
        return Shelf(replace(self.proxy, view=replace(self.view, columns=columns)))

    def ask(self, text: str, *, writer: bool = False, version: str = "v1") -> list[tuple[Any, ...]]:
        names = {
            "view": self.view.identifier,
            "version": self.view.version(version),
            "schema": Identifier(self.view.schema),
            "versions": self.view.versions,
            "pattern": Literal(f"{self.view.schema}%"),
            "writer": Identifier(self.proxy.database.writer_role),
        }
        with self.proxy.database.connect(writer=writer) as session, session.cursor() as statement:
            statement.execute(SQL(text).format(**names))
            return statement.fetchall() if statement.description else []

    def prices(self) -> list[int]:
        return [price for (price,) in self.ask("SELECT price FROM {view} ORDER BY id")]


@pytest.fixture
def shelf(at_home: LocalServices) -> Iterator[Shelf]:
    columns = (("id", "integer NOT NULL"), ("price", "bigint NOT NULL"))
    view = ProxyView(f"shelf_{uuid4().hex[:8]}.prices", columns, ("id",))
    made = Shelf(ViewProxy(PostgresDatabase(), view))
    yield made
    made.ask("DROP SCHEMA IF EXISTS {schema} CASCADE; DROP SCHEMA IF EXISTS {versions} CASCADE")


def test_the_view_shows_the_newest_version_and_all_of_them_stay(shelf: Shelf) -> None:
    shelf.show("v1", 1, 2)
    shelf.show("v2", 3)
    assert shelf.prices() == [3]
    assert shelf.ask("SELECT count(*) FROM {version}") == [(2,)]
    assert [(s.number, s.why) for s in shelf.proxy.states()] == [(1, "run run of v1"), (2, "run run of v2")]


def test_the_writer_is_refused_to_touch_a_version_that_is_complete(shelf: Shelf) -> None:
    shelf.write("v1", 1, 2)
    with pytest.raises(InsufficientPrivilege):
        shelf.ask("INSERT INTO {version} VALUES (9, 9)", writer=True)
    shelf.proxy.publish("v1", now=NOON)
    for attempt in (
        "INSERT INTO {version} VALUES (9, 9)",
        "UPDATE {version} SET price = 0",
        "DELETE FROM {version}",
        "TRUNCATE {version}",
        "ALTER TABLE {version} ADD COLUMN note text",
        "ALTER TABLE {version} OWNER TO {writer}",
        "DROP TABLE {version}",
        "CREATE TABLE {versions}.mine (id int)",
        "CREATE OR REPLACE VIEW {view} AS SELECT 1 AS id",
        "DROP VIEW {view}",
        "UPDATE {versions}.switches SET version = 'v0'",
        "SET ROLE de",
    ):
        with pytest.raises(InsufficientPrivilege):
            shelf.ask(attempt, writer=True)
    assert shelf.ask("SELECT price FROM {version} ORDER BY id", writer=True) == [(1,), (2,)]


def test_a_load_that_fails_leaves_readers_what_they_had(shelf: Shelf) -> None:
    shelf.show("v1", 1)
    with pytest.raises(LoadRefused, match="readers see what was there before"):
        shelf.proxy.write_version("v2", [{"id": 1, "price": 5}, {"id": 2, "price": None}], "run")
    with pytest.raises(VersionMissing):
        shelf.proxy.publish("v2", now=NOON)
    assert shelf.prices() == [1]
    shelf.show("v2", 7)
    assert shelf.prices() == [7]


@pytest.mark.faults
@pytest.mark.parametrize("point", ["before_write", "after_commit"])
def test_an_attempt_that_was_overtaken_neither_fills_nor_closes_the_version_of_the_other_one(
    shelf: Shelf, point: str
) -> None:
    overtaking = iter([shelf])

    def overtake(_: str) -> None:
        for other in overtaking:  # it has begun, and has no rows yet
            with pytest.raises(ZeroDivisionError):
                other.proxy.write_version("v1", ({"id": n, "price": n // n} for n in range(3)), "another attempt")

    with at(point, overtake), pytest.raises(VersionTaken, match="`v1`"):
        shelf.write("v1", 1, 2)
    with pytest.raises(VersionMissing):
        shelf.proxy.publish("v1", now=NOON)  # nobody has completed it
    assert shelf.ask("SELECT count(*) FROM {version}") == [(0,)]

    shelf.show("v1", 1, 2)
    assert shelf.prices() == [1, 2]


def publish(view: ProxyView, version: str) -> None:
    """In a process of its own."""
    ViewProxy(PostgresDatabase(), view).publish(version, now=datetime.now(UTC))


def test_a_crash_before_the_switch_is_made_up_for_without_the_rows(shelf: Shelf) -> None:
    shelf.show("v1", 1)
    shelf.write("v2", 2)
    warm_process.dies("test_view_proxy:publish", shelf.view, "v2", DE_KILL_AT=f"before_switch:{shelf.view.name}")
    assert shelf.prices() == [1]

    def never() -> Iterator[dict[str, int]]:
        raise AssertionError("computed again")
        yield {}

    assert shelf.proxy.write_version("v2", never(), "run of v2") == 1
    assert shelf.proxy.publish("v2", now=NOON).number == 2
    assert shelf.proxy.publish("v2", now=NOON).number == 2
    assert shelf.prices() == [2]


def test_a_crash_while_rows_are_written_is_made_up_for(shelf: Shelf) -> None:
    def lose_power(_: str) -> None:
        raise OSError("no power")

    with at("before_commit", lose_power), pytest.raises(OSError, match="no power"):
        shelf.write("v1", 1, 2, 3)
    assert shelf.ask("SELECT count(*) FROM {version}") == [(0,)]
    shelf.show("v1", 4)
    assert shelf.prices() == [4]


@pytest.mark.faults
def test_a_reader_that_stays_holds_up_the_switch_and_neither_the_other_readers_nor_what_they_see(
    shelf: Shelf, beside: ThreadPoolExecutor
) -> None:
    shelf.show("v1", 1)
    shelf.write("v2", 2)
    brief = LockWait(wait_seconds=0.05, pause_seconds=0.05, total_seconds=0.3)
    with closing(shelf.proxy.database.open()) as session, session.cursor() as idle:
        idle.execute(SQL("SELECT count(*) FROM {}").format(shelf.view.identifier))
        with pytest.raises(ViewBusy, match=f"process {session.info.backend_pid} of the server"):
            replace(shelf.proxy, patience=brief).publish("v2", now=NOON)
        # While the switch tries, each of these has to come through.
        waiting = beside.submit(
            replace(shelf.proxy, patience=replace(brief, total_seconds=PATIENCE)).publish, "v2", now=NOON
        )
        assert [shelf.prices() for _ in range(20)] == [[1]] * 20
        assert not waiting.done()
        session.rollback()
        assert waiting.result(PATIENCE).number == 2
    assert shelf.prices() == [2]


def test_readers_of_fifty_switches_never_miss_the_view_nor_see_two_versions(shelf: Shelf) -> None:
    """Every second version has other columns, so that the view cannot just be replaced."""
    other = shelf.with_columns(("price", "bigint NOT NULL"), ("id", "text NOT NULL"))
    shelf.show("v0", 0, 0)
    done, found = threading.Event(), set[tuple[Any, ...]]()

    def look() -> None:
        with closing(shelf.proxy.database.open()) as session, session.cursor() as statement:
            # A reader that stays in its transaction keeps the view as it is, and lets a switch wait.
            session.autocommit = True
            while not done.is_set():
                statement.execute(SQL("SELECT count(*), min(price) = max(price) FROM {}").format(shelf.view.identifier))
                found.add(statement.fetchone() or ())

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(look) for _ in range(2)]
        try:
            for n in range(1, 51):
                (other if n % 2 else shelf).show(f"v{n}", n, n)
        finally:
            done.set()
        for reader in readers:
            reader.result()
    assert found == {(2, True)}
    assert shelf.prices() == [50, 50]


def test_changed_columns_keep_the_grants_of_the_view(shelf: Shelf) -> None:
    shelf.show("v1", 1)
    shelf.ask("GRANT USAGE ON SCHEMA {schema} TO {writer}; GRANT SELECT ON {view} TO {writer}, PUBLIC")
    with pytest.raises(psycopg2.errors.InvalidTableDefinition):
        shelf.ask("CREATE OR REPLACE VIEW {view} AS SELECT 1::text AS price")
    narrow = shelf.with_columns(("id", "bigint NOT NULL"))
    narrow.proxy.write_version("v2", [{"id": 5}], "run")
    narrow.proxy.publish("v2", now=NOON)
    assert shelf.ask("SELECT * FROM {view}", writer=True) == [(5,)]
    assert narrow.proxy.roll_back(1, now=NOON)[1]
    assert shelf.ask("SELECT * FROM {view}", writer=True) == [(0, 1)]


def test_what_others_built_on_the_view_is_not_dropped_along(shelf: Shelf) -> None:
    shelf.show("v1", 1)
    shelf.ask("CREATE VIEW {schema}.totals AS SELECT sum(price) AS total FROM {view}")
    shelf.show("v2", 2, 3)
    assert shelf.ask("SELECT total FROM {schema}.totals") == [(5,)]
    # A column more at the end disturbs nobody.
    more = shelf.with_columns(*shelf.view.columns, ("note", "text"))
    more.proxy.write_version("v3", [{"id": 1, "price": 9, "note": "x"}], "run")
    more.proxy.publish("v3", now=NOON)
    narrow = shelf.with_columns(("id", "integer NOT NULL"))
    narrow.proxy.write_version("v4", [{"id": 1}], "run")
    with pytest.raises(ViewInUse, match="Nothing was switched"):
        narrow.proxy.publish("v4", now=NOON)
    assert shelf.ask("SELECT total FROM {schema}.totals") == [(9,)]
    assert [s.number for s in shelf.proxy.states()] == [1, 2, 3]


def test_the_way_back_is_one_action(shelf: Shelf) -> None:
    with pytest.raises(NothingPublished):
        shelf.proxy.roll_back(1, now=NOON)
    shelf.show("v1", 1)
    shelf.show("v2", 2)
    state, changed = shelf.proxy.roll_back(1, now=NOON)
    assert (state.number, changed, shelf.prices()) == (3, True, [1])
    assert shelf.proxy.roll_back(1, now=NOON) == (state, False)
    # A late retry of the run that was taken back does not bring its version back.
    assert shelf.proxy.publish("v2", now=NOON).number == 3
    assert shelf.prices() == [1]
    with pytest.raises(NoSuchManifest, match="1 to 3"):
        shelf.proxy.roll_back(9, now=NOON)


def test_looking_at_the_states_waits_for_no_switch_and_creates_nothing(shelf: Shelf) -> None:
    assert shelf.proxy.states() == []
    assert shelf.ask("SELECT nspname FROM pg_namespace WHERE nspname LIKE {pattern}") == []

    shelf.show("v1", 1)
    with shelf.proxy.database.connect() as session, session.cursor() as switch:
        lock(switch, f"{shelf.view.schema}: proxies")  # somebody switches, and takes their time
        with ThreadPoolExecutor(1) as beside:
            states = beside.submit(shelf.proxy.states).result(timeout=PATIENCE)
    assert [s.number for s in states] == [1]


def test_retention_never_drops_the_live_version(shelf: Shelf) -> None:
    for n in range(1, 5):
        shelf.show(f"v{n}", n)
    shelf.proxy.roll_back(1, now=NOON)
    shelf.write("waits", 9)
    assert sorted(shelf.proxy.retain(NOW_ONLY, NOON)) == ["v2", "v3", "v4"]
    assert shelf.proxy.retain(NOW_ONLY, NOON) == []
    assert shelf.prices() == [1]
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist):
        shelf.ask("DROP TABLE {version}")
    assert shelf.proxy.retain(NOW_ONLY, datetime.now(UTC) + timedelta(days=2)) == ["waits"]
    shelf.show("v5", 5)
    assert [s.number for s in shelf.proxy.states()] == [5, 6]


def test_a_server_without_a_second_role_is_named(at_home: LocalServices) -> None:
    database = PostgresDatabase(host="db.example", user="de", database="blog", password="secret://any")
    with pytest.raises(NoWriter, match="writer_password"):
        _ = database.writer_role


def test_the_graph_serves_the_newest_day_and_takes_it_back(nothing_served: None, tmp_path: Path) -> None:
    engine, days = SparkEngine(), daily.get_partition_keys()[:2]
    config: dict[str, Any] = {"root_uri": str(tmp_path / "lake"), "storage_options": LocalConfig(), "spark": engine}
    users = _Users({"u1": "DE", "u2": None})
    source = dg.AssetSpec(["silver", "users"]).with_io_manager_key("users")
    definitions = dg.Definitions(
        assets=[source, snapshots, users_latest, served_users],
        jobs=[roll_back_view_job(served_users.key, view_proxy)],
        resources={
            "proxy_io_manager": ProxyDeltaIOManager(**config),
            "view_io_manager": CatalogueViewIOManager(root_uri=config["root_uri"], spark=engine),
            "spark": engine,
            "users": users,
            "database": PostgresDatabase(),
        },
        executor=dg.in_process_executor,
    )
    graph, instance = definitions.resolve_implicit_global_asset_job_def(), dg.DagsterInstance.ephemeral()

    def run(day: str | None = None, key: dg.AssetKey = served_users.key) -> dict[str, Any]:
        key = snapshots.key if day else key
        done = graph.execute_in_process(instance=instance, asset_selection=[key], partition_key=day)
        (event,) = done.get_asset_materialization_events()
        return {k: v.value for k, v in event.materialization.metadata.items()}

    def served() -> list[tuple[str, str | None, str]]:
        with PostgresDatabase().connect() as session, session.cursor() as statement:
            statement.execute("SELECT user_id, country, snapshot_date::text FROM serving.users_snapshot ORDER BY 1")
            return statement.fetchall()

    run(days[0])
    run(key=users_latest.key)  # once: the view needs no run when what it shows changes
    assert run()["dagster/row_count"] == 2
    assert served() == [("u1", "DE", days[0]), ("u2", None, days[0])]
    users.countries = {"u1": "FR"}
    assert run(days[1])["delta/version"] == 2
    assert run()["proxy/state"] == 2
    assert served() == [("u1", "FR", days[1])]
    back = definitions.resolve_job_def("roll_back_view").execute_in_process(
        run_config={"ops": {"roll_back_view_to": {"config": {"state": 1}}}}, instance=instance
    )
    assert [e.asset_key for e in back.get_asset_materialization_events()] == [served_users.key]
    assert served() == [("u1", "DE", days[0]), ("u2", None, days[0])]
    # What went back is not there twice: the day before is still a version, and nobody changed it.
    assert [s.number for s in view_proxy(PostgresDatabase()).states()] == [1, 2, 3]


class _Users(dg.IOManager):
    """The users' versions as the test wants them: valid for ever."""

    def __init__(self, countries: dict[str, str | None]) -> None:
        self.countries = countries

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:  # noqa: ARG002
        raise AssertionError("nothing is written through it")

    def load_input(self, context: dg.InputContext) -> DataFrame:  # noqa: ARG002
        since = datetime(2020, 1, 1, tzinfo=UTC)
        rows = [(u, "login", f"{u}@example.org", country, since, None) for u, country in self.countries.items()]
        columns = "user_id STRING, login STRING, email STRING, country STRING, valid_from TIMESTAMP, valid_to TIMESTAMP"
        return SparkEngine().spark_session.createDataFrame(rows, columns)
