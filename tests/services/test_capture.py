"""Change data capture on a real database and broker: every change once and in order, whatever is killed in the middle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
import red_checks
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from platform_world import WAITING_CAPTURE, kill_service
from psycopg2 import OperationalError
from psycopg2.extras import execute_batch
from waiting import PATIENCE, until

from de_assets.cli.doctor.diagnosis import diagnose
from de_assets.cli.doctor.finding import FindingVerdict
from de_assets.cli.doctor.services import check_slot
from de_checks.capture import capture_check
from de_resources.capture import Capture, CaptureSource, drop, prepare, status, wait_until_captured
from de_resources.capture.__main__ import keep_relaying
from de_resources.capture.position import ForeignRecord, reached
from de_resources.capture.relay import NoPrimaryKey, SlotInUse
from de_resources.capture.slot import exclusively
from de_resources.capture.snapshot_pace import SnapshotTooLong
from de_resources.capture.source import heart_of
from de_resources.heartbeat import last_beat
from de_resources.kafka import KafkaBroker
from de_resources.kafka.errors import TopicMissing
from de_resources.local import LocalServices, TopicSpec
from de_resources.postgres import PostgresDatabase, RelationMissing

pytestmark = [pytest.mark.services, pytest.mark.pattern("change_data_capture")]

CAPTURED = PATIENCE
LARGE = "x" * 20_000  # beyond two kilobytes a value may be stored apart, and is not sent when it does not change


@dataclass
class World:
    """A table, its topic, and the capture between them."""

    services: LocalServices
    source: CaptureSource

    @property
    def table(self) -> str:
        return self.source.tables[0].partition(".")[2]

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One transaction of one statement on the table `{}`."""
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement.format(self.table), values or None)
            return cursor.fetchall() if cursor.description else []

    def wait(self) -> None:
        wait_until_captured(PostgresDatabase(), self.source, CAPTURED)

    def records(self) -> list[tuple[dict[str, Any], dict[str, Any] | None, tuple[int, int]]]:
        """All committed records, in their order: key, value, position."""
        found = list(read_committed(self.source.topic))
        return sorted(found, key=lambda record: record[2])

    def changes(self) -> list[dict[str, Any]]:
        return [value for _, value, _ in self.records() if value is not None]


def read_committed(topic: str) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None, tuple[int, int]]]:
    config = {**KafkaBroker().client_config(), "group.id": "test", "isolation.level": "read_committed"}
    consumer = Consumer({**config, "enable.partition.eof": True, "auto.offset.reset": "earliest", "log_level": 0})
    partitions = list(consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    ends = 0
    while ends < len(partitions):
        message = consumer.poll(PATIENCE)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            ends += 1
            continue
        headers = dict(message.headers() or [])
        value = message.value()
        position = int(headers["commit_lsn"] or ""), int(headers["sequence"] or "")
        yield json.loads(message.key() or ""), json.loads(value) if value is not None else None, position
    consumer.close()


def folded(world: World) -> dict[int, dict[str, Any]]:
    """The table as the records tell it."""
    rows: dict[int, dict[str, Any]] = {}
    for change in world.changes():
        if change["op"] == "d":
            del rows[change["before"]["id"]]
        else:
            rows[change["after"]["id"]] = change["after"]
    return rows


def table_rows(world: World) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row for row in world.execute("SELECT id, name, seen, is_active, score FROM {}")}


