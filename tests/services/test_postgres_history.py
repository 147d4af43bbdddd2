"""A table of last states in a real PostgreSQL: any slice again, at any time, and it is as after a clean run in order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
import warm_process
from waiting import PATIENCE

from de_resources.delta.write.crash_points import at
from de_resources.errors import TransientError
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.history import HistoryTable, Merged, NoHistory, merge_slice, take_back
from de_resources.postgres.transaction import LoadRefused, Relation, RowOutsideSlice

pytestmark = [pytest.mark.services, pytest.mark.pattern("stateful_merger")]

DEADLINE = PATIENCE
DAYS = [date(2024, 9, day) for day in range(20, 30)]
COLUMNS = (("id", "int NOT NULL"), ("brand", "text NOT NULL"), ("day", "date NOT NULL"))

Inputs = Mapping[date, Mapping[int, str | None]]
"""What each day brings: a brand per device, None where it is deleted."""


@dataclass(frozen=True)
class World:
    """Devices by day, in a schema of their own."""

    schema: str

    @property
    def table(self) -> HistoryTable:
        return HistoryTable(Relation(f"{self.schema}.devices", COLUMNS, ("id",), "day"), deleted="is_deleted")

    def load(self, day: date, brands: Mapping[int, str | None]) -> Merged:
        rows = [{"id": n, "brand": brand, "day": day, "is_deleted": brand is None} for n, brand in brands.items()]
        return merge_slice(PostgresDatabase(), self.table, day, rows)

    def seen(self) -> dict[int, tuple[str, date]]:
        return {n: (brand, day) for n, brand, day in self.query("SELECT id, brand, day FROM {}.devices")}

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement.format(self.schema))
            return cursor.fetchall() if cursor.description else []


def clean_run(inputs: Inputs) -> dict[int, tuple[str, date]]:
    """All days once, in order, in plain Python."""
    state: dict[int, tuple[str, date]] = {}
    for day in sorted(inputs):
        for n, brand in inputs[day].items():
            state.pop(n, None)
            if brand is not None:
                state[n] = (brand, day)
    return state


def random_day(dice: random.Random) -> dict[int, str | None]:
    return {n: dice.choice(["acer", "nokia", "htc", None]) for n in dice.sample(range(12), dice.randint(0, 6))}


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    made = World(f"history_{uuid4().hex[:8]}")
    yield made
    made.query("DROP SCHEMA IF EXISTS {} CASCADE")


def test_day_three_of_ten_again_and_then_the_rest_is_what_ten_in_order_leave(world: World) -> None:
    inputs: dict[date, dict[int, str | None]] = {}
    for n, day in enumerate(DAYS):
        inputs[day] = {n: f"brand {n}", n + 1: f"brand {n}", 100: f"day {n}"}
        world.load(day, inputs[day])
    assert world.seen() == clean_run(inputs)

    inputs[DAYS[2]] = {2: "corrected", 50: "new", 100: "corrected"}
    again = world.load(DAYS[2], inputs[DAYS[2]])
    assert world.seen() == clean_run(inputs), "the later days came from the history"
    assert (again.later, again.rows) == (7, 3)
    assert world.seen()[100] == ("day 9", DAYS[9]), "an older state never covers a newer one"

    for day in DAYS[3:]:
        assert world.load(day, inputs[day]).written == 0, "the replay finds all of it there"
    assert world.seen() == clean_run(inputs)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_loaded_in_whatever_order_and_again_it_is_the_clean_run(world: World, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    inputs: dict[date, dict[int, str | None]] = {}
    for _ in range(25):
        day = dice.choice(DAYS)
        inputs[day] = random_day(dice)
        world.load(day, inputs[day])
        assert world.seen() == clean_run(inputs)


def test_a_normal_run_touches_its_own_keys_only_and_a_rerun_nothing(world: World) -> None:
    world.load(DAYS[0], {1: "acer", 2: "nokia"})
    before = world.query("SELECT xmin::text FROM {}.devices WHERE id = 2")
    assert world.load(DAYS[1], {1: "htc", 3: None, 4: "acer"}) == Merged(3, 2, 0, 0)
    assert world.query("SELECT xmin::text FROM {}.devices WHERE id = 2") == before
    assert 3 not in world.seen(), "a key that arrives deleted is not inserted"
    assert world.load(DAYS[1], {1: "htc", 3: None, 4: "acer"}) == Merged(3, 0, 0, 0)
    assert world.load(DAYS[1], {1: None}) == Merged(1, 0, 2, 0), "what it no longer brings is as it was before it"
    assert world.load(DAYS[1], {}) == Merged(0, 1, 0, 0)
    assert world.seen() == {1: ("acer", DAYS[0]), 2: ("nokia", DAYS[0])}


def test_a_day_and_all_after_it_can_be_taken_back_and_run_in_order(world: World) -> None:
    dice = random.Random(0)  # noqa: S311
    inputs = {day: random_day(dice) or {n: "acer"} for n, day in enumerate(DAYS)}
    for day, brands in inputs.items():
        world.load(day, brands)
    gone = take_back(PostgresDatabase(), world.table, DAYS[2])
    assert gone == tuple(DAYS[2:])
    assert world.seen() == clean_run({day: inputs[day] for day in DAYS[:2]})
    assert take_back(PostgresDatabase(), world.table, DAYS[2]) == ()
    for day in gone:
        world.load(day, inputs[day])
    assert world.seen() == clean_run(inputs)
    assert take_back(PostgresDatabase(), world.table, DAYS[0]) == tuple(DAYS)
    assert world.seen() == {}


@pytest.mark.faults
def test_two_backfills_at_once_are_one_after_the_other(world: World, beside: ThreadPoolExecutor) -> None:
    inputs = {day: {n % 3: f"brand {n}", 7: f"day {n}"} for n, day in enumerate(DAYS)}
    forwards = [beside.submit(world.load, day, inputs[day]) for day in DAYS]
    backwards = [beside.submit(world.load, day, inputs[day]) for day in reversed(DAYS)]
    for done in (*forwards, *backwards):
        done.result(DEADLINE)
    assert world.seen() == clean_run(inputs)
    assert world.query("SELECT count(*) FROM {}.devices_history") == [(20,)]


@pytest.mark.faults
def test_readers_see_the_old_state_until_the_new_one_is_whole(world: World, beside: ThreadPoolExecutor) -> None:
    for day in DAYS[:3]:
        world.load(day, {1: str(day)})
    before = world.seen()
    reached, release = Event(), Event()

    def hold(_: str) -> None:
        reached.set()
        assert release.wait(DEADLINE)

    with at("before_commit", hold):
        loading = beside.submit(world.load, DAYS[2], {2: "other"})
        assert reached.wait(DEADLINE)
        assert world.seen() == before
        release.set()
        loading.result(DEADLINE)
    assert world.seen() == {1: (str(DAYS[1]), DAYS[1]), 2: ("other", DAYS[2])}


def load_again(schema: str) -> None:
    """In a process of its own."""
    World(schema).load(DAYS[1], {1: "second"})


@pytest.mark.faults
def test_kill_9_between_history_and_table_leaves_both_as_they_were(world: World) -> None:
    for day in DAYS[:3]:
        world.load(day, {1: "first", 2: str(day)})
    before = (world.seen(), world.query("SELECT * FROM {}.devices_history ORDER BY id, day"))
    warm_process.dies("test_postgres_history:load_again", world.schema, DE_KILL_AT="before_commit")
    assert (world.seen(), world.query("SELECT * FROM {}.devices_history ORDER BY id, day")) == before
    world.load(DAYS[1], {1: "second"})
    assert world.seen() == {1: ("first", DAYS[2]), 2: (str(DAYS[2]), DAYS[2])}


@pytest.mark.faults
def test_a_connection_that_breaks_leaves_nothing_and_is_worth_another_try(world: World) -> None:
    world.load(DAYS[0], {1: "acer"})

    def cut(_: str) -> None:
        world.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE '%{}%' AND pid <> pg_backend_pid() AND usename = current_user"
        )

    with at("before_commit", cut), pytest.raises(TransientError, match="interrupted"):
        world.load(DAYS[0], {1: "htc"})
    assert world.seen() == {1: ("acer", DAYS[0])}


def test_bad_rows_are_refused_and_not_quoted(world: World) -> None:
    world.load(DAYS[0], {1: "acer"})
    database, table = PostgresDatabase(), world.table
    good = {"id": 2, "brand": "jane@example.org", "day": DAYS[1]}
    for rows, why in (
        ([good, good], "duplicate key value"),
        ([{**good, "id": None}], 'null value in column "id"'),
        ([{**good, "brand": None}], 'null value in column "brand"'),
        ([{**good, "id": "jane@example.org"}], "invalid input|InvalidTextRepresentation"),
    ):
        with pytest.raises(LoadRefused, match=why) as refused:
            merge_slice(database, table, DAYS[1], rows)
        assert "jane" not in str(refused.value)
    with pytest.raises(RowOutsideSlice):
        merge_slice(database, table, DAYS[2], [good])
    assert world.seen() == {1: ("acer", DAYS[0])}
    assert world.query("SELECT count(*) FROM {}.devices_history") == [(1,)]


def test_what_cannot_have_a_history_is_refused_with_the_reason() -> None:
    with pytest.raises(NoHistory, match="has the slice in it"):
        HistoryTable(Relation("shop.devices", COLUMNS, ("id", "day"), "day"))
    with pytest.raises(NoHistory, match="`brand` is one of its columns"):
        HistoryTable(Relation("shop.devices", COLUMNS, ("id",), "day"), deleted="brand")
