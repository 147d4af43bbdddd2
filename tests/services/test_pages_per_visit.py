"""Visits counted in their partitions on a real broker: what plain Python counts, or a run that says why it cannot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from deltalake import DeltaTable
from instances import silent_instance
from waiting import PATIENCE

from de_assets.gold.pages_per_visit import CONSUMER, counted_per_visit, pages_per_visit
from de_assets.resources import resources
from de_assets.sources.topics import TOPICS, VISITS
from de_resources.compat.plans import formatted_plan
from de_resources.kafka import KafkaBroker
from de_resources.kafka.reader import read_topic
from de_resources.kafka.stream import partition_slice
from de_resources.kafka.topic import Topic
from de_resources.local import LocalServices
from de_resources.settings import Settings
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.pattern("local_aggregator")]


class Blog:
    """A topic of its own, and runs that count it."""

    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.root, self.instance = root, instance
        settings = Settings.from_environment({"DE_HOME": str(root), "LAKE_ROOT": str(root / "lake")})
        self.resources = {**resources(settings, SparkEngine()), "broker": KafkaBroker()}
        self.admin = AdminClient({**KafkaBroker().client_config(), "log_level": "0"})

    def publish(self, *visits: tuple[str | None, str], partition: int = -1) -> None:
        producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
        for key, page in visits:
            told = {"visit_id": key, "user_id": "u", "page": page, "event_time": "2026-01-05T10:00:00Z", "context": {}}
            producer.produce(VISITS, json.dumps(told), key=key, partition=partition)
        assert producer.flush(PATIENCE) == 0

    def run(self) -> dict[str, Any]:
        """What the materialisation told."""
        done = self._run()
        assert done.success, [event.step_failure_data.error for event in done.get_step_failure_events()]
        (event,) = done.asset_materializations_for_node("gold__pages_per_visit")
        return {name: value.value for name, value in event.metadata.items()}

    def refusal(self) -> str:
        """Why the run stopped; it has changed nothing."""
        before = self.rows()
        (event,) = self._run().get_step_failure_events()
        error = event.step_failure_data.error
        assert error is not None
        assert error.cause is not None
        assert self.rows() == before
        return error.cause.message

    def _run(self) -> dg.ExecuteInProcessResult:
        return dg.materialize([pages_per_visit], instance=self.instance, resources=self.resources, raise_on_error=False)

    def rows(self) -> dict[str, tuple[int, list[str], int]]:
        found = DeltaTable(str(self.root / "lake/gold/pages_per_visit")).to_pyarrow_table().to_pylist()
        assert len({row["visit_id"] for row in found}) == len(found)
        return {row["visit_id"]: (row["announcements"], row["pages"], row["topic_partition"]) for row in found}


def truth() -> dict[str, tuple[int, list[str], int]]:
    """One record after the other, as a client reads them."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for record in read_topic(KafkaBroker().client_config(), VISITS).records:
        if record.key is not None:
            found[record.key.decode()].append((json.loads(record.value or b"")["page"], record.partition))
    return {key: (len(each), sorted({page for page, _ in each}), each[0][1]) for key, each in found.items()}


@pytest.fixture
def blog(
    at_home: LocalServices, lone_services: LocalServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Blog]:
    """On a broker of its own, whose topic becomes wider, and the engine of all tests."""
    monkeypatch.setenv("DE_SPARK", SparkEngine().resolved_url())
    lone_services.up(["kafka"], topics=TOPICS)
    monkeypatch.setenv("DE_HOME", str(lone_services.settings.home))
    with silent_instance() as instance:
        yield Blog(tmp_path, instance)
    close_connections()


def test_a_partition_is_counted_where_it_is_and_both_guards_stop_the_run(blog: Blog) -> None:
    assert (blog.run()["topic/partitions"], blog.rows()) == (3, {}), "an empty topic"

    blog.publish(*((f"v{n}", f"/{n % 4}") for n in range(40)), *((f"v{n}", f"/{n % 3}") for n in range(0, 40, 5)))
    blog.publish((None, "/nobody"), (None, "/nobody"))
    assert blog.run()["topic/records_without_key"] == 2
    assert blog.rows() == truth()
    assert blog.rows()["v5"][:2] == (2, ["/1", "/2"])
    blog.run()
    assert blog.rows() == truth()
    session, ends = SparkEngine().spark_session, Topic(KafkaBroker().client_config(), VISITS).ends()
    parts = [partition_slice(session, KafkaBroker(), VISITS, p, 0, end) for p, end in ends.items()]
    assert "Exchange" not in formatted_plan(counted_per_visit(parts))

    blog.admin.create_partitions([NewPartitions(VISITS, 4)])[VISITS].result(PATIENCE)
    assert "had 3 partitions when it was read last, and has 4" in blog.refusal()
    assert "had 3 partitions" in blog.refusal(), "until a person has decided"
    blog.admin.delete_consumer_groups([CONSUMER])[CONSUMER].result(PATIENCE)
    assert blog.run()["topic/partitions"] == 4

    blog.publish(("v7", "/7"), partition=(blog.rows()["v7"][2] + 1) % 4)
    assert "records of one key in several partitions (v7)" in blog.refusal()
