"""A table that a capture did not have from the start: its rows come at their place, and no change of the others is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from test_capture import read_committed
from waiting import PATIENCE, until

from de_resources.capture import Capture, CaptureSource, drop, prepare, slot, wait_until_captured
from de_resources.capture.__main__ import keep_relaying
from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices, TopicSpec
from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.pattern("change_data_capture")]


@dataclass
class World:
    """Two tables of numbered rows, each with the count of its changes; the source knows the first one."""

    first: str
    second: str

    @property
    def source(self) -> CaptureSource:
        return CaptureSource(self.first, (f"public.{self.first}",), self.first)

    @property
    def wider(self) -> CaptureSource:
        """The source, after somebody has added a table to it."""
        return replace(self.source, tables=(f"public.{self.first}", f"public.{self.second}"))

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def change(self, random: Random) -> None:
        """One transaction of both tables: counts of the first one go up, rows of the second one come, change and go."""
        self.execute(
            f"UPDATE {self.first} SET changes = changes + 1 WHERE id = {random.randint(1, 3)};"
            f"INSERT INTO {self.second} VALUES ({random.randint(1, 2_000)}, 1)"
            f" ON CONFLICT (id) DO UPDATE SET changes = {self.second}.changes + 1;"
            f"DELETE FROM {self.second} WHERE id = {random.randint(1, 2_000)}"
        )

    def records(self) -> list[tuple[dict[str, Any], tuple[int, int]]]:
        """Changes as the topic has them, in its order."""
        return [(value, position) for _, value, position in read_committed(self.first) if value is not None]


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    made = World(*(f"late{n}_{uuid4().hex[:8]}" for n in (1, 2)))
    KafkaBroker().ensure_topics([TopicSpec(made.first)])
    for table in (made.first, made.second):
        made.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, changes int NOT NULL); ALTER TABLE {table} REPLICA IDENTITY FULL"
        )
    assert prepare(PostgresDatabase(), made.source)
    made.execute(f"INSERT INTO {made.first} SELECT n, 0 FROM generate_series(1, 3) n")
    made.execute(f"INSERT INTO {made.second} SELECT n, 0 FROM generate_series(1, 500) n")
    yield made
    drop(PostgresDatabase(), made.source)
    made.execute(f"DROP TABLE IF EXISTS {made.first}, {made.second}")


@pytest.fixture
def relaying() -> Iterator[Callable[[CaptureSource], Callable[[], None]]]:
    """Starts the relay of a source; what it returns ends it."""
    running: list[tuple[Event, Thread]] = []

    def end(stopping: Event, thread: Thread) -> None:
        stopping.set()
        thread.join(PATIENCE)

    def start(source: CaptureSource) -> Callable[[], None]:
        stopping = Event()
        thread = Thread(target=keep_relaying, args=(source, stopping, {source.name: ""}))
        thread.start()
        running.append((stopping, thread))
        return lambda: end(stopping, thread)

    yield start
    for each in running:
        end(*each)


def named(change: dict[str, Any]) -> str:
    """The table of a change, without its schema."""
    return str(change["source"]["table"]).rpartition(".")[2]


def folded(world: World) -> dict[str, dict[int, int]]:
    """Both tables as the records tell them.

    What changes while a table's rows are awaited comes ahead of them: also the deletion of a row that nobody told of.
    """
    rows: dict[str, dict[int, int]] = {world.first: {}, world.second: {}}
    for change, _ in world.records():
        of = rows[named(change)]
        if change["op"] == "t":
            of.clear()
        elif change["op"] == "d":
            of.pop(change["before"]["id"], None)
        else:
            of[change["after"]["id"]] = change["after"]["changes"]
    return rows


def tables(world: World) -> dict[str, dict[int, int]]:
    return {name: dict(world.execute(f"SELECT id, changes FROM {name}")) for name in (world.first, world.second)}  # type: ignore[misc]


def counts(world: World) -> dict[int, list[int]]:
    """Every count of the first table's rows, in the order in which they came."""
    found: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for change, _ in world.records():
        if named(change) == world.first:
            found[change["after"]["id"]].append(change["after"]["changes"])
    return found