@pytest.fixture
def world(at_home: LocalServices, request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty table with REPLICA IDENTITY FULL, and its topic; nothing is captured yet."""
    name = getattr(request, "param", f"people_{uuid4().hex[:8]}")
    source = CaptureSource(name, (f"public.{name}",), name)
    KafkaBroker().ensure_topics([TopicSpec(name, partitions=3, config={"cleanup.policy": "compact"})])
    made = World(at_home, source)
    made.execute(
        "CREATE TABLE {0} (id BIGINT PRIMARY KEY, name TEXT, seen TIMESTAMPTZ, is_active BOOLEAN, score FLOAT8, notes TEXT);"
        "ALTER TABLE {0} REPLICA IDENTITY FULL"
    )
    yield made
    at_home.up(["postgres", "kafka"])
    drop(PostgresDatabase(), source)
    made.execute("DROP TABLE IF EXISTS {}")


@pytest.fixture
def relaying(world: World) -> Iterator[Callable[[], None]]:
    """Starts a relay in this process; it is stopped at the end."""
    stopping = Event()
    threads: list[Thread] = []

    def start() -> None:
        # As the process does: run again after each failure.
        threads.append(Thread(target=keep_relaying, args=(world.source, stopping, {world.source.name: ""})))
        threads[-1].start()

    yield start
    stopping.set()
    for thread in threads:
        thread.join(PATIENCE)


def test_every_kind_of_change_arrives_with_images_position_and_time(world: World, relaying: Callable[[], None]) -> None:
    assert prepare(PostgresDatabase(), world.source)
    relaying()
    world.execute("INSERT INTO {} VALUES (1, 'Ä \"quoted\"', '2024-02-29 12:00:00.5+02', true, 1.5, %s)", LARGE)
    world.execute("UPDATE {} SET name = NULL WHERE id = 1")
    world.execute("UPDATE {} SET id = 2 WHERE id = 1")
    world.execute("SELECT pg_logical_emit_message(true, 'event_time', '2024-03-01T00:00:00+00:00'); DELETE FROM {}")
    world.wait()

    created, updated, moved_away, moved_here, deleted = world.changes()
    assert [c["op"] for c in world.changes()] == ["c", "u", "d", "c", "d"]
    assert created["after"] == {
        "id": 1, "name": 'Ä "quoted"', "seen": "2024-02-29T10:00:00.5+00:00", "is_active": True, "score": 1.5, "notes": LARGE,
    }  # fmt: skip
    assert updated["before"] == created["after"]
    assert updated["after"] == {**created["after"], "name": None}, "the large value was not sent, and is there"
    assert (moved_away["before"]["id"], moved_here["after"]["id"]) == (1, 2)
    assert moved_away["source"]["commit_lsn"] == moved_here["source"]["commit_lsn"]
    assert deleted["after"] is None
    assert deleted["source"]["event_time"] == "2024-03-01T00:00:00+00:00"
    assert [c["source"]["event_time"] for c in world.changes()[:4]] == [None] * 4
    tombstones = [key for key, value, _ in world.records() if value is None]
    assert tombstones == [{"id": 1}, {"id": 2}]
    positions = [(c["source"]["commit_lsn"], c["source"]["sequence"]) for c in world.changes()]
    assert positions == sorted(set(positions))


def test_without_the_old_image_a_large_unchanged_value_is_named_and_not_null(
    world: World, relaying: Callable[[], None]
) -> None:
    world.execute("ALTER TABLE {} REPLICA IDENTITY DEFAULT")
    prepare(PostgresDatabase(), world.source)
    relaying()
    world.execute("INSERT INTO {} (id, name, notes) VALUES (1, 'a', %s)", os.urandom(20_000).hex())
    world.execute("UPDATE {} SET name = 'b'")
    world.wait()

    update = world.changes()[-1]
    assert "notes" not in update["after"]
    assert update["source"]["unchanged"] == ["notes"]
    assert update["after"]["name"] == "b"


def test_what_a_savepoint_took_back_never_arrives_and_keys_that_are_exchanged_keep_their_rows(
    world: World, relaying: Callable[[], None]
) -> None:
    prepare(PostgresDatabase(), world.source)
    relaying()
    world.execute("INSERT INTO {} (id, name, notes) VALUES (1, 'one', %s), (2, 'two', NULL)", LARGE)
    world.execute(
        "SAVEPOINT outer_; UPDATE {0} SET name = 'wrong'; DELETE FROM {0} WHERE id = 2; INSERT INTO {0} VALUES (3, 'wrong');"
        "SAVEPOINT inner_; TRUNCATE {0}; ROLLBACK TO inner_; ROLLBACK TO outer_;"
        "UPDATE {0} SET id = -1 WHERE id = 1; UPDATE {0} SET id = 1 WHERE id = 2; UPDATE {0} SET id = 2 WHERE id = -1;"
        "SAVEPOINT kept; INSERT INTO {0} VALUES (4, 'four'); RELEASE kept; UPDATE {0} SET score = 4 WHERE id = 4"
    )
    world.wait()

    # By hand: two rows; each change of a key is a deletion and a creation; the fourth row, and its score.
    assert [c["op"] for c in world.changes()] == ["c", "c"] + ["d", "c"] * 3 + ["c", "u"]
    assert len({c["source"]["commit_lsn"] for c in world.changes()[2:]}) == 1
    assert {id_: (row["name"], row["score"], row["notes"]) for id_, row in folded(world).items()} == {
        1: ("two", None, None),
        2: ("one", None, LARGE),
        4: ("four", 4.0, None),
    }


@pytest.mark.parametrize("rows", [2_000, 200_000])
def test_rows_of_one_transaction_arrive_all_and_once(world: World, relaying: Callable[[], None], rows: int) -> None:
    prepare(PostgresDatabase(), world.source)
    relaying()
    world.execute(f"INSERT INTO {{}} (id, name) SELECT n, 'n' || n FROM generate_series(1, {rows}) n")
    world.wait()

    told = [(c["op"], c["after"]["id"], c["after"]["name"]) for c in world.changes()]
    assert told == [("c", n, f"n{n}") for n in range(1, rows + 1)], "in the order of the database"
    assert len({c["source"]["commit_lsn"] for c in world.changes()}) == 1


def test_rows_from_before_arrive_once_as_a_snapshot_and_changes_go_on_from_there(
    world: World, relaying: Callable[[], None]
) -> None:
    world.execute("INSERT INTO {} SELECT n, 'old', '2024-01-01Z', mod(n, 2) = 0, n FROM generate_series(1, 500) n")
    assert not prepare(PostgresDatabase(), world.source), "the capture takes the snapshot"
    relaying()
    until(lambda: status(PostgresDatabase(), world.source))
    world.execute("DELETE FROM {} WHERE id <= 100")
    world.wait()

    first = world.changes()
    assert [c["op"] for c in first] == ["t"] + ["r"] * 500 + ["d"] * 100, "a snapshot is all that there is"
    assert {c["after"]["is_active"] for c in first[1:501]} == {True, False}
    assert all(c["source"]["snapshot"] for c in first[:501])

    again = Capture(PostgresDatabase(), KafkaBroker(), world.source)
    # Said before the identity of the one that runs is taken over, so that it goes on.
    with pytest.raises(SlotInUse, match=world.source.slot):
        again.run(lambda: False)
    world.execute("DELETE FROM {} WHERE id <= 101")
    world.wait()
    assert len(world.changes()) == 602


def test_a_capture_goes_on_after_its_connection_broke_and_after_it_was_fenced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It leaves the slot for a while to whoever took over; here nobody did.
    monkeypatch.setattr("de_resources.capture.__main__._FENCED_PAUSE", 0.5)
    prepare(PostgresDatabase(), world.source)
    stopping, said = Event(), {world.source.name: "starting"}
    loop = Thread(target=keep_relaying, args=(world.source, stopping, said))
    loop.start()
    try:
        world.execute("INSERT INTO {} (id) VALUES (1)")
        world.wait()
        broken = world.execute(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = %s",
            world.source.slot,
        )
        assert broken == [(True,)]
        world.execute("INSERT INTO {} (id) VALUES (2)")
        world.wait()
        assert said == {world.source.name: "relaying"}

        # As by a second capture that does not see the slot in use: the broker lets one producer have the identity.
        identity = {"transactional.id": f"capture-{world.source.name}", "log_level": 0}
        Producer({**KafkaBroker().client_config(), **identity}).init_transactions(CAPTURED)
        world.execute("INSERT INTO {} (id) VALUES (3)")
        world.wait()
        assert said == {world.source.name: "relaying"}
    finally:
        stopping.set()
        loop.join(PATIENCE)
    assert not loop.is_alive()
    assert [change["after"]["id"] for change in world.changes()] == [1, 2, 3], "each once, whoever relayed it"


@pytest.mark.pattern("flow_interruption_detector")
def test_the_relay_beats_though_nothing_changes_and_a_broken_one_leaves_its_last_beat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data comes to it seldom: that it lives is told by its heart, which an orderly end takes away."""
    prepare(PostgresDatabase(), world.source)
    job, stopping, ended = heart_of(world.source), Event(), []

    def relay() -> None:
        try:
            Capture(PostgresDatabase(), KafkaBroker(), world.source).run(stopping.is_set)
        except OperationalError as error:
            ended.append(error)

    loop = Thread(target=relay)
    loop.start()
    try:
        until(lambda: last_beat(job))
        first = last_beat(job)
        assert first is not None
        assert first.data_at is None, "nothing came"
        until(lambda: last_beat(job) != first)
    finally:
        stopping.set()
        loop.join(PATIENCE)
    assert last_beat(job) is None, "nothing is expected of it"

    stopping.clear()
    loop = Thread(target=relay)
    loop.start()
    until(lambda: last_beat(job))
    broken = "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = %s"
    assert world.execute(broken, world.source.slot) == [(True,)]
    loop.join(PATIENCE)
    assert ended
    assert last_beat(job) is not None, "it grows old"

    def fail(*_: object) -> None:
        stopping.set()
        raise OperationalError("the database was stopped before")

    stopping.clear()
    monkeypatch.setattr(Capture, "run", fail)
    keep_relaying(world.source, stopping, {})
    assert last_beat(job) is None, "an orderly end, though the relay itself ended by an error"


def test_a_slot_whose_snapshot_never_arrived_is_made_anew(world: World, relaying: Callable[[], None]) -> None:
    world.execute("INSERT INTO {} (id) VALUES (1), (2)")
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (world.source.slot,))
    world.execute("INSERT INTO {} (id) VALUES (3)")
    relaying()
    until(lambda: len(world.records()) >= 4)
    world.wait()
    snapshot = world.changes()
    assert [c["op"] for c in snapshot] == ["t", "r", "r", "r"]
    assert [c["after"]["id"] for c in snapshot[1:]] == [1, 2, 3]


