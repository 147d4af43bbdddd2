"""Batches into a topic of a real broker: each record once for a reader of committed records, whatever dies in between."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
import warm_process
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from topic_writer_client import RECORDS, records_of
from waiting import PATIENCE

from de_resources.delta.write.crash_points import at
from de_resources.kafka import KafkaBroker
from de_resources.kafka.errors import BatchOutOfOrder, TopicMissing, TopicWriteInterrupted, WriterFenced
from de_resources.kafka.writer import KeyedRecord, TopicOutput, TopicWriter, progress
from de_resources.local import LocalServices, TopicSpec

pytestmark = [pytest.mark.services, pytest.mark.pattern("transactional_writer")]

PARTITIONS = 3


@pytest.fixture
def output(at_home: LocalServices) -> TopicOutput:
    """An empty topic, and an application that has never written to it."""
    name = f"written-{uuid4().hex[:8]}"
    KafkaBroker().ensure_topics([TopicSpec(name, PARTITIONS)])
    return TopicOutput(KafkaBroker().client_config(), name, f"test-{name}")


def read(output: TopicOutput, isolation: str = "read_committed") -> dict[int, list[str]]:
    """The values that a reader sees, partition by partition in their order."""
    config = {**output.config, "group.id": "test", "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({**config, "log_level": 0})
    consumer.assign([TopicPartition(output.topic, p, 0) for p in range(PARTITIONS)])
    found: dict[int, list[str]] = {p: [] for p in range(PARTITIONS)}
    unread = set(found)
    while unread:
        message = consumer.poll(PATIENCE)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            unread.discard(message.partition())
        else:
            found[message.partition()].append(message.value().decode())
    consumer.close()
    return found


def values(output: TopicOutput, isolation: str = "read_committed") -> list[str]:
    return sorted(value for each in read(output, isolation).values() for value in each)


def expected(*batches: int) -> list[str]:
    return sorted(record.value.decode() for batch in batches for record in records_of(batch) if record.value)


def broken(batch: int) -> Iterator[KeyedRecord]:
    """A batch whose computation fails in the middle."""
    yield from records_of(batch)[: RECORDS // 2]
    raise ValueError("the computation failed")


def test_every_record_arrives_once_and_each_partition_in_the_order_of_the_batches(output: TopicOutput) -> None:
    with TopicWriter(output) as writer:
        written = [writer.write(batch, records_of(batch)) for batch in range(3)]
    assert [sum(each.records.values()) for each in written] == [RECORDS] * 3
    assert [each.skipped for each in written] == [()] * 3
    assert values(output) == expected(0, 1, 2)
    assert all(each == sorted(each, key=lambda value: value[:4]) for each in read(output).values())
    assert all(read(output).values()), "every partition has some"
    assert sum(each.records for each in progress(output).values()) == 3 * RECORDS


def test_a_reader_of_committed_records_never_sees_an_aborted_batch_and_another_one_does(output: TopicOutput) -> None:
    seen: list[list[str]] = []

    def fail(_: str) -> None:
        seen.append(values(output))
        raise ValueError("after the records had arrived")

    with TopicWriter(output) as writer:
        with at("before_commit", fail), pytest.raises(ValueError, match="arrived"):
            writer.write(0, records_of(0))
        aborted = values(output, "read_uncommitted")
        assert set(aborted) <= set(expected(0))
        assert aborted, "they are in the topic"
        assert values(output) == []
        with pytest.raises(ValueError, match="computation"):
            writer.write(0, broken(0))
        writer.write(0, records_of(0))
    assert seen == [[]], "nor while the transaction was open"
    assert values(output) == expected(0)
    # Of the batch whose computation failed, those arrived that were sent before it did: none, some, or all.
    further = Counter(values(output, "read_uncommitted"))
    further.subtract(expected(0) + aborted)
    handed_over = Counter(r.value.decode() for r in records_of(0)[: RECORDS // 2] if r.value)
    assert all(0 <= count <= handed_over[value] for value, count in further.items())


def test_a_repeated_batch_is_skipped_and_its_records_are_not_even_computed(output: TopicOutput) -> None:
    with TopicWriter(output) as writer:
        writer.write(0, records_of(0))
        again = writer.write(0, broken(0))
    assert (again.skipped, again.records) == ((0, 1, 2), {})
    with TopicWriter(output) as writer:
        assert writer.write(0, broken(0)).skipped == (0, 1, 2)
    assert values(output, "read_uncommitted") == expected(0)


def test_a_batch_that_ended_after_one_partition_is_healed_by_repeating_it(output: TopicOutput) -> None:
    def fail(place: str) -> None:
        if place.endswith("-1"):
            raise ValueError("between two commits")

    with TopicWriter(output) as writer, at("before_commit", fail), pytest.raises(ValueError, match="between"):
        writer.write(0, records_of(0))
    half = read(output)
    assert [bool(half[p]) for p in range(PARTITIONS)] == [True, False, False]

    with TopicWriter(output) as writer:
        again = writer.write(0, records_of(0))
    assert again.skipped == (0,)
    assert set(again.records) == {1, 2}
    assert values(output) == expected(0)
    assert read(output)[0] == half[0]


@pytest.mark.faults
def test_a_writer_that_was_interrupted_is_fenced_by_the_next_one(output: TopicOutput) -> None:
    def interrupted() -> Iterator[KeyedRecord]:
        yield from records_of(0)[: RECORDS // 2]
        with TopicWriter(output) as successor:
            assert successor.write(0, records_of(0)).skipped == ()
        yield from records_of(0)[RECORDS // 2 :]

    with TopicWriter(output) as writer:
        with pytest.raises(WriterFenced, match="took over"):
            writer.write(0, interrupted())
        with pytest.raises((WriterFenced, TopicWriteInterrupted)):
            writer.write(0, records_of(0))
    assert values(output) == expected(0)


def test_batches_that_cannot_follow_are_refused_and_change_nothing(output: TopicOutput) -> None:
    with TopicWriter(output) as writer:
        writer.write(0, records_of(0))
        writer.write(1, records_of(1))
        for batch in (0, 3):
            with pytest.raises(BatchOutOfOrder, match=r"expects batch 2.*checkpoint"):
                writer.write(batch, records_of(batch))
    forget(output)
    with TopicWriter(output) as writer, pytest.raises(BatchOutOfOrder, match=r"expects batch 0.*forgotten"):
        writer.write(2, records_of(2))
    assert values(output, "read_uncommitted") == expected(0, 1)


def test_renewing_keeps_the_progress_and_writes_no_record(output: TopicOutput) -> None:
    with TopicWriter(output) as writer:
        writer.renew()
        writer.write(0, records_of(0))
        before = writer.progress
        writer.renew()
    assert progress(output) == before
    assert values(output) == expected(0)


def test_an_absent_topic_is_named_and_the_password_never_shows(output: TopicOutput) -> None:
    absent = TopicOutput(output.config, "nowhere", "nobody")
    with pytest.raises(TopicMissing, match="`nowhere`"):
        TopicWriter(absent)
    assert output.config["sasl.password"] not in repr(output)


@pytest.mark.parametrize(
    ("key", "value", "partition"), [(b"a", b"x", 0), (b"b", b"x", 2), (b"f", None, 2), (None, b"b", 2), (None, None, 0)]
)
def test_where_a_record_goes_depends_on_nothing_but_the_record(
    key: bytes | None, value: bytes | None, partition: int
) -> None:
    assert KeyedRecord(key, value).partition(PARTITIONS) == partition


@pytest.mark.faults
def test_deaths_at_every_kind_of_point_neither_lose_nor_double_a_record(output: TopicOutput, tmp_path: Path) -> None:
    """Kill -9; a new process goes on each time from its checkpoint, as an engine does."""
    deaths = die_again_and_again(output, tmp_path / "checkpoint", Random(7), lives=25)  # noqa: S311
    assert set(deaths) == {"within_the_batch", "before_commit", "after_commit", "unacknowledged", "between_batches"}


@pytest.mark.faults
def test_a_hundred_deaths_anywhere_neither_lose_nor_double_a_record(
    output: TopicOutput, tmp_path: Path, soak_seed: int
) -> None:
    die_again_and_again(output, tmp_path / "checkpoint", Random(soak_seed), lives=100)  # noqa: S311


def die_again_and_again(output: TopicOutput, checkpoint: Path, random: Random, lives: int) -> Counter[str]:
    """Lives that end at random points, and a last one that does not; where they ended. Each record is there once, in order."""
    deaths = Counter(live(output, checkpoint, batches=1000, die_at=random.randint(1, 14)) for _ in range(lives))

    written = int(checkpoint.read_text()) + 2
    assert live(output, checkpoint, batches=written, die_at=None) == ""

    assert written > lives // 2, "the deaths did not keep it from going on"
    assert values(output) == expected(*range(written))
    assert all(each == sorted(each, key=lambda value: value[:4]) for each in read(output).values())
    assert len(values(output, "read_uncommitted")) > written * RECORDS, (
        "aborted batches are there for who looks at them"
    )
    assert sum(each.records for each in progress(output).values()) == written * RECORDS
    return deaths


def live(output: TopicOutput, checkpoint: Path, *, batches: int, die_at: int | None) -> str:
    """A process that writes until it dies; where it died."""
    work = {
        "config": dict(output.config),
        "topic": output.topic,
        "application": output.application,
        "checkpoint": str(checkpoint),
        "batches": batches,
        "die_at": die_at,
    }
    said = checkpoint.with_suffix(f".{uuid4().hex}")
    process = warm_process.start("topic_writer_client:main", work, environment=dict(os.environ), output=said)
    process.join(PATIENCE)
    assert process.exitcode == (0 if die_at is None else -signal.SIGKILL), said.read_text()
    return said.read_text().strip()


def forget(output: TopicOutput) -> None:
    """What the broker does after a week without a batch."""
    admin = AdminClient({**output.config})
    (gone,) = admin.delete_consumer_groups([output.group]).values()
    gone.result(PATIENCE)
