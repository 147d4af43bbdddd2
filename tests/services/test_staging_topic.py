"""Topics replicated on a real broker: every record once, as it was, whatever is killed in between."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from itertools import count
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import dagster as dg
import pytest
import warm_process
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from waiting import PATIENCE, until

from de_assets.definitions import defs
from de_assets.sources.topics import STAGING_VISITS, TOPICS, VISITS
from de_resources.kafka import KafkaBroker
from de_resources.kafka.errors import TopicMissing
from de_resources.kafka.topic import PartitionEnd, Record, Topic
from de_resources.local import LocalServices, TopicSpec
from de_resources.replication import topic as replication
from de_resources.replication.topic import ReplicationInterrupted, replicate_topic
from de_resources.replication.topic_digest import topic_digests
from de_resources.replication.topic_pair import SameTopic, TimestampsNotKept, TopicTooSmall
from de_resources.replication.topic_positions import PositionsLost, RecordsExpired, SourceRecreated

pytestmark = pytest.mark.services

PARTITIONS = 3
MOMENT = 1_728_518_400_000


@pytest.fixture
def broker(at_home: LocalServices) -> KafkaBroker:
    return KafkaBroker()


@pytest.fixture
def pair(broker: KafkaBroker) -> tuple[Topic, Topic]:
    """A source and a replica of their own, empty."""
    return topic(broker), topic(broker)


def topic(broker: KafkaBroker, partitions: int = PARTITIONS, **settings: str) -> Topic:
    name = f"replicated-{uuid4().hex[:8]}"
    config = {key.replace("_", "."): value for key, value in settings.items()}
    broker.ensure_topics([TopicSpec(name, partitions, {"retention.ms": "-1", **config})])
    return Topic(broker.client_config(), name)


def fill(side: Topic, records: int, start: int = 0, **more: Any) -> None:
    producer = Producer({**side.config, "log_level": 0})
    for n in range(start, start + records):
        producer.produce(side.topic, f"v{n}", f"k{n}", partition=n % PARTITIONS, timestamp=MOMENT + n, **more)
    assert producer.flush(PATIENCE) == 0


def content(side: Topic) -> dict[int, list[tuple[Any, ...]]]:
    """What a reader of committed records sees, partition by partition in its order."""
    found: dict[int, list[tuple[Any, ...]]] = {p: [] for p in range(side.partitions())}
    for item in side.read(side.begins()):
        if isinstance(item, Record):
            found[item.partition].append((item.key, item.value, item.timestamp, item.headers))
    return found


def assert_equal(source: Topic, target: Topic, positions: dict[int, int]) -> None:
    assert content(target) == content(source)
    ours, theirs = topic_digests(source, target, positions)
    assert ours == theirs


@pytest.mark.pattern("passthrough_replicator")
def test_every_part_of_a_record_arrives_as_it_was(pair: tuple[Topic, Topic]) -> None:
    source, target = pair
    producer = Producer({**source.config, "transactional.id": source.topic, "log_level": 0})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    headers: list[tuple[str, str | bytes | None]] = [
        ("v", b"1-1"),
        ("v", b"1-2"),
        ("none", None),
        ("empty", b""),
        ("b", b"\xff"),
    ]
    producer.produce(source.topic, b'{"price": 1.10}\r\n', b"key", partition=0, timestamp=MOMENT, headers=headers)
    producer.produce(source.topic, None, b"tombstone", partition=0, timestamp=1)
    producer.produce(source.topic, b"\xff\xfe\x00", None, partition=0, timestamp=MOMENT - 1)
    producer.produce(source.topic, b"", b"", partition=2, timestamp=MOMENT)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(source.topic, b"taken back", partition=0)
    producer.flush(PATIENCE)
    producer.abort_transaction(30)

    done = replicate_topic(source, target)

    assert done.records == 4
    assert content(target) == {
        0: [
            (b"key", b'{"price": 1.10}\r\n', MOMENT, headers),
            (b"tombstone", None, 1, None),
            (None, b"\xff\xfe\x00", MOMENT - 1, None),
        ],
        1: [],
        2: [(b"", b"", MOMENT, None)],
    }
    assert_equal(source, target, dict(done.positions))


@pytest.mark.pattern("passthrough_replicator")
def test_a_run_goes_on_where_the_last_one_ended_and_a_rerun_copies_nothing(pair: tuple[Topic, Topic]) -> None:
    source, target = pair
    fill(source, 100)
    first, again = replicate_topic(source, target, batch=30), replicate_topic(source, target)
    fill(source, 50, start=100)
    more = replicate_topic(source, target)

    assert [(d.records, d.batches) for d in (first, again, more)] == [(100, 4), (0, 0), (50, 1)]
    assert_equal(source, target, dict(more.positions))


def replicate_and_die(source: str, target: str, when: str) -> None:
    """In a process of its own, which is killed around its third commit."""
    commit, calls = replication._Link.commit, count(1)

    def third(self: Any, positions: Any, **more: Any) -> None:
        dying = next(calls) == 3
        if dying and when == "before":
            self.producer.flush(PATIENCE)  # the records are at the broker, in an open transaction
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, positions, **more)
        if dying:
            os.kill(os.getpid(), signal.SIGKILL)

    config = KafkaBroker().client_config()
    with patch.object(replication._Link, "commit", third):
        replicate_topic(Topic(config, source), Topic(config, target), batch=100)


@pytest.mark.pattern("passthrough_replicator")
@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_9_around_a_commit_neither_loses_nor_doubles_a_record(pair: tuple[Topic, Topic], when: str) -> None:
    source, target = pair
    fill(source, 1000)
    warm_process.dies("test_staging_topic:replicate_and_die", source.topic, target.topic, when)
    committed = 200 if when == "before" else 300

    done = replicate_topic(source, target)

    assert done.records == 1000 - committed
    assert_equal(source, target, dict(done.positions))


@pytest.mark.pattern("passthrough_replicator")
@pytest.mark.faults
def test_of_two_replicators_at_once_the_older_one_is_fenced(
    pair: tuple[Topic, Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    fill(source, 300)
    real = Topic.read

    def read(side: Topic, position: dict[int, int]) -> Iterator[Record | PartitionEnd]:
        for n, item in enumerate(real(side, position)):
            if n == 150:
                monkeypatch.setattr(Topic, "read", real)
                replicate_topic(source, target)
            yield item

    monkeypatch.setattr(Topic, "read", read)
    with pytest.raises(ReplicationInterrupted, match="second replicator"):
        replicate_topic(source, target, batch=100)

    done = replicate_topic(source, target)
    assert done.records == 0
    assert_equal(source, target, dict(done.positions))


@pytest.mark.pattern("passthrough_replicator")
def test_topics_that_cannot_be_kept_apart_or_together_are_refused(broker: KafkaBroker) -> None:
    source = topic(broker)
    fill(source, 3)
    absent, small = Topic(source.config, "absent"), topic(broker, partitions=2)
    own_clock = topic(broker, message_timestamp_type="LogAppendTime")

    with pytest.raises(TopicMissing, match="`absent` does not exist"):
        replicate_topic(absent, small)
    with pytest.raises(TopicMissing, match="`absent` does not exist"):
        replicate_topic(source, absent)
    with pytest.raises(
        TopicTooSmall, match=rf"`{small.topic}` has 2 partition\(s\), its source `{source.topic}` has 3"
    ):
        replicate_topic(source, small)
    with pytest.raises(TimestampsNotKept, match="CreateTime"):
        replicate_topic(source, own_clock)
    with pytest.raises(SameTopic):
        replicate_topic(source, source)

    assert not any(small.ends().values())
    assert not any(own_clock.ends().values())
    assert source.config["sasl.password"] not in repr(source)


@pytest.mark.pattern("passthrough_replicator")
@pytest.mark.parametrize("partitions", [2, 3], ids=["fewer partitions than before", "fewer records than before"])
def test_a_source_that_was_made_anew_is_refused(
    broker: KafkaBroker, pair: tuple[Topic, Topic], partitions: int
) -> None:
    source, target = pair
    fill(source, 30)
    replicate_topic(source, target)
    before = content(target)
    _delete(source)
    broker.ensure_topics([TopicSpec(source.topic, partitions)])

    with pytest.raises(SourceRecreated, match=f"{source.topic}` was replicated up to offset 10"):
        replicate_topic(source, target)

    assert content(target) == before


@pytest.mark.pattern("passthrough_replicator")
def test_a_source_that_was_made_anew_is_refused_though_it_is_longer_than_before(
    broker: KafkaBroker, pair: tuple[Topic, Topic]
) -> None:
    source, target = pair
    fill(source, 30)
    replicate_topic(source, target)
    before = content(target)
    _delete(source)
    broker.ensure_topics([TopicSpec(source.topic, PARTITIONS)])
    fill(source, 60, start=100)

    with pytest.raises(SourceRecreated, match=f"`{source.topic}` is another topic than the one"):
        replicate_topic(source, target)

    assert content(target) == before


@pytest.mark.pattern("passthrough_replicator")
def test_positions_that_do_not_say_whose_they_are_are_adopted_once(
    broker: KafkaBroker, pair: tuple[Topic, Topic]
) -> None:
    source, target = pair
    fill(source, 30)
    first = replicate_topic(source, target)
    # As a version before has left them: offsets, and nothing beside them.
    member = Consumer({**target.config, "group.id": f"replicate.{source.topic}", "log_level": 0})
    member.commit(offsets=[TopicPartition(target.topic, p, o) for p, o in first.positions.items()], asynchronous=False)
    member.close()
    fill(source, 30, start=30)
    adopting, known = replicate_topic(source, target), replicate_topic(source, target)

    assert [(each.records, each.adopted) for each in (first, adopting, known)] == [(30, False), (30, True), (0, False)]
    assert first.source == adopting.source == known.source
    _delete(source)
    broker.ensure_topics([TopicSpec(source.topic, PARTITIONS)])
    fill(source, 90)
    with pytest.raises(SourceRecreated, match=re.escape(f"was {first.source}")):
        replicate_topic(source, target)


def test_a_replica_without_positions_is_not_filled_twice(pair: tuple[Topic, Topic]) -> None:
    source, target = pair
    fill(source, 30)
    replicate_topic(source, target)
    admin = AdminClient({**source.config})
    (gone,) = admin.delete_consumer_groups([f"replicate.{source.topic}"]).values()
    gone.result(PATIENCE)
    before = content(target)

    with pytest.raises(PositionsLost, match="would double them"):
        replicate_topic(source, target)

    assert content(target) == before


def test_what_retention_takes_before_it_is_replicated_is_said_and_afterwards_is_no_difference(
    pair: tuple[Topic, Topic],
) -> None:
    source, target = pair
    fill(source, 30)
    done = replicate_topic(source, target)
    _trim(source, 4)
    ours, theirs = topic_digests(source, target, done.positions)
    assert ours == theirs
    assert {digest.split()[0] for digest in ours.values()} == {"6"}

    fill(source, 30, start=30)
    _trim(source, 15)
    with pytest.raises(RecordsExpired, match="begins at offset 15, but was replicated only up to 10"):
        replicate_topic(source, target)


@pytest.mark.pattern("passthrough_replicator")
def test_a_doubled_record_two_in_the_other_order_and_missing_ones_are_red(pair: tuple[Topic, Topic]) -> None:
    source, target = pair
    fill(source, 30)
    done = replicate_topic(source, target)
    fill(target, 1, start=1)  # doubled in partition 1
    other = topic(KafkaBroker())
    for start in (3, 0, *range(6, 30, 3)):
        fill(other, 1, start=start)  # partition 0 with its first two records in the other order
    fill(other, 1, start=2, headers=[("x", b"1")])

    doubled = topic_digests(source, target, done.positions)
    swapped = topic_digests(source, other, done.positions)

    assert _red(doubled) == ["partition 1"]
    assert _red(swapped) == ["partition 0", "partition 1", "partition 2"]


@pytest.mark.pattern("passthrough_replicator")
def test_the_graph_replicates_the_visits_and_its_check_judges_them(broker: KafkaBroker, at_home: LocalServices) -> None:
    broker.ensure_topics(TOPICS)
    source, target = Topic(broker.client_config(), VISITS), Topic(broker.client_config(), STAGING_VISITS)
    fill(source, 20, headers=[("schema", b"1")])

    first = _materialise()
    assert first.success
    assert {e.check_name: e.passed for e in first.get_asset_check_evaluations()} == {
        "equals_its_source": True,
        "keeps_up_with_visits": True,
        "takes_no_longer_than_usual": True,
    }
    assert content(target) == content(source)

    fill(target, 1)  # somebody else writes to the replica
    second = _materialise()
    (verdict,) = [e for e in second.get_asset_check_evaluations() if e.check_name == "equals_its_source"]
    assert not second.success
    assert verdict.metadata["differing"].value == ["partition 0"]
    (event,) = second.asset_materializations_for_node("staging__visits_topic")
    assert event.metadata["records_copied"].value == 0


def _red(sides: tuple[dict[str, str], dict[str, str]]) -> list[str]:
    source, replica = sides
    return [name for name in source if source[name] != replica[name]]


def _materialise() -> dg.ExecuteInProcessResult:
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[dg.AssetKey(["staging", "visits_topic"])], raise_on_error=False
    )


def _trim(side: Topic, offset: int) -> None:
    places = [TopicPartition(side.topic, p, offset) for p in range(PARTITIONS)]
    admin = AdminClient({**side.config})
    for future in admin.delete_records(places).values():
        future.result(PATIENCE)


def _delete(side: Topic) -> None:
    admin = AdminClient({**side.config})
    admin.delete_topics([side.topic])[side.topic].result(PATIENCE)
    gone = "the topic was not deleted in time"
    until(lambda: side.topic not in admin.list_topics(timeout=PATIENCE).topics, gone)