def agree(world: World) -> None:
    """The topic tells both tables, every change of the first one once, and positions that only grow."""
    wait_until_captured(PostgresDatabase(), world.wider, PATIENCE)
    slot.require_published(PostgresDatabase(), world.wider)
    assert folded(world) == tables(world)
    for id_, changes in tables(world)[world.first].items():
        assert counts(world)[id_] == list(range(changes + 1))
    positions = [position for _, position in world.records()]
    assert positions == sorted(set(positions))


def test_a_table_that_is_added_to_a_source_is_published_with_the_rows_that_it_had(
    world: World, relaying: Callable[[CaptureSource], Callable[[], None]]
) -> None:
    """Both tables change before, while and after the second one is taken in."""
    random, quiet = Random(7), Event()  # noqa: S311 - which row changes, not a secret
    end = relaying(world.source)
    world.change(random)
    wait_until_captured(PostgresDatabase(), world.source, PATIENCE)
    end()
    for _ in range(50):
        world.change(random)

    def busy() -> None:
        while not quiet.is_set():
            world.change(random)

    writer = Thread(target=busy)
    writer.start()
    try:
        relaying(world.wider)
        wait_until_captured(PostgresDatabase(), world.wider, PATIENCE)
        assert writer.is_alive()
    finally:
        quiet.set()
        writer.join(PATIENCE)
    world.change(random)
    agree(world)
    snapshot = [change for change, _ in world.records() if change["op"] in "tr"]
    assert {named(change) for change in snapshot} == {world.second}, "the first one was not read again"


class RowsAwaited(Exception):
    """The wait goes on."""


def test_a_position_behind_everything_is_not_enough_as_long_as_rows_of_a_table_are_awaited(
    world: World, relaying: Callable[[CaptureSource], Callable[[], None]]
) -> None:
    database, looks = PostgresDatabase(), 0
    end = relaying(world.source)
    wait_until_captured(database, world.source, PATIENCE)
    end()
    with database.connect() as session, session.cursor() as asked:
        assert slot.ensure_publication(asked, database, world.wider)

    def passes(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 1:
            raise RowsAwaited
        world.execute(f"SELECT pg_replication_slot_advance('{world.source.slot}', pg_current_wal_lsn())")

    with pytest.raises(RowsAwaited):
        wait_until_captured(database, world.wider, PATIENCE, passes)


def published(world: World) -> bool:
    found = world.execute(f"SELECT tablename FROM pg_publication_tables WHERE pubname = '{world.source.slot}'")
    return (world.second,) in found


@pytest.mark.faults
def test_a_capture_that_dies_while_it_takes_a_table_in_does_it_again(
    world: World, monkeypatch: pytest.MonkeyPatch, relaying: Callable[[CaptureSource], Callable[[], None]]
) -> None:
    """After the rows have arrived, and before that is remembered."""
    random = Random(8)  # noqa: S311 - which row changes, not a secret
    world.change(random)
    remember = slot.mark_delivered

    def dies(database: PostgresDatabase, source: CaptureSource, now: slot.Delivered) -> None:
        known = slot.delivered(database, source)
        if known is not None and known.awaited and not now.awaited:
            raise ConnectionAbortedError
        remember(database, source, now)

    with monkeypatch.context() as patched:
        patched.setattr(slot, "mark_delivered", dies)
        with pytest.raises(ConnectionAbortedError):
            Capture(PostgresDatabase(), KafkaBroker(), world.wider).run(lambda: False)
    assert slot.delivered(PostgresDatabase(), world.wider).awaited == (f"public.{world.second}",)  # type: ignore[union-attr]
    world.change(random)
    relaying(world.wider)
    agree(world)


def test_a_table_that_was_dropped_and_made_again_is_taken_in_again_while_the_capture_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, relaying: Callable[[CaptureSource], Callable[[], None]]
) -> None:
    monkeypatch.setattr("de_resources.capture.relay._PUBLICATION_SECONDS", 0.1)
    random = Random(9)  # noqa: S311 - which row changes, not a secret
    relaying(world.wider)
    world.change(random)
    agree(world)
    world.execute(
        f"DROP TABLE {world.second}; CREATE TABLE {world.second} (id int PRIMARY KEY, changes int NOT NULL);"
        f"ALTER TABLE {world.second} REPLICA IDENTITY FULL; INSERT INTO {world.second} VALUES (7, 7)"
    )

    def has_changed() -> bool:
        world.change(random)
        return published(world)

    until(has_changed)
    world.change(random)
    agree(world)
