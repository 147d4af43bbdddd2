"""Metadata Decorator outside of the lake: headers of a real broker's records, and a table that business readers cannot read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import psycopg2
import pytest
from confluent_kafka import Producer
from instances import silent_instance
from psycopg2.errors import InsufficientPrivilege
from waiting import PATIENCE

from de_assets import __version__
from de_assets.contracts.serving import VisitsReduced
from de_assets.serving.visits_reduced import visits_reduced
from de_assets.sources.topics import TOPICS, VISITS, VISITS_REDUCED
from de_resources.contract import Contract
from de_resources.delta.write.crash_points import at
from de_resources.kafka import KafkaBroker
from de_resources.kafka.output import TopicOutput
from de_resources.kafka.reader import read_topic
from de_resources.kafka.topic import Record
from de_resources.kafka.writer import KeyedRecord, TopicWriter
from de_resources.lake import Lake
from de_resources.local import LocalServices, TopicSpec
from de_resources.local.postgres_role import BUSINESS, ENGINEERS
from de_resources.local.postgres_server import ADMIN, ADMIN_PASSWORD, PostgresService
from de_resources.metadata_decorator import WriteContext
from de_resources.postgres import PostgresDatabase, audience
from de_resources.postgres.transaction import Load, Relation, write_slice
from de_resources.secrets import FileSecrets
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.pattern("metadata_decorator")]

DAY = date(2024, 10, 10)


def headers_of(topic: str) -> list[tuple[Record, dict[str, str]]]:
    """All committed records with what their headers say."""
    records = read_topic(KafkaBroker().client_config(), topic).records
    return [(each, {name: (value or b"").decode() for name, value in each.headers or ()}) for each in records]


@pytest.mark.usefixtures("reduced_anew")
def test_a_record_of_the_graph_says_which_run_wrote_it_and_its_value_does_not(
    at_home: LocalServices, tmp_path: Path
) -> None:
    KafkaBroker().ensure_topics(TOPICS)
    engine, runs, ids = SparkEngine(), [], [f"decorated-{uuid4().hex}" for _ in range(2)]
    resources = {"broker": KafkaBroker(), "spark": engine, "lake": Lake(root_uri=str(tmp_path), spark=engine)}
    with silent_instance() as instance:
        for visit in ids:
            _publish({"visit_id": visit, "event_time": "2024-10-10T00:00:00Z", "user_id": "u", "page": "/"})
            runs.append(dg.materialize([visits_reduced], instance=instance, resources=resources).run_id)
        found = {
            value["visit_id"]: (value, told)
            for record, told in headers_of(VISITS_REDUCED)
            if (value := json.loads(record.value or b"{}")).get("visit_id") in ids
        }
        assert [found[visit][1]["de-run"] for visit in ids] == runs
        for run in runs:
            assert instance.get_run_by_id(run) is not None, "an engineer finds the run of any row"
    close_connections()
    for value, told in found.values():
        assert set(value) == set(Contract.of(VisitsReduced).column_names), "a business reader sees none of it"
        assert set(told) == {"de-dataset", "de-job-version", "de-run", "de-attempt", "de-batch"}
        assert (told["de-dataset"], told["de-job-version"]) == ("serving.visits_reduced", __version__)
        assert told["de-attempt"] == "1"


def _publish(visit: dict[str, Any]) -> None:
    producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
    producer.produce(VISITS, json.dumps({**visit, "context": {"user": {"ip": "10.0.0.1"}}}).encode())
    assert producer.flush(PATIENCE) == 0


def test_a_batch_that_two_runs_wrote_says_of_each_record_which_one(at_home: LocalServices) -> None:
    """The first dies when one of two partitions is committed; the second writes the other, and nothing twice."""
    name = f"decorated-{uuid4().hex[:8]}"
    KafkaBroker().ensure_topics([TopicSpec(name, 2)])
    output = TopicOutput(KafkaBroker().client_config(), name, f"test-{name}")
    records = [KeyedRecord(f"k{n}".encode(), b"v") for n in range(20)]

    def die(place: str) -> None:
        raise ValueError(place)

    def write(run: str) -> None:
        with TopicWriter(output) as writer:
            writer.write(0, records, WriteContext("serving.days", "1", run).headers(0))

    with at("after_commit", die), pytest.raises(ValueError, match=f"{name}-0"):
        write("first")
    write("second")
    by = {record.key: (record.partition, told["de-run"]) for record, told in headers_of(name)}
    assert len(by) == len(headers_of(name)) == 20
    assert {*by.values()} == {(0, "first"), (1, "second")}


def test_a_record_without_a_key_or_a_value_says_who_wrote_it_as_any_other(at_home: LocalServices) -> None:
    """Nobody's record has a writer too: what has no key, or is gone, is where one asks first who did it."""
    name = f"decorated-{uuid4().hex[:8]}"
    KafkaBroker().ensure_topics([TopicSpec(name, 3)])
    records = [KeyedRecord(None, b"first"), KeyedRecord(None, b"second"), KeyedRecord(b"gone", None)]
    records += [KeyedRecord(None, None), KeyedRecord(b"", b"empty")]
    with TopicWriter(TopicOutput(KafkaBroker().client_config(), name, f"test-{name}")) as writer:
        written = writer.write(0, records, WriteContext("serving.days", "1", "the-run").headers(0))
        assert writer.write(0, records, ()).skipped == (0, 1, 2), "repeated, it is in the topic already"
    found = headers_of(name)
    assert sum(written.records.values()) == len(found) == len(records)
    told = {
        "de-dataset": "serving.days",
        "de-job-version": "1",
        "de-run": "the-run",
        "de-attempt": "1",
        "de-batch": "0",
    }
    assert all(each == told for _, each in found)
    came = {(record.key, record.value, record.partition) for record, _ in found}
    assert came == {(each.key, each.value, each.partition(3)) for each in records}


