"""Rows that are kept outside of the lake, named and traced: of the database by their key, of a topic by their place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import PATIENCE

from de_assets.contracts.serving import DailyTraffic, DailyTrafficByCountry, VisitsReduced
from de_assets.dataset import served
from de_assets.outside_rows import OutsideRows
from de_assets.serving.daily_traffic import BY_COUNTRY, LOAD, TOTAL
from de_resources.contract import Contract
from de_resources.kafka import KafkaBroker
from de_resources.lineage.recorded import RecordedDataset
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import Load, write_slice
from de_resources.spark import SparkEngine, close_connections
from de_resources.tracing.makers import OUTSIDE, Maker
from de_resources.tracing.trace import NoSuchRow, NotTraceable, Traced, TracedSource, trace

pytestmark = [pytest.mark.services, pytest.mark.pattern("fine_grained_tracker")]

DAYS = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-13")
TEN, ELEVEN = date(2024, 10, 10), date(2024, 10, 11)


class World:
    """An instance in which the runs were, and the rows outside."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        tables = ("serving/daily_traffic", "serving/daily_traffic_by_country")
        self.outside = OutsideRows(instance, dict.fromkeys(tables, DAYS))

    def ran(self, name: str, key: str | None = None, **told: Any) -> str:
        """A run that has recorded the asset."""

        @dg.asset(key=name.split("/"), partitions_def=DAYS if key else None)
        def wrote() -> dg.MaterializeResult[None]:
            return dg.MaterializeResult(metadata=told)

        return dg.materialize([wrote], instance=self.instance, partition_key=key).run_id

    def trace(self, name: str, model: Any, kind: str, /, **key: str | None) -> Traced:
        metadata = served(model, kind=kind, patterns=[], partition="event_date")["metadata"]
        found = self.outside.of(name, RecordedDataset(metadata=metadata, kinds=frozenset({kind})))
        return trace(SparkEngine().spark_session, {name: TracedSource(name, outside=found)}.__getitem__, name, key)


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    assert at_home is not None
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(instance)
    close_connections()


@pytest.mark.usefixtures("nothing_served")
def test_a_row_of_the_database_is_found_by_its_key_with_the_newest_run_of_its_day(world: World) -> None:
    names = ("visits", "users", "bot_visits")
    for day, visits in ((TEN, 4), (ELEVEN, 7)):
        row = {"event_date": day, **dict.fromkeys(names, visits)}
        countries = [{**row, "country": "DE"}, {**row, "country": "it's \" \\", "visits": 2}]
        write_slice(PostgresDatabase(), Load(LOAD, "r"), day, {TOTAL: [row], BY_COUNTRY: countries})
    first, second, other = (
        world.ran("serving/daily_traffic", key) for key in ("2024-10-10", "2024-10-10", "2024-10-11")
    )
    found = world.trace("serving/daily_traffic", DailyTraffic, "postgres", event_date="2024-10-10")
    (row_,) = found.rows
    assert row_.values == {"event_date": TEN, "visits": 4, "users": 4, "bot_visits": 4}
    assert row_.makers == (Maker(OUTSIDE, second),)
    assert first != second != other
    by_country = world.trace(
        "serving/daily_traffic_by_country",
        DailyTrafficByCountry,
        "postgres",
        event_date="2024-10-10",
        country="it's \" \\",
    )
    assert [(row.values["visits"], row.makers) for row in by_country.rows] == [(2, ())], "no run is recorded for it"
    for wrong in ("2024-10-12", "yesterday", "' OR 1 = 1 --", None):
        with pytest.raises(NoSuchRow):
            world.trace("serving/daily_traffic", DailyTraffic, "postgres", event_date=wrong)


def test_a_record_is_found_by_its_place_with_the_first_run_that_ended_after_it(world: World) -> None:
    name, topic = "serving/visits_reduced", f"traced-{uuid4().hex[:8]}"
    with pytest.raises(NotTraceable, match="no run has recorded the topic"):
        world.trace(name, VisitsReduced, "kafka", partition="0", offset="0")
    client = AdminClient({**KafkaBroker().client_config(), "log_level": "0"})
    config = {"message.timestamp.type": "LogAppendTime"}
    client.create_topics([NewTopic(topic, 2, config=config)])[topic].result(PATIENCE)
    before = world.ran(name, topic=topic)
    produce(topic, "a", "b")
    wrote = world.ran(name, topic=topic)
    produce(topic, "c")
    later = world.ran(name, topic=topic)
    for offset, visit, run in (("1", "b", wrote), ("2", "c", later)):
        (row,) = world.trace(name, VisitsReduced, "kafka", partition="1", offset=offset).rows
        assert [row.values[each] for each in ("topic_partition", "topic_offset", "visit_id", "page")] == [
            1, int(offset), visit, "/"
        ]  # fmt: skip
        assert row.values["event_time"].astimezone(UTC) == datetime(2024, 10, 10, 7, tzinfo=UTC)
        assert (row.makers, run != before) == ((Maker(OUTSIDE, run),), True)
    assert set(Contract.of(VisitsReduced).column_names) < set(row.values)
    for partition, offset, why in (
        ("0", "0", "no record at offset 0 of partition 0"),
        ("1", "3", "no record at offset 3"),
        ("7", "0", "no record at offset 0 of partition 7"),
        ("-1", "0", "is a number"),
        ("1", "x", "is a number"),
    ):
        with pytest.raises(NotTraceable, match=why):
            world.trace(name, VisitsReduced, "kafka", partition=partition, offset=offset)
    client.delete_topics([topic])[topic].result(PATIENCE)


def produce(topic: str, *visits: str) -> None:
    producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
    for visit in visits:
        value = {"visit_id": visit, "event_time": "2024-10-10T07:00:00.000Z", "user_id": "u", "page": "/"}
        producer.produce(topic, json.dumps(value), key=visit, partition=1)
    assert producer.flush(PATIENCE) == 0