def test_a_snapshot_that_does_not_end_in_time_leaves_nothing_and_is_taken_once_there_is_time(
    world: World, relaying: Callable[[], None]
) -> None:
    assert KafkaBroker().longest_transaction() == 6 * 3_600
    world.execute("INSERT INTO {} (id) VALUES (1), (2)")
    hours = count(0, 3_600 * 6)  # the first look at the clock, and one six hours later
    capture = Capture(PostgresDatabase(), KafkaBroker(), world.source, clock=lambda: float(next(hours)))
    with pytest.raises(SnapshotTooLong, match="tried again after an hour"):
        capture.run(lambda: False)
    assert status(PostgresDatabase(), world.source) is None, "no log is kept for it"
    assert world.records() == []
    relaying()
    until(lambda: len(world.records()) >= 3)
    assert [c["op"] for c in world.changes()] == ["t", "r", "r"]


@pytest.mark.red_check("log_is_read_without_a_gap")
def test_what_was_deleted_while_there_was_no_slot_ends_with_the_next_snapshot(
    world: World, relaying: Callable[[], None]
) -> None:
    whole = capture_check(dg.AssetSpec(world.source.name), world.source)

    def judged() -> dg.AssetCheckResult:
        with dg.build_op_context({"database": PostgresDatabase()}) as context:
            verdict = whole(context)
        red_checks.told("log_is_read_without_a_gap", passed=verdict.passed)
        return verdict

    world.execute("INSERT INTO {} (id) VALUES (1), (2), (3)")
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (world.source.slot,))
    relaying()
    until(lambda: len(world.changes()) >= 4)
    assert judged().passed

    capture_again = give_up(world)
    assert not judged().passed
    world.execute("DELETE FROM {} WHERE id < 3")
    world.execute("INSERT INTO {} (id) VALUES (4)")
    capture_again()
    until(lambda: len(world.changes()) >= 7)

    told = world.changes()
    assert [c["op"] for c in told] == ["t", "r", "r", "r", "t", "r", "r"]
    assert [c["after"]["id"] for c in told[5:]] == [3, 4], "what comes after a truncation is all that there is"
    assert judged().passed


