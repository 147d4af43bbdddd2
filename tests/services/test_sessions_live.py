"""Live sessions from a real topic in a real database: the same rows under the same keys, whatever was killed or repeated."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
import sessions_live_client as client
import warm_process
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from waiting import PATIENCE, until

from de_assets.gold.sessions_live import CONSUMER, RELATION, ClockWentBack, TableLost, checks, sessions_live
from de_assets.sources.topics import VISITS
from de_resources.kafka import KafkaBroker, TopicSpec
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.consumer import Consumed
from de_resources.kafka.reader import read_topic
from de_resources.kafka.topic import Record, from_milliseconds
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.upsert import UpsertRefused, create_if_missing, upsert
from de_resources.spark import SparkEngine, close_connections
from de_resources.stable_key import stable_key

pytestmark = [pytest.mark.services, pytest.mark.pattern("keyed_idempotency", "checkpointer")]

START = 1_760_054_400_000
PARTITIONS = 3
Row = tuple[str, str, datetime, int, str, str, bool]


@dataclass(frozen=True)
class Visit:
    """As the broker has it: taken at so many milliseconds after the start."""

    user: str
    at: int
    page: str

    @property
    def append_time(self) -> datetime:
        return from_milliseconds(START + self.at)


@dataclass
class World:
    """A topic in which the test plays the broker's clock, so that it can say when a visit was taken."""

    name: str
    visits: list[Visit] = field(default_factory=list)

    def publish(self, visits: Iterable[Visit]) -> None:
        """In order; a user's visits are in any partition, as in the topic `visits`, which is keyed by visit."""
        producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
        for visit in visits:
            # By its own clock every visit is late, some of them by hours.
            event_time = visit.append_time - timedelta(minutes=len(self.visits) % 500)
            text = as_json(f"v{len(self.visits)}", visit.user, event_time, visit.page)
            producer.produce(self.name, text, partition=len(self.visits) % PARTITIONS, timestamp=START + visit.at)
            self.visits.append(visit)
        assert producer.flush(PATIENCE) == 0

    def fill(self, at: int, **more: int) -> Consumed:
        return client.run(self.name, from_milliseconds(START + at), **more)[1]

    def forget(self) -> None:
        """Remove the positions: the next run replays the topic."""
        admin(AdminClient.delete_consumer_groups, [CONSUMER])


def as_json(visit_id: str, user: str, event_time: datetime, page: str) -> bytes:
    visit = {"visit_id": visit_id, "user_id": user, "event_time": event_time.isoformat(), "page": page, "context": {}}
    return json.dumps(visit).encode()


def admin(act: Callable[..., Any], *arguments: Any) -> None:
    client = AdminClient({**KafkaBroker().client_config(), "log_level": "0"})
    for future in act(client, *arguments).values():
        future.result(PATIENCE)


def query(statement: str) -> list[tuple[Any, ...]]:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def rows() -> set[Row]:
    columns = "session_id, user_id, started_at, visits, first_page, last_page, is_closed"
    found = query(f"SELECT {columns} FROM gold.sessions_live")
    assert len(found) == len(set(found))
    return set(found)


def truth(visits: Iterable[Visit], at: int, gap: timedelta = client.GAP) -> set[Row]:
    """One pass in plain Python."""
    until = from_milliseconds(START + at)
    sessions: list[list[Visit]] = []
    newest: dict[str, list[Visit]] = {}
    for visit in sorted(visits, key=lambda v: v.at):
        if visit.append_time >= until:
            continue
        session = newest.get(visit.user)
        if session is None or visit.append_time - session[-1].append_time >= gap:
            newest[visit.user] = session = []
            sessions.append(session)
        session.append(visit)
    return {
        (
            stable_key(s[0].user, START + s[0].at),
            s[0].user,
            s[0].append_time,
            len(s),
            s[0].page,
            s[-1].page,
            s[-1].append_time + gap <= until,
        )
        for s in sessions
    }


