"""A capture and whose positions it has: databases that are rebuilt or taken back, and topics that are made again."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
import red_checks
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from test_capture import read_committed
from waiting import PATIENCE, until

from de_assets.automation.maintenance.recapture import capture_anew_job
from de_checks.capture import capture_check
from de_resources.capture import Capture, CaptureSource, SlotLost, drop, prepare, status, wait_until_captured
from de_resources.capture.history import AnotherDatabase
from de_resources.capture.relay import TopicMadeAnew
from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices, TopicSpec, postgres_server
from de_resources.local.postgres_server import PostgresService
from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("change_data_capture")]

CAPTURED = 60.0


@dataclass
class Server:
    """A PostgreSQL of its own, which may be initialised again and taken back."""

    services: LocalServices

    def start(self) -> None:
        self.services.up(["postgres"])

    def stop(self) -> None:
        self.services.down()

    @property
    def data(self) -> Path:
        return self.services.settings.home / "postgres" / "data"

    def rebuild(self) -> None:
        """Everything is gone, as after a disk was lost."""
        self.stop()
        shutil.rmtree(self.data)
        self.start()

    def keep(self, copy: Path) -> None:
        """A copy of the files, as a base backup is one."""
        self.stop()
        subprocess.run(["cp", "-a", str(self.data), str(copy)], check=True)
        self.start()

    def take_back(self, copy: Path) -> None:
        """The files of the copy, promoted as a new history of the same system."""
        self.stop()
        shutil.rmtree(self.data)
        subprocess.run(["cp", "-a", str(copy), str(self.data)], check=True)
        self._promoted()

    def fail_over(self) -> None:
        """The same state on a new timeline, as when a standby takes over that has everything."""
        self.stop()
        self._promoted()

    def _promoted(self) -> None:
        (self.data / "standby.signal").touch()
        self.start()
        with self.admin() as cursor:
            cursor.execute("SELECT pg_promote()")
            assert cursor.fetchall() == [(True,)]

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """Who looks after the server; each statement is a transaction."""
        endpoint = self.services.endpoint("postgres")
        assert endpoint is not None
        with closing(PostgresService(self.services.settings)._admin(endpoint)) as admin, admin.cursor() as cursor:
            yield cursor

    def forget_log(self) -> None:
        """Go on for so long that the log is gone that a slot at this position needs."""
        with self.admin() as cursor:
            for _ in range(3):
                cursor.execute("SELECT pg_logical_emit_message(false, 'much', ''), pg_switch_wal()")
            cursor.execute("CHECKPOINT")


@dataclass
class World:
    """A table, its topic, and captures between them."""

    server: Server
    database: PostgresDatabase
    source: CaptureSource

    def execute(self, statement: str) -> None:
        with self.database.connect() as session, session.cursor() as cursor:
            cursor.execute(statement.format(self.source.tables[0]))

    def create(self) -> None:
        self.execute("CREATE TABLE {0} (id BIGINT PRIMARY KEY); ALTER TABLE {0} REPLICA IDENTITY FULL")
        assert prepare(self.database, self.source)

    def capture(self) -> Capture:
        return Capture(self.database, KafkaBroker(), self.source)

    @contextmanager
    def relaying(self) -> Iterator[None]:
        """A capture runs meanwhile, and has relayed everything at the end."""
        stopping = Event()
        relay = Thread(target=self.capture().run, args=(stopping.is_set,))
        relay.start()
        try:
            yield
            wait_until_captured(self.database, self.source, CAPTURED)
        finally:
            stopping.set()
            relay.join(PATIENCE)

    def told(self) -> list[tuple[str, int]]:
        """Operation and id of every change in the topic, in the order of their positions."""
        found = sorted(read_committed(self.source.topic), key=lambda record: record[2])
        changes = [value for _, value, _ in found if value is not None and value["op"] != "t"]
        return [(value["op"], value["after"]["id"]) for value in changes]

    def confirmed(self) -> int:
        found = status(self.database, self.source)
        assert found is not None
        return found.confirmed_lsn


@pytest.fixture
def own_server(
    at_home: LocalServices, lone_services: LocalServices, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    """Another database than that of the other tests; the broker is theirs."""
    server = Server(lone_services)

    def endpoint(_database: PostgresDatabase, *, writer: bool = False) -> Any:
        return server.services.endpoint("postgres")

    monkeypatch.setattr(PostgresDatabase, "_endpoint", endpoint)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def world(own_server: Server) -> World:
    name = f"owned_{uuid4().hex[:8]}"
    KafkaBroker().ensure_topics([TopicSpec(name, partitions=3)])
    made = World(own_server, PostgresDatabase(), CaptureSource(name, (f"public.{name}",), name))
    made.create()
    return made


def delete_topic(topic: str) -> None:
    admin = AdminClient({**KafkaBroker().client_config(), "log_level": "0"})
    admin.delete_topics([topic])[topic].result(PATIENCE)


@pytest.fixture
def little_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that keeps next to nothing for slots that nobody reads; of two settings the later one holds."""
    options = [*postgres_server._options(), "-c", "max_slot_wal_keep_size=1MB"]
    monkeypatch.setattr(postgres_server, "_options", lambda: options)


