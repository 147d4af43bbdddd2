"""Reading a topic by offsets that the reader keeps: increments, limits, open transactions, and what is gone or made again."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from waiting import PATIENCE

from de_resources.kafka import KafkaBroker, ServiceUnavailable, TopicSpec
from de_resources.kafka.errors import RecordsGone, TopicMissing
from de_resources.kafka.reader import Batch, read_topic, records_at
from de_resources.local import LocalServices

pytestmark = [pytest.mark.services, pytest.mark.pattern("external_trigger")]


@dataclass
class Topic:
    """A topic of two partitions, of its own for each test."""

    name: str
    config: dict[str, str]

    def produce(self, *values: str, partition: int = 0) -> None:
        producer = Producer(self.config)
        for value in values:
            producer.produce(self.name, value.encode(), partition=partition)
        assert producer.flush(PATIENCE) == 0

    def read(self, before: Batch | None = None, limit: float = float("inf")) -> Batch:
        return read_topic(self.config, self.name, before and before.cursor, limit=limit)

    def delete(self) -> None:
        admin = AdminClient(self.config)
        admin.delete_topics([self.name])[self.name].result(PATIENCE)

    def make_anew(self) -> None:
        self.delete()
        KafkaBroker().ensure_topics([TopicSpec(self.name, partitions=2)])


@pytest.fixture
def topic(at_home: LocalServices) -> Iterator[Topic]:
    topic = Topic(f"read-{uuid4().hex[:8]}", {**KafkaBroker().client_config(), "log_level": "0"})
    KafkaBroker().ensure_topics([TopicSpec(topic.name, partitions=2)])
    yield topic
    topic.delete()


def values(batch: Batch) -> list[str]:
    assert not any(record.value is None for record in batch.records)
    return [(record.value or b"").decode() for record in batch.records]


def test_a_read_goes_on_where_the_last_one_ended(topic: Topic) -> None:
    empty = topic.read()
    assert (values(empty), empty.offsets) == ([], {0: 0, 1: 0})
    topic.produce("a", "b")
    topic.produce("c", partition=1)
    first = topic.read(empty)
    assert (values(first), first.offsets) == (["a", "b", "c"], {0: 2, 1: 1})
    assert values(topic.read(first)) == []
    topic.produce("d")
    assert values(topic.read(first)) == values(topic.read(first)) == ["d"], "reading stores nothing"
    assert not first.anew
    assert not first.gone


def test_a_limit_ends_a_read_and_loses_nothing(topic: Topic) -> None:
    topic.produce(*map(str, range(7)))
    topic.produce(*map(str, range(7, 10)), partition=1)
    found, batch = [], None
    while new := values(batch := topic.read(batch, limit=3)):
        assert len(new) <= 3
        found += new
    assert sorted(map(int, found)) == list(range(10))


def test_a_transaction_is_seen_when_it_is_committed_and_never_when_it_is_not(topic: Topic) -> None:
    producer = Producer({**topic.config, "transactional.id": topic.name})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic.name, b"open", partition=0)
    producer.flush(PATIENCE)
    before = topic.read()
    assert values(before) == []
    producer.commit_transaction(20)
    after = topic.read(before)
    assert values(after) == ["open"]

    producer.begin_transaction()
    producer.produce(topic.name, b"taken back", partition=0)
    producer.flush(PATIENCE)
    producer.abort_transaction(20)
    topic.produce("last")
    assert values(topic.read(after)) == ["last"]


def test_records_that_retention_removed_unread_are_counted(topic: Topic) -> None:
    start = topic.read()
    topic.produce(*"abcde")
    admin = AdminClient(topic.config)
    for future in admin.delete_records([TopicPartition(topic.name, 0, 3)]).values():
        future.result(PATIENCE)
    batch = topic.read(start)
    assert (values(batch), batch.gone) == (["d", "e"], {0: 3})
    with pytest.raises(RecordsGone, match=r"0@1.*send them again"):
        list(records_at(topic.config, topic.name, {(0, 1)}))


def test_a_topic_that_was_made_anew_is_read_from_its_beginning_however_long_it_is(topic: Topic) -> None:
    topic.produce("a", "b")
    before = topic.read()
    topic.make_anew()
    topic.produce("c", "d", "e")
    after = topic.read(before)
    assert (values(after), after.anew, after.offsets) == (["c", "d", "e"], True, {0: 3, 1: 0})
    assert not topic.read(after).anew


def test_records_are_found_by_their_places(topic: Topic) -> None:
    topic.produce(*"abc")
    topic.produce("d", partition=1)
    found = {(r.partition, r.offset): r.value for r in records_at(topic.config, topic.name, [(1, 0), (0, 2), (0, 0)])}
    assert found == {(0, 0): b"a", (0, 2): b"c", (1, 0): b"d"}
    for nowhere in ((0, 3), (7, 0)):
        with pytest.raises(RecordsGone):
            list(records_at(topic.config, topic.name, [nowhere]))


def test_an_absent_topic_and_an_absent_broker_are_named(topic: Topic) -> None:
    with pytest.raises(TopicMissing, match="`nowhere`"):
        read_topic(topic.config, "nowhere")
    with pytest.raises(ServiceUnavailable, match=r"127\.0\.0\.1:1 .*`de up kafka`"):
        read_topic({**topic.config, "bootstrap.servers": "127.0.0.1:1"}, topic.name)
