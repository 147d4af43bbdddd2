"""Log compaction on the broker: of many records per key a fresh reader finds the last one, of a deleted key nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from waiting import PATIENCE

from de_assets.sources.topics import TOPICS
from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices, TopicSpec

pytestmark = [pytest.mark.services, pytest.mark.pattern("compactor")]

DEADLINE = PATIENCE
AGGRESSIVE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}
Records = list[tuple[bytes | None, bytes | None]]


def test_the_topic_of_users_keeps_the_last_record_of_each_key() -> None:
    (users,) = [topic for topic in TOPICS if topic.name == "users"]
    assert users.config["cleanup.policy"] == "compact"


def test_compaction_leaves_the_last_value_of_each_key_and_no_deleted_key(at_home: LocalServices) -> None:
    broker, topic = KafkaBroker(), f"compacted-{uuid4().hex[:8]}"
    broker.ensure_topics([TopicSpec(topic, partitions=1, config=AGGRESSIVE)])
    producer = Producer({**broker.client_config(), "acks": "all", "linger.ms": 0})
    for turn in range(3):
        for user in ("ada", "grace", "gone"):
            producer.produce(topic, key=user, value=f"{user} {turn}")
    producer.produce(topic, key="gone", value=None)
    assert producer.flush(PATIENCE) == 0

    expected = [(b"ada", b"ada 2"), (b"grace", b"grace 2")]
    with _impatient_cleaner(broker):
        deadline, fillers = time.monotonic() + DEADLINE, 0
        while (found := _users(broker, topic)) != expected:
            assert time.monotonic() < deadline, f"still not compacted: {found}"
            # Only closed segments are compacted, and only a record closes the one before.
            producer.produce(topic, key="filler", value=str(fillers))
            assert producer.flush(PATIENCE) == 0
            fillers += 1
    # Held in a variable: a client that is collected cancels what it was asked.
    admin = AdminClient({**broker.client_config()})
    admin.delete_topics([topic])[topic].result(PATIENCE)


@contextmanager
def _impatient_cleaner(broker: KafkaBroker) -> Iterator[None]:
    """The broker looks for work every 200 ms instead of every 15 s, for as long as the context is open."""
    admin = AdminClient({**broker.client_config()})
    (node,) = admin.list_topics(timeout=PATIENCE).brokers

    def set_backoff(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(PATIENCE)

    set_backoff(AlterConfigOpType.SET, "200")
    try:
        yield
    finally:
        set_backoff(AlterConfigOpType.DELETE, None)


def _users(broker: KafkaBroker, topic: str) -> Records:
    """What a fresh reader finds from the topic's beginning to its end, without the filler."""
    consumer = Consumer(
        {**broker.client_config(), "group.id": uuid4().hex, "enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: Records = []
    deadline = time.monotonic() + DEADLINE
    try:
        while time.monotonic() < deadline:
            record = consumer.poll(0.2)
            if record is None:
                continue
            error = record.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return [(key, value) for key, value in records if key != b"filler"]
            records.append((record.key(), record.value()))
    finally:
        consumer.close()
    pytest.fail("the topic's end was not reached")