def give_up(world: World) -> Callable[[], None]:
    """Drop the slot, as the job does, and nobody makes it again until what is returned is called."""
    held = ExitStack()
    held.enter_context(exclusively(PostgresDatabase(), world.source))
    drop(PostgresDatabase(), world.source)
    return held.close


def test_a_slot_left_behind_shows_what_it_keeps_and_is_dropped(world: World) -> None:
    prepare(PostgresDatabase(), world.source)
    world.execute("INSERT INTO {} (id, notes) SELECT n, %s FROM generate_series(1, 200) n", LARGE)
    left = status(PostgresDatabase(), world.source)
    assert left is not None
    assert not left.active
    assert left.retained_bytes > 0
    finding = check_slot(world.source, left)
    assert (finding.verdict, "nobody reads it" in finding.detail) == (FindingVerdict.WARN, True)
    assert "capture users" in {finding.name for finding in diagnose(world.services.settings, os.environ)}
    drop(PostgresDatabase(), world.source)
    given_up = status(PostgresDatabase(), world.source)
    assert given_up is None
    assert "keeps nothing" in check_slot(world.source, given_up).detail
    drop(PostgresDatabase(), world.source)


def test_what_cannot_be_captured_says_so(world: World) -> None:
    database, broker = PostgresDatabase(), KafkaBroker()
    vanished = CaptureSource("vanished", ("public.vanished",), world.source.topic)
    with pytest.raises(RelationMissing, match=r"public\.vanished"):
        Capture(database, broker, vanished).run(lambda: True)
    with pytest.raises(TopicMissing, match="nowhere"):
        reached(broker.client_config(), "nowhere")
    world.execute("CREATE TABLE IF NOT EXISTS keyless (id INT); INSERT INTO keyless VALUES (1)")
    keyless = CaptureSource("keyless", ("public.keyless",), world.source.topic)
    try:
        with pytest.raises(NoPrimaryKey, match=r"public\.keyless"):
            Capture(database, broker, keyless).run(lambda: True)
    finally:
        drop(database, keyless)