def some_visits(seed: int, count: int, begin: int, end: int) -> list[Visit]:
    """At distinct times, so that plain Python needs no partitions to put them in order."""
    chance = random.Random(seed)  # noqa: S311
    times = sorted(chance.sample(range(begin, end), count))
    return [Visit(f"user-{chance.randrange(8)}", at, f"/{n}") for n, at in enumerate(times)]


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    world = World(f"live-{uuid4().hex[:8]}")
    # Its times are long ago, and the broker removes what is old.
    KafkaBroker().ensure_topics([TopicSpec(world.name, PARTITIONS, {"retention.ms": "-1"})])
    yield world
    admin(AdminClient.delete_topics, [world.name])
    query("DROP TABLE IF EXISTS gold.sessions_live")
    close_connections()


def test_increments_restarts_and_a_replay_from_the_start_give_the_same_rows(world: World) -> None:
    world.publish(some_visits(1, 60, 0, 60_000))
    first = world.fill(45_000)
    assert rows() == truth(world.visits, 45_000)
    assert first.before is None

    world.publish(some_visits(2, 40, 60_000, 99_000))
    second = world.fill(100_000, at_most=10)
    assert rows() == truth(world.visits, 100_000)
    assert second.before == first.after
    assert second.increments > 1

    world.fill(120_000)
    closed = rows()
    assert closed == truth(world.visits, 120_000)
    assert all(row[-1] for row in closed), "time alone closes sessions"

    world.forget()
    replay = world.fill(120_000)
    assert (replay.before, replay.offsets) == (None, len(world.visits))
    assert rows() == closed


@pytest.mark.faults
def test_kill_9_between_write_and_commit_repeats_the_write_and_leaves_each_session_once(world: World) -> None:
    world.publish(some_visits(3, 40, 0, 40_000))
    before = world.fill(20_000)
    died = f"before_commit:{RELATION.name}"
    warm_process.dies("sessions_live_client:main", world.name, START + 35_000, DE_KILL_AT=died)
    assert rows() == truth(world.visits, 35_000), "what was killed had written"

    after = world.fill(50_000)
    assert after.before == before.after, "and had not committed"
    assert rows() == truth(world.visits, 50_000)


def test_a_clock_that_went_back_and_a_lost_table_are_refused(world: World) -> None:
    world.publish([Visit("u", 1000, "/"), Visit("u", 2000, "/")])
    world.fill(5000)
    known = rows()
    world.publish([Visit("u", 3000, "/late")])
    with pytest.raises(ClockWentBack, match="clock was set back"):
        world.fill(9000)
    assert rows() == known

    query("DROP TABLE gold.sessions_live")
    for _ in range(2):
        with pytest.raises(TableLost, match="would lack all sessions before"):
            world.fill(9000)


def test_a_topic_without_a_record_makes_an_empty_table_and_is_read_on(world: World) -> None:
    world.fill(5000)
    assert rows() == set()
    world.publish([Visit("u", 6000, "/")])
    world.fill(9000)
    assert rows() == truth(world.visits, 9000)


def test_rows_the_database_refuses_change_nothing_and_older_ones_take_nothing_back(at_home: LocalServices) -> None:
    query("DROP TABLE IF EXISTS gold.sessions_live")
    create_if_missing(PostgresDatabase(), RELATION)
    row: dict[str, Any] = {name: datetime(2026, 1, 1, tzinfo=UTC) for name, _ in RELATION.columns}
    row |= {"session_id": "s", "user_id": "jane", "visits": 2, "first_page": "/", "last_page": "/", "is_closed": False}
    write = partial(upsert, PostgresDatabase(), RELATION, forward=["ended_at", "is_closed"])
    try:
        assert write([row, row | {"session_id": "t"}]) == 2
        older = datetime(2025, 1, 1, tzinfo=UTC)
        assert write([row | {"visits": 1, "started_at": older, "ended_at": older}]) == 0
        assert write([row | {"is_closed": True, "visits": 3}]) == 1
        assert write([row]) == 0
        for refused in ([row | {"user_id": None}], [row | {"is_closed": True}] * 2):
            with pytest.raises(UpsertRefused, match="rolled back") as error:
                write([row | {"session_id": "u"}, *refused])
            assert "jane" not in str(error.value)
        assert query("SELECT session_id, visits FROM gold.sessions_live ORDER BY 1") == [("s", 3), ("t", 2)]
    finally:
        query("DROP TABLE gold.sessions_live")


