"""Streams into a topic on a real broker: `foreachBatch` with transactions, on an engine of its own and over Connect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
import topic_sink_client
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from waiting import PATIENCE

from de_assets.serving.visits_reduced import visits_reduced
from de_assets.sources.topics import TOPICS, VISITS, VISITS_REDUCED
from de_resources.delta.write.stream import SourceLost
from de_resources.kafka import KafkaBroker
from de_resources.kafka.errors import CheckpointLost, StreamStopped
from de_resources.kafka.reader import read_topic
from de_resources.kafka.sink import write_available_now
from de_resources.kafka.stream import topic_stream
from de_resources.kafka.writer import TopicOutput, TopicWriter, progress
from de_resources.lake import Lake
from de_resources.local import LocalServices, TopicSpec
from de_resources.secrets import FileSecrets
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.pattern("transactional_writer")]

PARTITIONS = 3


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture
def output(at_home: LocalServices) -> TopicOutput:
    """An empty topic, and an application that has never written to it; `<topic>-source` is to be drained into it."""
    name = f"drained-into-{uuid4().hex[:8]}"
    KafkaBroker().ensure_topics([TopicSpec(name, PARTITIONS), TopicSpec(f"{name}-source", 2)])
    return TopicOutput(KafkaBroker().client_config(), name, f"test-{name}")


def publish(topic: str, values: list[str]) -> None:
    producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
    for value in values:
        producer.produce(topic, value.encode(), f"k{value}".encode())
    assert producer.flush(PATIENCE) == 0


def committed(topic: str) -> Counter[str]:
    """The values that a reader of committed records sees."""
    return Counter((each.value or b"").decode() for each in read_topic(KafkaBroker().client_config(), topic).records)


def read_up_to(offsets: str | None) -> int:
    """How many records of the only topic lie before these offsets."""
    told: dict[str, dict[str, int]] = json.loads(offsets or "null") or {}
    return sum(sum(partitions.values()) for partitions in told.values())


def life(output: TopicOutput, checkpoint: Path, kill_at: str | None = None) -> dict[str, Any] | None:
    """A process that drains; what it wrote, or None where it was killed."""
    command = [
        sys.executable,
        topic_sink_client.__file__,
        f"{output.topic}-source",
        output.topic,
        str(checkpoint),
        "40",
    ]
    environment = os.environ | ({"DE_KILL_AT": kill_at} if kill_at else {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stderr[-3000:]
    wrote: dict[str, Any] | None = None if kill_at else json.loads(done.stdout.splitlines()[-1])
    return wrote


@pytest.mark.pattern("checkpointer")
@pytest.mark.faults
def test_kill_9_inside_a_micro_batch_neither_loses_nor_doubles_a_record(output: TopicOutput, tmp_path: Path) -> None:
    """Between two partitions: one of them has the batch, and the checkpoint knows of none."""
    healed = deaths_and_a_life(output, tmp_path / "checkpoint", ["after_commit:{}-0"])
    assert healed["skipped"] == [0]


@pytest.mark.pattern("checkpointer")
@pytest.mark.faults
def test_deaths_in_any_order_neither_lose_nor_double_a_record(
    soak_seed: int, output: TopicOutput, tmp_path: Path
) -> None:
    # What is committed has no such point any more, so that later deaths are at later partitions.
    partitions = sorted(Random(soak_seed).sample(range(PARTITIONS), 2))  # noqa: S311 - places, not secrets
    points = [f"before_commit:{{}}-{n}" for n in partitions] + [f"after_commit:{{}}-{PARTITIONS - 1}"]
    healed = deaths_and_a_life(output, tmp_path / "checkpoint", points)
    assert healed["skipped"] == list(range(PARTITIONS)), "only the checkpoint did not know"


def deaths_and_a_life(output: TopicOutput, checkpoint: Path, points: list[str]) -> dict[str, Any]:
    """Processes that die at these points, and one that does not; what it wrote."""
    values = [f"{n:03}" for n in range(100)]
    publish(f"{output.topic}-source", values)
    for point in points:
        assert life(output, checkpoint, point.format(output.topic)) is None
    healed = life(output, checkpoint)
    assert committed(output.topic) == Counter(values)
    assert healed is not None
    assert healed["batches"] == 3, "a hundred records, at most forty at once"
    return healed


def test_over_connect_the_servers_own_worker_writes_and_what_it_raises_is_said(
    output: TopicOutput, tmp_path: Path
) -> None:
    session, broker, checkpoint = SparkEngine().spark_session, KafkaBroker(), str(tmp_path / "checkpoint")
    publish(f"{output.topic}-source", ["a", "b", "c"])
    stream = topic_stream(session, broker, f"{output.topic}-source", at_most=2)
    # By itself the engine remembers the last 100 micro-batches. Here it is one: the report must not rest on it.
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1")

    first = write_available_now(session, stream.records, output, checkpoint, stream.source)
    publish(f"{output.topic}-source", ["d"])
    second = write_available_now(session, stream.records, output, checkpoint, stream.source)
    third = write_available_now(session, stream.records, output, checkpoint, stream.source)
    assert [(each.records, each.skipped) for each in (first, second, third)] == [(3, ()), (1, ()), (0, ())]
    assert [each.batches for each in (first, second, third)] == [2, 1, 0]
    assert [read_up_to(at) for at in (first.start, first.end, second.start, second.end)] == [0, 3, 3, 4]
    assert committed(output.topic) == Counter("abcd")

    with TopicWriter(output) as other:  # somebody else writes under the same name
        batch = other.progress[0].next_batch
        other.write(batch, [])
        other.write(batch + 1, [])
    publish(f"{output.topic}-source", ["e"])
    with pytest.raises(StreamStopped, match=rf"Batch {batch} .* expects batch {batch + 2}"):
        write_available_now(session, stream.records, output, checkpoint, stream.source)

    with pytest.raises(CheckpointLost, match="would double them"):
        write_available_now(session, stream.records, output, str(tmp_path / "another"), stream.source)
    assert committed(output.topic) == Counter("abcd")


@pytest.mark.pattern("checkpointer")
@pytest.mark.faults
def test_a_source_that_was_made_again_and_is_longer_is_not_read_on_in_the_middle(
    output: TopicOutput, tmp_path: Path
) -> None:
    """Also where the checkpoint's path has signs that the engine takes for a pattern."""
    source, checkpoint = f"{output.topic}-source", str(tmp_path / "home [1]" / "checkpoint")

    def drain() -> None:
        session = SparkEngine().spark_session
        followed = topic_stream(session, KafkaBroker(), source)
        write_available_now(session, followed.records, output, checkpoint, followed.source)

    publish(source, ["a", "b"])
    drain()
    admin = AdminClient({**KafkaBroker().client_config(), "log_level": 0})
    admin.delete_topics([source])[source].result(PATIENCE)
    KafkaBroker().ensure_topics([TopicSpec(source, 2)])
    publish(source, list("cdefghij"))
    for _ in range(2):
        with pytest.raises(SourceLost, match=f"topic {source} was made again"):
            drain()
    assert committed(output.topic) == Counter("ab")


