"""A consumer that keeps its own positions: what a kill -9 costs in each order of writing and committing, and where cuts are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest
import topic_consumer_client as client
import warm_process
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from waiting import PATIENCE

from de_resources.delta.write.crash_points import at
from de_resources.kafka import KafkaBroker, TopicSpec
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.checkpoints import Checkpoint, GroupCheckpoints, TableCheckpoints
from de_resources.kafka.consumer import DeliveryGuarantee, Increment
from de_resources.kafka.errors import (
    AnotherTopic,
    CheckpointUnreadable,
    NotAppendTime,
    PositionExpired,
    PositionTaken,
    TopicMissing,
)
from de_resources.kafka.increments import by_time, to_the_end
from de_resources.kafka.topic import from_milliseconds
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.pattern("checkpointer")]

PARTITIONS = 2
FIRST = PARTITIONS * client.AT_MOST
NONE = timedelta(0)


@dataclass
class World:
    """A topic whose times the test sets, and a table that takes a row as often as it is written."""

    name: str

    @property
    def log(self) -> AppendLog:
        return AppendLog(KafkaBroker().client_config(), self.name)

    def publish(self, *values: str, partition: int | None = None, at_ms: int = 1) -> None:
        producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
        for number, value in enumerate(values):
            place = number % PARTITIONS if partition is None else partition
            producer.produce(self.name, value.encode(), partition=place, timestamp=at_ms)
        assert producer.flush(PATIENCE) == 0

    def query(self, statement: str) -> list[tuple[object, ...]]:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement.format(self.name))
            return cursor.fetchall() if cursor.description else []

    def received(self) -> Counter[object]:
        return Counter(value for (value,) in self.query('SELECT value FROM "{}".received'))

    def values(self, increment: Increment | None) -> set[str]:
        assert increment is not None
        return {r.value.decode() for r in self.log.records(increment.start, increment.end.offsets)}

    def die(self, delivery: DeliveryGuarantee, point: str) -> None:
        """Consume in a process that is killed at a crash point."""
        warm_process.dies("topic_consumer_client:main", self.name, self.name, delivery.name, DE_KILL_AT=point)

    def admin(self) -> AdminClient:
        return AdminClient({**KafkaBroker().client_config(), "log_level": "0"})


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    world = World(f"consumed-{uuid4().hex[:8]}")
    # Their times are long ago, and the broker removes what is old.
    KafkaBroker().ensure_topics([TopicSpec(world.name, PARTITIONS, {"retention.ms": "-1"})])
    world.query('CREATE SCHEMA "{}"')
    world.query('CREATE TABLE "{}".received (value text)')
    yield world
    world.query('DROP SCHEMA "{}" CASCADE')
    admin = world.admin()
    for future in admin.delete_topics([world.name]).values():
        future.result(PATIENCE)


VALUES = [f"{n:02}" for n in range(24)]


@pytest.mark.faults
@pytest.mark.timeout(120)  # a position that does not move is an endless loop
def test_at_least_once_repeats_the_increment_that_was_written_and_not_committed(world: World) -> None:
    world.publish(*VALUES)
    world.die(DeliveryGuarantee.AT_LEAST_ONCE, "before_commit")
    killed = world.received()
    done = client.run(world.name, world.name, DeliveryGuarantee.AT_LEAST_ONCE)

    assert killed == Counter(VALUES[:FIRST])
    assert world.received() == Counter(VALUES) + killed, "a checkpoint alone is not exactly once"
    assert (done.before, done.increments, done.offsets) == (None, 3, len(VALUES))
    assert done.after is not None
    assert done.after.offsets == {0: 12, 1: 12}

    world.publish("more")
    again = client.run(world.name, world.name, DeliveryGuarantee.AT_LEAST_ONCE)
    idle = client.run(world.name, world.name, DeliveryGuarantee.AT_LEAST_ONCE)
    assert (again.before, again.offsets, idle.offsets) == (done.after, 1, 0)
    assert idle.before == idle.after == again.after
    assert world.received() == Counter([*VALUES, "more"]) + killed


@pytest.mark.faults
def test_at_most_once_loses_the_increment_that_was_committed_and_not_written(world: World) -> None:
    world.publish(*VALUES)
    world.die(DeliveryGuarantee.AT_MOST_ONCE, "before_write")
    done = client.run(world.name, world.name, DeliveryGuarantee.AT_MOST_ONCE)

    assert world.received() == Counter(VALUES[FIRST:])
    assert done.before is not None
    assert sum(done.before.offsets.values()) == len(VALUES) - done.offsets == FIRST


@pytest.mark.faults
def test_a_position_in_the_sinks_own_transaction_neither_loses_nor_repeats(world: World) -> None:
    world.publish(*VALUES)
    world.die(DeliveryGuarantee.WITH_THE_WRITE, "before_commit")  # of a consumer that would commit now: it has
    world.publish("more")
    with at("before_write", _fail), pytest.raises(ZeroDivisionError):
        client.run(world.name, world.name, DeliveryGuarantee.WITH_THE_WRITE)
    done = client.run(world.name, world.name, DeliveryGuarantee.WITH_THE_WRITE)

    assert world.received() == Counter([*VALUES, "more"])
    assert done.offsets == len(VALUES) + 1 - FIRST


@pytest.mark.faults
@pytest.mark.parametrize("position", ["none yet", "one before"])
def test_of_two_runs_at_once_the_one_that_was_overtaken_takes_its_write_back(world: World, position: str) -> None:
    if position == "one before":
        world.publish(*VALUES)
        client.run(world.name, world.name, DeliveryGuarantee.WITH_THE_WRITE)
    before = world.received()
    world.publish("more", "and more")
    overtaking = iter([client.run])

    def overtake(_: str) -> None:
        for run in overtaking:
            run(world.name, world.name, DeliveryGuarantee.WITH_THE_WRITE)

    with at("before_write", overtake), pytest.raises(PositionTaken, match=r"has read .* further meanwhile"):
        client.run(world.name, world.name, DeliveryGuarantee.WITH_THE_WRITE)
    assert world.received() == before + Counter(["more", "and more"])


def test_a_write_that_fails_takes_its_position_back(world: World) -> None:
    checkpoints = TableCheckpoints(PostgresDatabase(), world.name, "mine", world.name)
    assert checkpoints.read() is None
    first = Checkpoint("id", {0: 1, 1: 2}, from_milliseconds(1760054400123))
    checkpoints.commit(first)

    def fail() -> None:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            checkpoints.commit_with(cursor, Checkpoint("id", {0: 9, 1: 9}), first)
            _fail(None)

    with pytest.raises(ZeroDivisionError):
        fail()
    assert checkpoints.read() == first


def _fail(_: object) -> None:
    raise ZeroDivisionError


def test_a_cut_by_time_is_one_time_in_all_partitions_and_every_next_one_is_younger(world: World) -> None:
    world.publish("a", partition=0, at_ms=1000)
    world.publish("b", partition=1, at_ms=1500)
    world.publish("c", partition=0, at_ms=2000)
    world.publish("d", partition=1, at_ms=2000)

    first = by_time(world.log, None, from_milliseconds(2500), settle=timedelta(milliseconds=500))
    assert first is not None
    assert (world.values(first), first.since, first.end.until) == ({"a", "b"}, None, from_milliseconds(2000))
    assert by_time(world.log, first.end, from_milliseconds(2000), settle=NONE) is None

    world.publish("e", partition=1, at_ms=2000)
    second = by_time(world.log, first.end, from_milliseconds(9000), settle=NONE)
    assert second is not None
    assert (world.values(second), second.since) == ({"c", "d", "e"}, from_milliseconds(2000))
    third = by_time(world.log, second.end, from_milliseconds(9001), settle=NONE)
    assert third is not None
    assert (third.offsets, third.end.offsets) == (0, {0: 2, 1: 3}), "time passes without records"


def test_bounded_cuts_do_not_divide_a_millisecond_and_come_to_an_end(world: World) -> None:
    for at_ms, count in ((1, 3), (2, 7), (3, 1), (9, 2)):
        world.publish(*(f"{at_ms}-{n}" for n in range(count)), partition=at_ms % 2, at_ms=at_ms)
    taken: list[set[str]] = []
    before: Checkpoint | None = None
    while (increment := by_time(world.log, before, from_milliseconds(20), settle=NONE, at_most=2)) is not None:
        taken.append(world.values(increment))
        before = increment.end
    assert [values for values in taken if values] == [
        {f"1-{n}" for n in range(3)},
        {f"2-{n}" for n in range(7)},
        {"3-0"},
        {"9-0", "9-1"},
    ]


def test_what_an_open_transaction_has_not_decided_about_holds_the_cut_back(world: World) -> None:
    world.publish("a", partition=0, at_ms=1000)
    producer = Producer({**KafkaBroker().client_config(), "transactional.id": world.name, "log_level": 0})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(world.name, b"open", partition=1, timestamp=2000)
    producer.flush(PATIENCE)
    world.publish("c", partition=0, at_ms=3000)

    first = by_time(world.log, None, from_milliseconds(5000), settle=NONE)
    assert first is not None
    assert (world.values(first), first.end.until) == ({"a"}, from_milliseconds(2000))
    assert by_time(world.log, first.end, from_milliseconds(5000), settle=NONE) is None
    producer.commit_transaction(PATIENCE)
    second = by_time(world.log, first.end, from_milliseconds(5000), settle=NONE)
    assert world.values(second) == {"open", "c"}


def test_a_topic_that_lost_its_oldest_records_begins_where_it_is_complete(world: World) -> None:
    for at_ms, partition in ((1000, 0), (1500, 1), (2000, 0), (2500, 1), (3000, 0)):
        world.publish(str(at_ms), partition=partition, at_ms=at_ms)
    read = to_the_end(world.log, None, at_most=1)
    _trim(world, {0: 2, 1: 0})

    first = by_time(world.log, None, from_milliseconds(9000), settle=NONE)
    assert first is not None
    assert (world.values(first), first.since) == ({"3000"}, from_milliseconds(3000))
    assert read is not None
    with pytest.raises(PositionExpired, match="begins at offset 2, but was read only up to 1"):
        to_the_end(world.log, read.end)


def test_a_topic_that_was_made_anew_and_positions_of_somebody_else_are_refused(world: World) -> None:
    world.publish(*VALUES)
    read = to_the_end(world.log, None)
    assert read is not None
    with pytest.raises(AnotherTopic, match="made again"):
        to_the_end(world.log, Checkpoint("another", read.end.offsets))
    with pytest.raises(AnotherTopic, match="ends before the position"):
        by_time(
            world.log,
            Checkpoint(read.end.topic_id, {0: 13, 1: 0}, from_milliseconds(0)),
            from_milliseconds(9),
            settle=NONE,
        )

    positions = GroupCheckpoints(world.log, f"group-{world.name}")
    positions.commit(read.end)
    assert positions.read() == read.end
    member = Consumer({**KafkaBroker().client_config(), "group.id": positions.group, "log_level": 0})
    member.commit(offsets=[TopicPartition(world.name, 0, 3)], asynchronous=False)
    member.close()
    with pytest.raises(CheckpointUnreadable, match="somebody has moved them"):
        positions.read()


def test_a_topic_that_came_back_longer_is_refused_wherever_its_position_is_kept(world: World) -> None:
    world.publish(*VALUES)
    client.run(world.name, world.name, DeliveryGuarantee.WITH_THE_WRITE)
    before = world.received()
    admin = world.admin()
    for future in admin.delete_topics([world.name]).values():
        future.result(PATIENCE)
    KafkaBroker().ensure_topics([TopicSpec(world.name, PARTITIONS, {"retention.ms": "-1"})])
    world.publish(*VALUES, *VALUES)

    with pytest.raises(AnotherTopic, match="made again"):
        client.run(world.name, world.name, DeliveryGuarantee.WITH_THE_WRITE)
    assert world.received() == before
    # The broker keeps positions of a topic no longer than the topic: who keeps them there begins again.
    assert GroupCheckpoints(world.log, f"group-{world.name}").read() is None


def test_a_topic_with_its_producers_times_or_none_at_all_is_refused(world: World) -> None:
    with pytest.raises(NotAppendTime, match=r"message.timestamp.type=CreateTime.*Set it to `LogAppendTime`"):
        world.log.require_append_time()
    with pytest.raises(TopicMissing):
        AppendLog(KafkaBroker().client_config(), "absent").require_append_time()
    assert world.log.config["sasl.password"] not in repr(world.log)


def _trim(world: World, begins: dict[int, int]) -> None:
    admin = world.admin()
    for future in admin.delete_records([TopicPartition(world.name, p, o) for p, o in begins.items()]).values():
        future.result(PATIENCE)