def test_a_topic_that_somebody_else_writes_to_is_refused(at_home: LocalServices) -> None:
    foreign = f"foreign_{uuid4().hex[:8]}"
    KafkaBroker().ensure_topics([TopicSpec(foreign)])
    producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
    producer.produce(foreign, b"not ours")
    assert producer.flush(PATIENCE) == 0
    with pytest.raises(ForeignRecord, match="offset 0"):
        reached(KafkaBroker().client_config(), foreign)


def ten_thousand_changes(world: World, disturb: dict[int, Callable[[], None]]) -> None:
    """Inserts, updates, deletions and key changes in transactions of 50; `disturb` happens before the numbered one."""
    random, known, next_id = Random(7), list[int](), 1  # noqa: S311 - the same changes every time
    for number in range(200):
        if number in disturb:
            disturb[number]()
        statements: list[tuple[str, tuple[Any, ...]]] = []
        for _ in range(50):
            choice = random.random()
            if choice < 0.5 or not known:
                statements.append(
                    ("INSERT INTO {} VALUES (%s, %s, now(), true, %s)", (next_id, f"n{next_id}", next_id))
                )
                known.append(next_id)
                next_id += 1
                continue
            row = random.randrange(len(known))
            if choice < 0.75:
                statements.append(
                    ("UPDATE {} SET name = %s, is_active = false WHERE id = %s", (f"u{number}", known[row]))
                )
            elif choice < 0.9:
                statements.append(("DELETE FROM {} WHERE id = %s", (known.pop(row),)))
            else:
                statements.append(("UPDATE {} SET id = %s WHERE id = %s", (next_id, known[row])))
                known[row] = next_id
                next_id += 1
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            for statement, values in statements:
                execute_batch(cursor, statement.format(world.table), [values])


@pytest.mark.faults
@pytest.mark.parametrize("world", [WAITING_CAPTURE.name], indirect=True)
def test_ten_thousand_changes_survive_the_death_of_capture_broker_and_database(world: World) -> None:
    deaths = {40: "capture", 90: "kafka", 140: "postgres", 170: "capture"}
    prepare(PostgresDatabase(), world.source)
    ten_thousand_changes(world, {n: partial(kill_service, world.services, name) for n, name in deaths.items()})
    world.wait()

    rows = table_rows(world)
    fields = ("id", "name", "is_active", "score")
    assert {i: tuple(row[f] for f in fields) for i, row in folded(world).items()} == {
        i: (row[0], row[1], row[3], row[4]) for i, row in rows.items()
    }
    positions = [(c["source"]["commit_lsn"], c["source"]["sequence"]) for c in world.changes()]
    assert len(positions) == len(set(positions)) > 10_000, "a key change is two records"