@pytest.mark.pattern("checkpointer", "sla_misses_detector", "metadata_decorator")
@pytest.mark.usefixtures("reduced_anew")
def test_the_graph_writes_the_valid_visits_once_and_says_which_run_did(at_home: LocalServices, tmp_path: Path) -> None:
    KafkaBroker().ensure_topics(TOPICS)
    visits = [json.dumps({"visit_id": f"v{n}", "event_time": "2024-10-10T00:00:00Z", "user_id": "u", "page": "/",
                          "context": {"user": {"ip": "10.0.0.1"}}}) for n in range(20)]  # fmt: skip
    publish(VISITS, [*visits, "{broken"])

    (wrote, run), (again, _) = (_materialise(tmp_path) for _ in range(2))

    new = committed(VISITS_REDUCED)
    headers = [dict(each.headers or ()) for each in read_topic(KafkaBroker().client_config(), VISITS_REDUCED).records]
    assert {each["de-run"].decode() for each in headers if each["de-run"]} == {run}
    assert wrote["records_written"].value == sum(new.values())
    assert again["records_written"].value == 0
    assert 0 < wrote["stream/batch_p95_ms"].value <= wrote["stream/batch_max_ms"].value, "by these an SLA is judged"
    assert "stream/batch_p95_ms" not in again, "no micro-batch was needed"
    for n in range(20):
        (found,) = [json.loads(text) for text in new.elements() if json.loads(text)["visit_id"] == f"v{n}"]
        assert found == {"visit_id": f"v{n}", "event_time": "2024-10-10T00:00:00.000Z", "user_id": "u", "page": "/"}
    output = TopicOutput(KafkaBroker().client_config(), VISITS_REDUCED, "visits_reduced")
    assert sum(each.records for each in progress(output).values()) == sum(new.values())


def _materialise(lake: Path) -> tuple[dict[str, Any], str]:
    """The run's metadata, and its identity."""
    engine = SparkEngine()
    resources = {"broker": KafkaBroker(), "spark": engine, "lake": Lake(root_uri=str(lake), spark=engine)}
    run = dg.materialize([visits_reduced], resources=resources)
    (done,) = run.get_asset_materialization_events()
    return dict(done.step_materialization_data.materialization.metadata), run.run_id


def test_streaming_workers_do_not_log_the_engines_token(services: LocalServices) -> None:
    """They print the address of their server, token included, as they start."""
    token = FileSecrets(services.settings.secrets).read("spark_connect_token") or ""
    log = (services.settings.logs / "spark_connect.log").read_text(errors="replace")
    assert "worker is starting with url" in log, "the tests before have started some"
    assert token
    assert token not in log
