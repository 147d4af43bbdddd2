"""What a served table refuses by itself, whoever writes: compiled from its contract, and brought along when that changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from uuid import uuid4

import pandera.pyspark as pa
import psycopg2
import pyspark.sql.types as T
import pytest

from de_assets.contracts.serving import DailyTraffic, DailyTrafficByCountry, SessionsLive
from de_resources.contract import Contract
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.constraints import NotForPostgres, constraints_of
from de_resources.postgres.presence import KeyChanged
from de_resources.postgres.transaction import Load, Loaded, LoadRefused, Relation, write_slice

pytestmark = [pytest.mark.services, pytest.mark.pattern("constraints_enforcer")]

DAY = date(2024, 10, 10)
Query = Callable[[str], list[tuple[object, ...]]]


@pytest.fixture
def schema(at_home: LocalServices) -> Iterator[str]:
    name = f"constraints_{uuid4().hex[:8]}"
    yield name
    query(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def query(statement: str) -> list[tuple[object, ...]]:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def traffic(schema: str) -> tuple[Relation, Relation]:
    """The two served tables, in a schema of the test."""
    days, shares = (
        replace(Contract.of(model), name=f"{schema}.{name}")
        for model, name in ((DailyTraffic, "days"), (DailyTrafficByCountry, "shares"))
    )
    return Relation.of(days), Relation.of(replace(shares, references={"event_date": f"{schema}.days.event_date"}))


def load(schema: str, visits: int = 3, days: Relation | None = None) -> Loaded:
    own, shares = traffic(schema)
    row = {"event_date": DAY, "visits": visits, "users": 1, "bot_visits": 0}
    return write_slice(
        PostgresDatabase(), Load(f"{schema}.both", "run"), DAY, {days or own: [row], shares: [{**row, "country": "FR"}]}
    )


def test_a_write_around_the_platform_is_refused_by_the_database(schema: str) -> None:
    load(schema)
    refused = {
        "contract_visits_greater_than": f"UPDATE {schema}.days SET visits = 0",
        "visits": f"UPDATE {schema}.days SET visits = NULL",
        "days_pkey": f"INSERT INTO {schema}.days SELECT * FROM {schema}.days",
        "contract_event_date_reference": f"INSERT INTO {schema}.shares VALUES ('1999-01-01', 1, 1, 0, 'FR')",
    }
    for constraint, statement in refused.items():
        with pytest.raises(psycopg2.IntegrityError, match=constraint):
            query(statement)
    with pytest.raises(psycopg2.IntegrityError, match="contract_event_date_reference"):
        query(f"DELETE FROM {schema}.days")
    assert query(f"SELECT visits FROM {schema}.days") == [(3,)]


def test_a_load_is_refused_as_a_whole_and_a_rerun_replaces_both_sides_of_a_reference(schema: str) -> None:
    load(schema)
    with pytest.raises(LoadRefused, match="contract_visits_greater_than"):
        load(schema, visits=-1)
    load(schema, visits=8)
    assert query(f"SELECT d.visits, s.visits FROM {schema}.days d JOIN {schema}.shares s USING (event_date)") == [
        (8, 8)
    ]


def test_a_table_of_an_earlier_version_gets_them_and_rows_in_the_way_are_counted(
    schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    days, shares = traffic(schema)
    old = replace(days, constraints=())
    row = {"event_date": DAY, "visits": 0, "users": 1, "bot_visits": 0}
    write_slice(PostgresDatabase(), Load(f"{schema}.both", "run"), DAY, {old: [row]})
    other = date(2024, 10, 11)
    with caplog.at_level(logging.WARNING):
        write_slice(
            PostgresDatabase(),
            Load(f"{schema}.both", "run"),
            other,
            {days: [{**row, "event_date": other, "visits": 1}]},
        )
    assert "has 1 rows that break `contract_visits_greater_than`" in caplog.text
    with pytest.raises(psycopg2.IntegrityError, match="contract_visits_greater_than"):
        query(f"INSERT INTO {schema}.days VALUES ('2024-10-12', 0, 1, 0)")
    load(schema)
    load(schema)
    assert query(f"SELECT bool_and(convalidated) FROM pg_constraint WHERE conrelid = '{schema}.days'::regclass") == [
        (True,)
    ]
    assert shares.constraints


def users_are(relation: Relation, required: bool) -> Relation:
    """The same table, whose contract asks for `users`, or does not."""
    columns = (
        (name, "bigint NOT NULL" if required else "bigint") if name == "users" else (name, t)
        for name, t in relation.columns
    )
    return replace(relation, columns=tuple(columns), constraints=())


def one_day(schema: str, relation: Relation, day: date, users: int | None) -> Loaded:
    row = {"event_date": day, "visits": 3, "users": users, "bot_visits": 0}
    return write_slice(PostgresDatabase(), Load(f"{schema}.both", "run"), day, {relation: [row]})


def test_a_column_that_becomes_optional_or_required_does_so_in_a_table_that_is_there(schema: str) -> None:
    days, _ = traffic(schema)
    optional, required = users_are(days, False), users_are(days, True)
    one_day(schema, required, DAY, 1)
    one_day(schema, optional, DAY, None)
    # The null is in the way: the rule holds for new rows, and is told with the rows that break it.
    other = date(2024, 10, 11)
    assert one_day(schema, required, other, 2).blocked == {f"{schema}.days": {"users_present": 1}}
    with pytest.raises(LoadRefused, match="contract_users_present"):
        one_day(schema, required, other, None)
    assert one_day(schema, required, DAY, 5).blocked == {f"{schema}.days": {"users_present": 1}}, (
        "it was looked at before"
    )
    assert one_day(schema, required, DAY, 5).blocked == {f"{schema}.days": {}}
    with pytest.raises(psycopg2.IntegrityError, match=r'null value in column "users"'):
        query(f"UPDATE {schema}.days SET users = NULL")
    assert (
        query(f"SELECT conname FROM pg_constraint WHERE conrelid = '{schema}.days'::regclass AND contype = 'c'") == []
    )


def test_another_key_than_the_table_has_is_refused_by_name(schema: str) -> None:
    days, _ = traffic(schema)
    load(schema)
    with pytest.raises(
        KeyChanged, match=r"has the key \(event_date, visits\), but the table has the primary key \(event_date\)"
    ):
        one_day(schema, replace(days, key=("event_date", "visits")), DAY, 1)
    assert query(f"SELECT visits FROM {schema}.days") == [(3,)]


def test_a_reference_over_rows_that_refer_to_nothing_holds_for_new_rows_and_refuses_no_load(schema: str) -> None:
    days, shares = traffic(schema)
    old, lost = replace(shares, constraints=()), date(2024, 10, 9)
    row = {"event_date": lost, "visits": 3, "users": 1, "bot_visits": 0, "country": "FR"}
    by = Load(f"{schema}.both", "run")
    write_slice(PostgresDatabase(), by, lost, {days: [], old: [row, {**row, "country": "DE"}]})
    assert load(schema).blocked == {f"{schema}.days": {}, f"{schema}.shares": {"event_date_reference": 2}}
    with pytest.raises(psycopg2.IntegrityError, match="contract_event_date_reference"):
        query(f"INSERT INTO {schema}.shares VALUES ('1999-01-01', 3, 1, 0, 'FR')")
    write_slice(PostgresDatabase(), by, lost, {days: [], shares: []})
    assert load(schema).blocked == {f"{schema}.days": {}, f"{schema}.shares": {}}
    assert query(f"SELECT bool_and(convalidated) FROM pg_constraint WHERE conrelid = '{schema}.shares'::regclass") == [
        (True,)
    ]


def test_a_changed_rule_replaces_the_constraint_and_a_null_passes_none(schema: str) -> None:
    load(schema)
    days, _ = traffic(schema)
    strict = replace(days, constraints=(("contract_own", "CHECK (coalesce(users <= visits AND NULL, FALSE))"),))
    write_slice(PostgresDatabase(), Load(f"{schema}.both", "run"), date(2024, 1, 1), {strict: []})
    assert query(
        f"SELECT conname FROM pg_constraint WHERE conrelid = '{schema}.days'::regclass AND conname LIKE 'contract%'"
    ) == [("contract_own",)]
    with pytest.raises(psycopg2.IntegrityError, match="contract_own"):
        query(f"INSERT INTO {schema}.days VALUES ('2024-10-12', 5, 1, 0)")


def test_row_rules_are_compiled_where_both_databases_read_them_the_same_way() -> None:
    rules = dict(constraints_of(Contract.of(SessionsLive)))
    assert rules["contract_ends_after_start"] == "CHECK (coalesce(ended_at >= started_at, FALSE))"

    for foreign in ("date_trunc('HOUR', at) = at", "a = (SELECT 1)", "a RLIKE 'x'", "a = `b`", "a = 1; DROP TABLE x"):

        class Odd(pa.DataFrameModel):
            """A rule that only Spark reads."""

            a: T.LongType = pa.Field(nullable=True)

            class Config:
                name = "serving.odd"
                metadata = {"rules": {"foreign": foreign}}  # noqa: RUF012

        with pytest.raises(NotForPostgres, match="foreign"):
            constraints_of(Contract.of(Odd))