@pytest.mark.red_check("log_is_read_without_a_gap")
def test_a_slot_whose_log_is_gone_is_red_until_the_job_has_begun_the_capture_again(
    little_log: None, world: World
) -> None:
    check = capture_check(dg.AssetSpec(world.source.name), world.source)

    def judged() -> tuple[bool, str]:
        with dg.build_op_context({"database": world.database}) as context:
            verdict = check(context)
        red_checks.told("log_is_read_without_a_gap", passed=verdict.passed)
        return verdict.passed, verdict.description or ""

    with world.relaying():
        world.execute("INSERT INTO {} VALUES (1), (2)")
    world.execute("DELETE FROM {} WHERE id = 1")
    world.server.forget_log()
    with pytest.raises(SlotLost, match="changes are missing"):
        world.capture().run(lambda: True)
    passed, said = judged()
    assert not passed
    assert "changes are missing" in said

    config = {"ops": {"give_up_slot": {"config": {"capture": world.source.name}}}}
    job = capture_anew_job([world.source])
    assert job.execute_in_process(run_config=config, resources={"database": world.database}).success
    assert not judged()[0], "nothing is kept for anybody yet"
    with world.relaying():
        until(lambda: status(world.database, world.source))
    assert judged()[0]
    assert world.told() == [("c", 1), ("c", 2), ("r", 2)], "a snapshot is all that there is"


def test_changes_of_a_rebuilt_database_are_neither_dropped_nor_confirmed(world: World) -> None:
    with world.relaying():
        world.execute("INSERT INTO {} VALUES (1)")
    world.server.rebuild()
    world.create()
    world.execute("INSERT INTO {} VALUES (2)")
    before = world.confirmed()

    for _ in range(2):
        with pytest.raises(AnotherDatabase, match=r"are of system \d+, timeline 1, this is system \d+, timeline 1"):
            world.capture().run(lambda: True)
    assert (world.told(), world.confirmed()) == ([("c", 1)], before)

    drop(world.database, world.source)
    delete_topic(world.source.topic)
    KafkaBroker().ensure_topics([TopicSpec(world.source.topic, partitions=3)])
    with world.relaying():
        until(lambda: status(world.database, world.source))
    assert world.told() == [("r", 2)], "what the message says to do heals it"


def test_a_database_that_was_taken_back_is_refused_and_one_that_failed_over_goes_on(world: World) -> None:
    with world.relaying():
        world.execute("INSERT INTO {} VALUES (1)")
    copy = world.server.data.parent / "copy"
    world.server.keep(copy)
    with world.relaying():
        world.execute("INSERT INTO {} VALUES (2)")
    world.server.fail_over()
    with world.relaying():
        world.execute("INSERT INTO {} VALUES (3)")
    assert world.told() == [("c", 1), ("c", 2), ("c", 3)], "nothing was lost, so nothing is refused"

    world.server.take_back(copy)
    world.execute("INSERT INTO {} SELECT generate_series(10, 5000)")  # soon its log is longer than the old one was
    before = world.confirmed()
    with pytest.raises(
        AnotherDatabase, match=r"of system \d+, timeline 2 since .*, this is system \d+, timeline 2 since "
    ):
        world.capture().run(lambda: True)
    assert (world.told(), world.confirmed()) == ([("c", 1), ("c", 2), ("c", 3)], before)


def test_a_topic_that_does_not_say_whose_changes_it_holds_is_adopted_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
    old = [("commit_lsn", b"1"), ("sequence", b"0")]
    producer.produce(world.source.topic, b'{"op": "c", "after": {"id": 0}}', b"{}", headers=old)
    assert producer.flush(PATIENCE) == 0
    with caplog.at_level(logging.WARNING, logger="de_resources.capture.relay"):
        for number in (1, 2):
            with world.relaying():
                world.execute(f"INSERT INTO {{}} VALUES ({number})")
    assert caplog.text.count("the topic does not say whose changes it holds") == 1
    assert world.told() == [("c", 0), ("c", 1), ("c", 2)]


def test_a_capture_does_not_go_on_into_a_topic_that_was_made_anew(world: World) -> None:
    with world.relaying():
        world.execute("INSERT INTO {} VALUES (1)")
    before = world.confirmed()
    delete_topic(world.source.topic)
    KafkaBroker().ensure_topics([TopicSpec(world.source.topic, partitions=3)])
    world.execute("INSERT INTO {} VALUES (2)")

    for _ in range(2):
        with pytest.raises(TopicMadeAnew, match=f"de capture drop {world.source.name}"):
            world.capture().run(lambda: True)
    assert (world.told(), world.confirmed()) == ([], before)

    drop(world.database, world.source)
    with world.relaying():
        until(lambda: status(world.database, world.source))
    assert world.told() == [("r", 1), ("r", 2)]