@pytest.fixture
def schema(services: LocalServices, at_home: LocalServices) -> Iterator[str]:
    """A schema of its own, in a database that has been set up as this code does."""
    endpoint = services.endpoint("postgres")
    assert endpoint is not None
    PostgresService(services.settings).bootstrap(endpoint)
    name = f"decorated_{uuid4().hex[:8]}"
    yield name
    ours(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def ours(statement: str) -> list[tuple[Any, ...]]:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def as_member(services: LocalServices, group: str, query: str) -> list[tuple[Any, ...]]:
    """What somebody reads whose only rights are the group's."""
    endpoint = services.endpoint("postgres")
    assert endpoint is not None
    password = FileSecrets(services.settings.secrets).read(ADMIN_PASSWORD)
    place = {"host": endpoint.host, "port": endpoint.port, "dbname": endpoint.database}
    with closing(psycopg2.connect(**place, user=ADMIN, password=password)) as session, session.cursor() as cursor:
        cursor.execute(f"SET ROLE {group}")
        cursor.execute(query)
        return cursor.fetchall()


def days(schema: str) -> Relation:
    columns = (("day", "date NOT NULL"), ("total", "bigint NOT NULL"))
    return Relation(f"{schema}.days", columns, ("day",), "day")


def load(schema: str, run: str = "run") -> None:
    rows = {days(schema): [{"day": DAY, "total": 3}]}
    write_slice(PostgresDatabase(), Load(f"{schema}.both", run, 2, "7.1"), DAY, rows)


def test_business_reads_the_rows_and_engineers_also_who_wrote_them(services: LocalServices, schema: str) -> None:
    load(schema)
    load(schema, "again")
    rows, who = f"SELECT * FROM {schema}.days", f"SELECT run_id, attempt, job_version FROM {schema}.loads"
    assert as_member(services, BUSINESS, rows) == [(DAY, 3)], "and nothing technical beside"
    with pytest.raises(InsufficientPrivilege):
        as_member(services, BUSINESS, who)
    with pytest.raises(InsufficientPrivilege):
        as_member(services, BUSINESS, f"DELETE FROM {schema}.days RETURNING day")
    assert as_member(services, ENGINEERS, rows) == [(DAY, 3)]
    of_row = f"SELECT l.run_id FROM {schema}.days d JOIN {schema}.loads l ON l.slice = d.day::text"
    assert as_member(services, ENGINEERS, of_row) == [("again",)]
    assert as_member(services, ENGINEERS, who) == [("again", 2, "7.1")]


def test_a_table_of_an_earlier_version_gets_what_it_lacks(services: LocalServices, schema: str) -> None:
    load(schema)
    ours(f"ALTER TABLE {schema}.loads DROP COLUMN job_version; REVOKE ALL ON {schema}.loads FROM {ENGINEERS}")
    load(schema, "new")
    who = f"SELECT run_id, job_version FROM {schema}.loads"
    assert as_member(services, ENGINEERS, who) == [("new", "7.1")]


def test_a_database_without_the_groups_is_left_as_it_is(
    services: LocalServices, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audience, "BUSINESS", f"nobody_{uuid4().hex}")
    monkeypatch.setattr(audience, "ENGINEERS", f"nobody_{uuid4().hex}")
    load(schema)
    assert ours(f"SELECT count(*) FROM {schema}.days") == [(1,)]
    for group in (BUSINESS, ENGINEERS):
        with pytest.raises(InsufficientPrivilege):
            as_member(services, group, f"SELECT * FROM {schema}.days")
