"""Lags of readers on a real broker and database, against what the test itself has published, committed and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from waiting import PATIENCE

from de_checks.factory import CheckRun
from de_checks.lag import capture_lag_check, topic_lag_check
from de_resources.capture import Capture, CaptureSource, drop, prepare, wait_until_captured
from de_resources.kafka import KafkaBroker, TopicSpec
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.checkpoints import Checkpoint, GroupCheckpoints
from de_resources.kafka.keepers import KeptPosition, at_cursor, at_group
from de_resources.kafka.lag import kept_for
from de_resources.kafka.reader import read_topic
from de_resources.kafka.topic import Topic
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.pattern("lag_detector")]

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dg.asset(key=["bronze", "orders"])
def orders() -> None: ...


@dataclass
class World:
    """A topic of two partitions, a group that reads it, and a check of that group whose clock the test sets."""

    name: str
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def make(self, **config: str) -> None:
        KafkaBroker().ensure_topics([TopicSpec(self.name, 2, config)])

    @property
    def log(self) -> AppendLog:
        return AppendLog(KafkaBroker().client_config(), self.name)

    def publish(self, count: int, partition: int, age: timedelta) -> None:
        producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
        for number in range(count):
            when = int((self.now - age).timestamp() * 1000)
            producer.produce(self.name, str(number).encode(), partition=partition, timestamp=when)
        assert producer.flush(PATIENCE) == 0

    def commit(self, **offsets: int) -> None:
        reached = {int(name[1:]): offset for name, offset in offsets.items()}
        GroupCheckpoints(self.log, self.name).commit(Checkpoint(self.log.identity(), reached))

    def admin(self) -> AdminClient:
        return AdminClient({**KafkaBroker().client_config(), "log_level": "0"})

    def delete(self) -> None:
        client = self.admin()  # one that is collected cancels what it was asked
        for future in client.delete_topics([self.name]).values():
            future.result(PATIENCE)

    def delete_group(self) -> None:
        client = self.admin()
        client.delete_consumer_groups([self.name])[self.name].result(PATIENCE)

    def verdict(self) -> dg.AssetCheckEvaluation:
        def position(run: CheckRun, topic: Topic) -> KeptPosition | None:
            del run
            return at_group(topic, self.name)

        check = topic_lag_check(orders, self.name, position, now=lambda: self.now)
        return evaluated(check, self.instance, {"broker": KafkaBroker()})


def evaluated(
    check: dg.AssetChecksDefinition, instance: dg.DagsterInstance, resources: dict[str, Any]
) -> dg.AssetCheckEvaluation:
    job = dg.define_asset_job("look", selection=dg.AssetSelection.checks(check))
    defs = dg.Definitions([orders], asset_checks=[check], jobs=[job], resources=resources)
    (found,) = defs.resolve_job_def("look").execute_in_process(instance=instance).get_asset_check_evaluations()
    return found


def told(evaluation: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    world = World(f"lag-{uuid4().hex[:8]}")
    yield world
    world.delete()


def test_offsets_and_ages_are_those_that_were_published(world: World) -> None:
    world.make()
    world.publish(10, 0, 5 * HOUR)
    world.publish(7, 0, 3 * HOUR)
    world.publish(4, 1, HOUR)
    world.commit(p0=10, p1=3)
    figures = told(world.verdict())
    assert figures["lag/positions"] == {"0": 10, "1": 3}
    assert (figures["lag/offsets_max"], figures["lag/offsets_total"]) == (7, 8)
    assert figures["lag/seconds_max"] == pytest.approx(3 * 3600, abs=0.01)
    assert figures["lag/started"] is True


def test_from_no_start_to_level_to_a_deleted_group(world: World) -> None:
    world.make()
    empty = world.verdict()
    world.publish(5, 0, 3 * HOUR)
    waiting = world.verdict()
    world.commit(p0=5, p1=0)
    level = world.verdict()
    world.delete_group()
    gone = world.verdict()
    assert [each.passed for each in (empty, waiting, level, gone)] == [True, False, True, False]
    assert "has not started" in (waiting.description or "")
    assert told(waiting)["lag/offsets_max"] == 5
    assert "position is gone" in (gone.description or "")
    assert gone.severity == dg.AssetCheckSeverity.ERROR


def test_a_reader_that_stopped_is_told_when_the_retention_reaches_it(world: World) -> None:
    """Level at noon; a day later nothing of what came then was read, and the topic keeps three days."""
    world.make(**{"retention.ms": str(3 * 86_400_000)})
    world.commit(p0=0, p1=0)
    assert world.verdict().passed
    world.now += DAY
    world.publish(30, 1, DAY - timedelta(minutes=1))
    late = world.verdict()
    assert (late.passed, late.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert told(late)["lag/lost_in_seconds"] == pytest.approx(2 * 86_400 + 60, abs=1)


def test_a_topic_made_anew_is_no_negative_lag(world: World) -> None:
    world.make()
    world.publish(9, 0, HOUR)
    world.commit(p0=9, p1=0)
    cursor = read_topic(KafkaBroker().client_config(), world.name).cursor
    kept = at_group(world.log, world.name)
    world.delete()
    world.make()
    world.publish(2, 0, HOUR)
    # The broker has forgotten the group's offsets with the topic; a keeper elsewhere has not.
    for position in (kept, at_cursor(cursor)):
        check = topic_lag_check(orders, world.name, lambda *_, at=position: at, now=lambda: world.now)
        found = evaluated(check, dg.DagsterInstance.ephemeral(), {"broker": KafkaBroker()})
        assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert "made again" in (found.description or "")
        assert told(found)["lag/offsets_max"] >= 0


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"retention.ms": "3600000"}, HOUR),
        ({"retention.ms": "-1"}, None),
        ({"cleanup.policy": "compact"}, None),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}, DAY),
        ({"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "86400000", "retention.ms": "3600000"}, HOUR),
    ],
)
def test_how_long_a_topic_keeps_every_record(world: World, config: dict[str, str], kept: timedelta | None) -> None:
    world.make(**config)
    assert kept_for(world.log) == kept


def test_a_topic_that_is_not_there_is_not_known_and_not_fine(at_home: LocalServices) -> None:
    check = topic_lag_check(orders, f"no-{uuid4().hex[:8]}", lambda _, topic: at_group(topic, "nobody"))
    found = evaluated(check, dg.DagsterInstance.ephemeral(), {"broker": KafkaBroker()})
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert (found.description or "").startswith("Not known: ")


@pytest.mark.red_check("capture_keeps_up")
def test_the_log_that_a_capture_did_not_confirm_is_counted_in_bytes(at_home: LocalServices) -> None:
    """A megabyte of rows while nobody relays; level again when it was relayed."""
    name = f"lag_{uuid4().hex[:8]}"
    source, database, clock = CaptureSource(name, (f"public.{name}",), name), PostgresDatabase(), [datetime.now(UTC)]
    check = capture_lag_check(orders, source, now=lambda: clock[0])
    instance = dg.DagsterInstance.ephemeral()

    def verdict() -> dg.AssetCheckEvaluation:
        clock[0] += timedelta(minutes=20)
        return evaluated(check, instance, {"database": database})

    absent = verdict()
    KafkaBroker().ensure_topics([TopicSpec(name)])
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, text text)")
    try:
        assert prepare(database, source)
        fresh = verdict()
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute(f"INSERT INTO {name} SELECT n, repeat(md5(n::text), 32) FROM generate_series(1, 1000) n")
        behind, later = verdict(), verdict()
        stop = Event()
        relay = Thread(target=Capture(database, KafkaBroker(), source).run, args=(stop.is_set,))
        relay.start()
        wait_until_captured(database, source, PATIENCE)
        level = verdict()
        stop.set()
        relay.join(PATIENCE)
    finally:
        drop(database, source)
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute(f"DROP TABLE {name}")
    assert [each.passed for each in (absent, fresh, behind, later, level)] == [False, True, True, False, True]
    assert told(absent) == {"lag/started": False}
    assert told(behind)["lag/bytes_max"] > 1_000_000
    assert told(later)["lag/seconds_max"] == 2400
    assert told(level)["lag/bytes_max"] < 100_000
