"""A stream from a topic that is not what it was: the run stops and says why, and what was read stays readable."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from uuid import uuid4

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from waiting import PATIENCE, until

from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write.refusals import SourceAway
from de_resources.delta.write.stream import CHECKPOINT, SourceLost, run_available_now
from de_resources.kafka import KafkaBroker, TopicSpec
from de_resources.kafka.stream import placed, topic_stream
from de_resources.local import LocalServices
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("checkpointer")]


HASTY = {
    "kafka.request.timeout.ms": "3000",
    "kafka.default.api.timeout.ms": "4000",
    "kafkaConsumer.pollTimeoutMs": "6000",
    "fetchOffset.numRetries": "1",
}
"""An engine that gives a broker up after seconds; by Spark's and the client's own time-outs it asks for minutes."""


class Stream:
    """A topic, and the table that it is drained into."""

    def __init__(self, root: Path) -> None:
        self.topic = f"drained-{uuid4().hex[:8]}"
        self.table = Table("bronze.drained", str(root / "drained"))
        self.admin = AdminClient({**KafkaBroker().client_config(), "log_level": "0"})

    def create(self, partitions: int) -> None:
        KafkaBroker().ensure_topics([TopicSpec(self.topic, partitions=partitions)])

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(PATIENCE)

    def produce(self, partition: int, *values: str) -> None:
        producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
        for value in values:
            producer.produce(self.topic, value.encode(), partition=partition)
        assert producer.flush(PATIENCE) == 0

    def drain(self, at_most: int | None = None, **settings: str) -> Written:
        session, run = SparkEngine().spark_session, uuid4().hex
        followed = topic_stream(session, KafkaBroker(spark_settings=settings), self.topic, at_most=at_most)
        stamp = CommitInfo(self.table.name, "append", "all", run, run, run)
        return run_available_now(session, self.table, placed(followed.records), stamp, followed.source)

    def forget_source(self) -> None:
        """Leave a checkpoint as a version has that knew offsets only: what stops the stream then is what the engine sees."""
        shutil.rmtree(Path(self.table.uri) / CHECKPOINT / "followed")

    def rows(self) -> list[str]:
        rows = self.table.read(SparkEngine().spark_session).collect()
        return sorted(bytes(row.payload).decode() for row in rows)


@pytest.fixture
def stream(at_home: LocalServices, tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(
        tmp_path / "lake [1]"
    )  # signs that the engine takes for a pattern where a path is not said literally
    stream.create(partitions=3)
    yield stream
    stream.delete()
    close_connections()


def test_a_topic_that_came_back_smaller_stops_the_stream_and_what_was_read_stays(stream: Stream) -> None:
    stream.produce(0, "a", "b")
    stream.produce(2, "c")
    stream.drain()
    stream.forget_source()
    stream.delete()
    stream.create(partitions=1)
    stream.produce(0, "d", "e", "f")
    for _ in range(2):
        with pytest.raises(SourceLost, match=r"bronze\.drained.*remove .*_checkpoint") as lost:
            stream.drain()
        stream.forget_source()
        assert re.search(rf"{stream.topic}-[12]", lost.value.reason), lost.value.reason
    assert stream.rows() == ["a", "b", "c"]


def test_a_topic_that_came_back_shorter_stops_the_stream(stream: Stream) -> None:
    stream.produce(0, "a", "b")
    stream.drain()
    stream.forget_source()
    stream.delete()
    stream.create(partitions=3)
    stream.produce(0, "c")
    with pytest.raises(SourceLost) as lost:
        stream.drain()
    assert f"{stream.topic}-0" in lost.value.reason
    assert stream.rows() == ["a", "b"]


def test_a_topic_that_came_back_longer_stops_the_stream_as_well(stream: Stream) -> None:
    stream.produce(0, "a", "b")
    stream.drain()
    stream.delete()
    stream.create(partitions=3)
    stream.produce(0, "c", "d", "e")
    for _ in range(2):
        with pytest.raises(SourceLost, match=rf"topic {stream.topic} was made again"):
            stream.drain()
    assert stream.rows() == ["a", "b"]


def test_a_checkpoint_that_does_not_say_whose_offsets_it_has_adopts_the_topic_once_and_says_so(stream: Stream) -> None:
    stream.produce(0, "a", "b")
    first = stream.drain()
    stream.forget_source()
    stream.produce(0, "c")
    adopting, known = stream.drain(), stream.drain()

    told = [str(each.details["stream/source"]) for each in (first, adopting, known)]
    assert [each.endswith("adopted: the checkpoint did not say whose offsets it has") for each in told] == [
        False,
        True,
        False,
    ]
    assert stream.rows() == ["a", "b", "c"]

    stream.delete()
    stream.create(partitions=3)
    stream.produce(0, "d", "e", "f", "g")
    with pytest.raises(SourceLost, match="was made again"):
        stream.drain()


def test_a_broker_that_dies_in_the_middle_of_a_stream_is_named_and_the_next_run_goes_on(
    soak_seed: int, stream: Stream, at_home: LocalServices, beside: ThreadPoolExecutor
) -> None:
    values = [f"{n:02}" for n in range(40)]
    commits = Random(soak_seed).randrange(2, 10)  # noqa: S311 - a place, not a secret
    stream.produce(0, *values)

    def committed() -> bool:
        log = stream.table.log()
        return log is not None and log.version >= commits

    def kill_the_broker() -> None:
        until(committed, "no micro-batch was committed")
        broker = psutil.Process(next(each.pid for each in at_home.status() if each.name == "kafka"))
        broker.kill()
        broker.wait(PATIENCE)

    killed = beside.submit(kill_the_broker)
    with pytest.raises(SourceAway, match=r"`bronze\.drained` stopped answering.*run again"):
        stream.drain(at_most=1, **HASTY)
    killed.result()
    read = stream.rows()
    assert read == values[: len(read)]
    assert 0 < len(read) < len(values), "it died in the middle"

    at_home.up(["kafka"])
    stream.drain()
    assert stream.rows() == values
