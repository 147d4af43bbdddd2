"""What a topic's partitions tell without a record being read: when the newest came, and how the load is spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from waiting import PATIENCE

from de_checks.freshness import TopicRecords, flow_check
from de_checks.topic_skew import topic_skew_check
from de_checks.topic_volume import topic_volume_check
from de_resources.contract.freshness import Freshness
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.errors import NotAppendTime
from de_resources.local import LocalServices

pytestmark = pytest.mark.services

HOUR = timedelta(hours=1)
SOURCE = dg.AssetSpec(["sources", "events"])


@dataclass
class World:
    """A topic of three partitions, checks of it, and a clock that can be wound."""

    topic: str = field(default_factory=lambda: f"flow-{uuid4().hex[:8]}")
    forward: timedelta = timedelta(0)
    stopped_at: datetime | None = None
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def now(self) -> datetime:
        return self.stopped_at or datetime.now(UTC) + self.forward

    def create(self, **config: str) -> None:
        config = {"message.timestamp.type": "LogAppendTime", **config}
        client = admin()  # held: one that is collected cancels what it was asked
        client.create_topics([NewTopic(self.topic, 3, config=config)])[self.topic].result(PATIENCE)

    def produce(self, *counts: int, transaction: bool = False) -> None:
        """So many records into each partition."""
        own = {"transactional.id": self.topic} if transaction else {}
        producer = Producer({**KafkaBroker().client_config(), **own, "log_level": 0})
        if transaction:
            producer.init_transactions(PATIENCE)
            producer.begin_transaction()
        for partition, count in enumerate(counts):
            for n in range(count):
                producer.produce(self.topic, str(n), partition=partition, timestamp=1_000)  # what a producer claims
        if transaction:
            producer.commit_transaction(PATIENCE)
        assert producer.flush(PATIENCE) == 0

    def was_fed(self, *windows: tuple[datetime, int]) -> None:
        """The topic as a broker has it that took so many records in the middle of the hours that end then."""
        self.create(**{"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
        producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
        for end, count in windows:
            for n in range(count):
                at = int((end - HOUR / 2).timestamp() * 1000)
                producer.produce(self.topic, str(n), partition=n % 3, timestamp=at)
        assert producer.flush(PATIENCE) == 0
        whose = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[whose])
        client = admin()
        client.incremental_alter_configs([resource])[resource].result(PATIENCE)

    def judge(self, check: dg.AssetChecksDefinition, **tags: str) -> dg.AssetCheckEvaluation:
        definitions = dg.Definitions([SOURCE], asset_checks=[check], resources={"broker": KafkaBroker()})
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection=set(), asset_check_selection=set(check.check_keys)
        )
        (found,) = job.execute_in_process(instance=self.instance, tags=tags).get_asset_check_evaluations()
        return found

    @property
    def flow(self) -> dg.AssetChecksDefinition:
        promise = Freshness(silence=HOUR)
        return flow_check(SOURCE, TopicRecords(self.topic), name="records_keep_coming", promise=promise, now=self.now)

    @property
    def skew(self) -> dg.AssetChecksDefinition:
        return topic_skew_check(SOURCE, self.topic, max_deviation=0.5, now=self.now)

    @property
    def volume(self) -> dg.AssetChecksDefinition:
        return topic_volume_check(SOURCE, self.topic, now=self.now)


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    assert at_home is not None
    world = World()
    yield world
    client = admin()
    if world.topic in client.list_topics(timeout=PATIENCE).topics:
        client.delete_topics([world.topic])[world.topic].result(PATIENCE)


def admin() -> AdminClient:
    return AdminClient({**KafkaBroker().client_config(), "log_level": "0"})


def told(evaluation: dg.AssetCheckEvaluation, *names: str) -> list[Any]:
    return [evaluation.metadata[name].value for name in names]


@pytest.mark.pattern("flow_interruption_detector")
@pytest.mark.red_check("records_keep_coming")
def test_each_partition_is_a_flow_by_the_brokers_clock_and_not_by_what_a_producer_claims(world: World) -> None:
    assert told(world.judge(world.flow), "state") == ["absent"]
    world.create()
    assert told(world.judge(world.flow), "state") == ["not_begun"]
    before = datetime.now(UTC) - timedelta(seconds=1)
    world.produce(3, 2, 0, transaction=True)  # the marker of the transaction stands behind the last record
    found = world.judge(world.flow)
    assert found.passed
    assert told(found, "parts", "silent_parts", "layer") == [2, 0, "topic"], "one that never began owes nothing"
    assert before.timestamp() <= told(found, "last_good")[0] <= datetime.now(UTC).timestamp()

    world.forward = 2 * HOUR
    found = world.judge(world.flow)
    assert not found.passed
    state, silent = told(found, "state", "silent")
    assert (state, sorted(silent)) == ("opened", ["partition 0", "partition 1"]), "in the broker's order"
    assert 2 * 3600 <= told(found, "age_seconds")[0] < 3 * 3600

    world.forward = -2 * HOUR
    assert not world.judge(world.flow).passed, "records of the future: some clock is wrong"

    newest = AppendLog(KafkaBroker().client_config(), world.topic).newest_times().values()
    world.stopped_at = max(each for each in newest if each) + HOUR + timedelta(milliseconds=1)
    assert told(world.judge(world.flow), "silent_parts") == [2]
    world.produce(1, 0, 0)
    assert told(world.judge(world.flow), "silent") == [["partition 1"]]
    world.produce(0, 1, 0)
    assert world.judge(world.flow).passed, "by itself: its producer is back"


@pytest.mark.pattern("flow_interruption_detector")
def test_a_topic_whose_clock_is_the_producers_is_refused(world: World) -> None:
    world.create(**{"message.timestamp.type": "CreateTime"})
    world.produce(1)
    with pytest.raises(NotAppendTime):
        world.judge(world.flow)


@pytest.mark.pattern("flow_interruption_detector")
def test_the_newest_times_are_those_of_the_records_that_are_read(world: World) -> None:
    world.create()
    world.produce(2, 3, 0)
    log = AppendLog(KafkaBroker().client_config(), world.topic)
    read: dict[int, datetime] = {}
    for record in log.records(log.begins(), log.ends()):
        read[record.partition] = max(record.append_time, read.get(record.partition, record.append_time))
    assert log.newest_times() == {0: read[0], 1: read[1], 2: None}


@pytest.mark.pattern("skew_detector")
@pytest.mark.red_check("load_is_balanced")
def test_what_came_lately_is_judged_and_not_what_a_partition_once_held(world: World) -> None:
    assert told(world.judge(world.skew), "state") == ["absent"]
    world.create()
    assert world.judge(world.skew).passed, "nothing came: that is for another check"
    world.produce(300, 300, 300)
    assert world.judge(world.skew).passed
    world.produce(0, 0, 900)
    found = world.judge(world.skew)
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.WARN
    assert told(found, "rows", "parts", "relative_deviation") == [1800, 3, pytest.approx(0.7071, abs=1e-4)]
    assert told(found, "largest", "largest_share") == ["partition 2: 1,200 rows", pytest.approx(2 / 3, abs=1e-4)]
    world.produce(900, 900, 0)
    assert world.judge(world.skew).passed, "its producer spreads them again"

    world.forward = timedelta(days=2)  # a day in which nothing came
    found = world.judge(world.skew)
    assert (found.passed, told(found, "rows")) == (True, [0])


@pytest.mark.pattern("skew_detector")
def test_a_few_records_by_chance_are_no_skew(world: World) -> None:
    world.create()
    world.produce(4, 1, 0)
    found = world.judge(world.skew)
    assert found.passed
    assert told(found, "relative_deviation")[0] > 0.5


@pytest.mark.pattern("skew_detector")
@pytest.mark.red_check("volume_is_stable")
def test_an_hour_is_compared_with_the_accepted_ones_of_the_days_before(world: World) -> None:
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=8)
    days = [noon + timedelta(days=number) for number in range(7)]
    counts = [100, 30, 95, 300, 310, 0, 280]
    begin = noon - timedelta(days=2)
    assert told(world.judge(world.volume), "state") == ["absent"]
    world.was_fed((begin, 7), *zip(days, counts, strict=True))

    def at(day: datetime, **tags: str) -> tuple[bool, float | None]:
        world.stopped_at = day + timedelta(minutes=40)
        found = world.judge(world.volume, **tags)
        baseline = found.metadata.get("baseline_rows")
        return found.passed, baseline.value if baseline else None

    assert at(begin) == (True, None), "an hour in which the topic begins is a part of one"
    assert at(days[0]) == (True, None), "the first whole one has nothing beside it"
    assert at(days[1]) == (False, 100)
    assert at(days[1]) == (False, 100), "again"
    assert at(days[2]) == (True, 100), "what was refused is no measure"
    assert at(days[3]) == (False, 95)
    assert at(days[3], **{"de/volume_accepted": "a campaign"}) == (True, 95)
    assert at(days[4]) == (True, 300), "accepted by a person, it is the measure"
    assert at(days[5]) == (True, None), "silence is for another check"
    assert at(days[6]) == (True, 310)
    assert at(days[6] + HOUR) == (True, None), "an hour in which nothing came"


@pytest.mark.pattern("skew_detector")
def test_an_hour_of_few_records_may_differ_by_chance(world: World) -> None:
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=3)
    world.was_fed((noon - timedelta(days=1), 1), (noon, 9), (noon + timedelta(days=1), 3))
    world.stopped_at = noon + timedelta(days=1, minutes=5)
    found = world.judge(world.volume)
    assert (found.passed, told(found, "rows", "baseline_rows")) == (True, [3, 9])