def test_the_graph_reads_the_brokers_clock_and_tells_where_it_is(at_home: LocalServices) -> None:
    """The real topic: keys are those of the times that the broker wrote down, not of the producers' ones."""
    user = f"user-{uuid4().hex[:8]}"
    producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
    for n in range(4):
        visit = as_json(f"{user}-{n}", user, datetime(2024, 1, 1, tzinfo=UTC), f"/{n}")
        producer.produce(VISITS, visit, timestamp=START)
    producer.produce(VISITS, b"{broken")
    assert producer.flush(PATIENCE) == 0
    try:
        first, sound = _materialise()
        ours = f"FROM gold.sessions_live s WHERE user_id = '{user}'"
        began = min(record.append_time for record in _records() if user.encode() in (record.value or b""))
        assert query(f"SELECT session_id, started_at, visits, is_closed {ours}") == [
            (stable_key(user, round(began.timestamp() * 1000)), began, 4, False)
        ]
        assert first["checkpoint/before"] == {}
        assert first["records_not_understood"] >= 1
        assert (sound.passed, sound.metadata["too_close"].value) == (True, 0)

        query(
            f"""INSERT INTO gold.sessions_live SELECT (jsonb_populate_record(s, '{{"session_id": "another"}}')).* {ours}"""
        )
        again, unsound = _materialise()
        assert (again["records_read"], again["checkpoint/before"]) == (0, first["checkpoint/after"])
        assert (unsound.passed, unsound.metadata["too_close"].value) == (False, 1), "the same visits under two keys"

        _set_times("CreateTime")
        (failure,) = _run().get_step_failure_events()
        error = failure.step_failure_data.error
        assert error is not None
        assert error.cause is not None
        assert "message.timestamp.type=CreateTime" in error.cause.message
    finally:
        _set_times("LogAppendTime")
        World(VISITS).forget()
        query("DROP TABLE gold.sessions_live")
        close_connections()


def _records() -> list[Record]:
    return read_topic(KafkaBroker().client_config(), VISITS).records


def _set_times(kind: str) -> None:
    """Ask the broker for it, and wait until it says so itself."""
    name, log = "message.timestamp.type", AppendLog(KafkaBroker().client_config(), VISITS)
    entry = ConfigEntry(name, kind, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, VISITS, incremental_configs=[entry])
    admin(AdminClient.incremental_alter_configs, [resource])
    until(lambda: log.setting(name) == kind, f"the broker never said {kind}")


def _run() -> dg.ExecuteInProcessResult:
    resources = {"broker": KafkaBroker(), "spark": SparkEngine(), "database": PostgresDatabase()}
    config = dg.RunConfig({"gold__sessions_live": {"config": {"settle_seconds": 0}}})
    return dg.materialize([sessions_live, *checks], resources=resources, run_config=config, raise_on_error=False)


def _materialise() -> tuple[dict[str, Any], dg.AssetCheckEvaluation]:
    """What a run told, and its check's verdict."""
    done = _run()
    assert done.success, [event.message for event in done.get_step_failure_events()]
    (event,) = done.get_asset_materialization_events()
    (verdict,) = done.get_asset_check_evaluations()
    told = event.step_materialization_data.materialization.metadata
    return {name: value.value for name, value in told.items()}, verdict
