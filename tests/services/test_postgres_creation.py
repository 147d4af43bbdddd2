"""Schemas and tables that are made when first needed: everybody who makes one waits for everybody else in its schema."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from uuid import uuid4

import pytest
from psycopg2.sql import SQL, Identifier
from waiting import PATIENCE

from de_resources.kafka.checkpoints import TableCheckpoints
from de_resources.late_data.state import LateState
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.creation import claim_schema, create_missing, exists
from de_resources.postgres.history import HistoryTable, merge_slice
from de_resources.postgres.transaction import Load, Relation, write_slice
from de_resources.postgres.upsert import create_if_missing
from de_resources.postgres.versioned_view import ProxyView, ViewProxy
from de_resources.postgres.weekly import WeeklyView
from de_resources.postgres.weekly.view import ensure

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.usefixtures("at_home")]

DAY = date(2024, 10, 10)
COLUMNS = (("id", "bigint NOT NULL"), ("day", "date NOT NULL"))
DATABASE = PostgresDatabase()
WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def relation(schema: str, name: str) -> Relation:
    return Relation(f"{schema}.{name}", COLUMNS, ("id",), "day")


def _transaction(schema: str) -> None:
    write_slice(DATABASE, Load(f"{schema}.load", "run"), DAY, {relation(schema, "sliced"): []})


def _history(schema: str) -> None:
    merge_slice(DATABASE, HistoryTable(relation(schema, "kept")), DAY, [])


def _upsert(schema: str) -> None:
    create_if_missing(DATABASE, relation(schema, "keyed"), indexed=["day"])


def _checkpoints(schema: str) -> None:
    TableCheckpoints(DATABASE, schema, "consumer", "topic").create_if_missing()


def _weeks(schema: str) -> None:
    ensure(DATABASE, WeeklyView(relation(schema, "weekly")))


def _proxy(schema: str) -> None:
    # A version each: of two attempts at the same one, the overtaken one is refused.
    version = f"v{uuid4().hex[:8]}"
    ViewProxy(DATABASE, ProxyView(f"{schema}.live", COLUMNS, ("id",))).write_version(version, [], "run")


CREATORS = [_transaction, _history, _upsert, _checkpoints, _weeks, _proxy]


@pytest.fixture
def schema() -> str:
    """A schema that nobody made yet."""
    return f"made_{uuid4().hex[:8]}"


def waiting() -> int:
    with DATABASE.connect() as session, session.cursor() as statement:
        statement.execute(WAITS)
        ((waits,),) = statement.fetchall()
    return int(waits)


@pytest.mark.parametrize("create", CREATORS)
def test_a_creator_waits_for_the_others_of_its_schema(
    create: Callable[[str], None], schema: str, beside: ThreadPoolExecutor
) -> None:
    with DATABASE.connect() as session, session.cursor() as statement:
        claim_schema(statement, schema)
        waits = beside.submit(create, schema)
        while not waits.done() and not waiting():
            pass
        assert not waits.done(), f"it did not wait: {waits.exception()}"
    waits.result(PATIENCE)
    create(schema)


def test_all_of_them_at_once_find_one_schema(schema: str, beside: ThreadPoolExecutor) -> None:
    for made in [beside.submit(create, schema) for create in CREATORS * 2]:
        made.result(PATIENCE)


def test_evaluations_that_come_first_at_once_make_the_state_of_late_data(beside: ThreadPoolExecutor) -> None:
    for made in [beside.submit(LateState(DATABASE, "somebody").create_if_missing) for _ in range(4)]:
        made.result(PATIENCE)


def test_what_exists_is_left_as_it_is(schema: str) -> None:
    table = Identifier(schema, "kept_as_it_is")
    with DATABASE.connect() as session, session.cursor() as statement:
        for columns in ("a int", "b text"):
            create_missing(statement, [(table, SQL("CREATE TABLE {} ({})").format(table, SQL(columns)))])
        assert exists(statement, table)
        assert not exists(statement, Identifier(schema, "absent"))
        statement.execute(SQL("SELECT a FROM {}").format(table))
