"""Tables by week behind one view, in a real PostgreSQL: replaced as a whole, frozen, widened, and read meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
import warm_process
from waiting import PATIENCE, until
from weekly_world import BRIEF, COLUMNS, FIRST, SECOND, THIRD, World, rows_of

from de_resources.delta.write.crash_points import at
from de_resources.errors import TransientError
from de_resources.iso_week import Week
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import LoadRefused
from de_resources.postgres.weekly import (
    ColumnsNotAdded,
    ColumnsNotOptional,
    ColumnTypeDiffers,
    LockWait,
    RowsOutsideWeek,
    ViewBusy,
    WeekFrozen,
    WeekNotFrozen,
    add_columns,
    freeze,
    thaw,
)

pytestmark = [pytest.mark.services, pytest.mark.pattern("fast_metadata_cleaner")]

DEADLINE = PATIENCE


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    made = World(f"weekly_{uuid4().hex[:8]}")
    yield made
    made.query("DROP SCHEMA IF EXISTS {} CASCADE")


def test_a_week_is_replaced_as_a_table_and_no_other_is_touched(world: World) -> None:
    done = world.write(SECOND, 1)
    assert (done.table, done.rows, done.attempts) == ("clicks_2024w42", 14, 1)
    world.write(FIRST, 1, run="first")
    before = world.seen()
    assert before == [(FIRST.start, 14, 1, 1), (SECOND.start, 14, 1, 1)]
    second = world.query("SELECT '{}.clicks_2024w42'::regclass::oid")

    world.write(FIRST, 1, run="first")
    assert world.seen() == before, "a rerun leaves the same rows"
    world.write(FIRST, 2, 5, run="again")
    assert world.seen() == [(FIRST.start, 5, 2, 2), before[1]]
    assert world.query("SELECT '{}.clicks_2024w42'::regclass::oid") == second
    assert world.query("SELECT week, part, rows, run_id FROM {}.clicks_weeks ORDER BY 1") == [
        (FIRST.start, "clicks_2024w41", 5, "again"),
        (SECOND.start, "clicks_2024w42", 14, "run"),
    ]
    assert world.relations() == ["clicks_2024w41", "clicks_2024w42", "clicks_template", "clicks_weeks"]

    world.write(FIRST, 3, 0)
    assert world.seen() == before[1:], "no rows clean the week"


def test_the_first_of_january_lies_in_the_week_of_the_old_year(world: World) -> None:
    last, first = Week.of(date(2023, 1, 1)), Week.of(date(2023, 1, 2))
    world.write(first, 1, 7)
    world.write(last, 1, 7)
    world.write(last, 2, 7)
    assert [t for t in world.relations() if "w" in t.removeprefix("clicks_")[4:5]] == [
        "clicks_2022w52",
        "clicks_2023w01",
    ]
    assert world.query("SELECT version, count(*) FROM {}.clicks WHERE day = '2023-01-01' GROUP BY 1") == [(2, 1)]
    assert world.query("SELECT count(*), count(DISTINCT day) FROM {}.clicks") == [(14, 14)]
    with pytest.raises(RowsOutsideWeek, match="does not lie in 2023-W01"):
        world.write_rows(first, [(date(2023, 1, 1), 1, 1)])


def test_the_clean_writes_no_more_for_many_rows_than_for_a_few(world: World) -> None:
    world.write(SECOND, 1, 1)
    written = {}
    for count in (10, 40_000):
        world.write(FIRST, 1, count)
        written[count] = _wal(world, lambda: world.write(FIRST, 2, 0))
    world.write(FIRST, 1, 40_000)
    deleted = _wal(world, lambda: world.query("DELETE FROM {}.clicks_2024w41"))
    # Half of what DELETE logs is generous to whatever else the server writes in that moment.
    assert written[40_000] < deleted / 2
    assert abs(written[40_000] - written[10]) < deleted / 2


def _wal(world: World, work: Any) -> int:
    (before,) = world.query("SELECT pg_current_wal_insert_lsn()")
    work()
    ((done,),) = world.query(f"SELECT pg_current_wal_insert_lsn() - '{before[0]}'::pg_lsn")
    return int(done)


def test_a_reader_of_one_week_opens_its_table_only_and_weeks_and_columns_have_an_order(world: World) -> None:
    for week in (THIRD, FIRST, SECOND):
        world.write(week, 1)
    plan = "\n".join(line for (line,) in world.query("EXPLAIN SELECT * FROM {}.clicks WHERE day = '2024-10-15'"))
    assert "clicks_2024w42" in plan
    assert "clicks_2024w41" not in plan
    assert "clicks_2024w43" not in plan
    ((text,),) = world.query("SELECT pg_get_viewdef('{}.clicks'::regclass)")
    tables = [text.find(f"clicks_2024w{n}") for n in (41, 42, 43)]
    assert tables == sorted(tables)
    assert "*" not in text


@pytest.mark.faults
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_readers_never_fail_and_never_see_a_hole_or_two_versions(
    world: World, beside: ThreadPoolExecutor, isolation: str
) -> None:
    """Readers poll while one week is replaced again and again, another is new, and weeks are frozen and thawed."""
    world.write(FIRST, 0, 200)
    world.write(SECOND, 0, 50)
    over = Event()
    readers = [beside.submit(_poll, world, isolation, over, prepared) for prepared in (False, True)]
    try:
        for version in range(1, 11):
            world.write(FIRST, version, 200)
        freeze(PostgresDatabase(), world.view, SECOND)
        thaw(PostgresDatabase(), world.view, FIRST)
        add_columns(PostgresDatabase(), replace(world, columns=(*COLUMNS, ("more", "text"))).view)
        world.write(FIRST, 11, 200)
    finally:
        over.set()
    for reader in readers:
        seen = reader.result(DEADLINE)
        assert len(seen) > 5, "it was read meanwhile"
        versions = [least for (_, _, least, _), _ in seen]
        assert versions == sorted(versions)
        for first, second in seen:
            assert first == (FIRST.start, 200, first[2], first[2])
            assert second == (SECOND.start, 50, 0, 0)


def _poll(world: World, isolation: str, over: Event, prepared: bool) -> list[tuple[Any, ...]]:
    question = (
        "SELECT date_trunc('week', day)::date, count(*), min(version), max(version) "
        f"FROM {world.schema}.clicks GROUP BY 1 ORDER BY 1"
    )
    seen = []
    with closing(PostgresDatabase().open()) as session:
        session.set_session(isolation_level=isolation)
        cursor = session.cursor()
        cursor.execute(f"PREPARE poll AS {question}")
        session.commit()
        while not over.is_set():
            # The transaction has its snapshot before it comes to the view.
            cursor.execute("SELECT 1")
            cursor.execute("EXECUTE poll" if prepared else question)
            seen.append(tuple(cursor.fetchall()))
            session.commit()
    return seen


@pytest.mark.faults
def test_a_transaction_with_an_older_snapshot_finds_the_new_rows_and_no_empty_week(world: World) -> None:
    world.write(FIRST, 1)
    world.write(SECOND, 1)
    with closing(PostgresDatabase().open()) as session:
        session.set_session(isolation_level="REPEATABLE READ")
        cursor = session.cursor()
        cursor.execute("SELECT count(*) FROM pg_class")  # the snapshot of all that follows
        world.write(FIRST, 2)
        freeze(PostgresDatabase(), world.view, SECOND)
        cursor.execute(f"SELECT count(*), sum(version) FROM {world.schema}.clicks")
        assert cursor.fetchall() == [(28, 42)]


@pytest.mark.faults
def test_a_reader_that_stays_holds_up_the_swap_and_neither_the_other_readers_nor_their_rows(
    world: World, beside: ThreadPoolExecutor
) -> None:
    world.write(FIRST, 1)
    with closing(PostgresDatabase().open()) as session, session.cursor() as idle:
        idle.execute(f"SELECT count(*) FROM {world.schema}.clicks")
        with pytest.raises(ViewBusy, match=f"process {session.info.backend_pid} of the server.*idle in") as busy:
            world.write(FIRST, 2, patience=BRIEF)
        assert isinstance(busy.value, TransientError)
        assert world.relations() == ["clicks_2024w41", "clicks_template", "clicks_weeks"]

        waiting = beside.submit(world.write, FIRST, 3, patience=replace(BRIEF, total_seconds=DEADLINE))
        until_one_has_given_up(world)
        # Read while the swap tries: each of these has to come through.
        assert {tuple(world.seen()) for _ in range(20)} == {((FIRST.start, 14, 1, 1),)}
        assert not waiting.done()
        session.rollback()
        assert waiting.result(DEADLINE).attempts > 1
    assert world.seen() == [(FIRST.start, 14, 3, 3)]


def until_one_has_given_up(world: World) -> None:
    """Until an attempt to swap was seen waiting for the view's readers, and is over."""
    waits = (
        "SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE NOT l.granted AND n.nspname = '{}'"
    )
    until(lambda: world.query(waits), "nobody tries to swap", pause=0)
    until(lambda: not world.query(waits), "the attempt to swap is not over")


@pytest.mark.faults
def test_of_two_runs_of_one_week_the_second_waits_and_another_week_does_not(
    world: World, beside: ThreadPoolExecutor
) -> None:
    world.write(FIRST, 1)
    reached, release = Event(), Event()

    def hold(_: str) -> None:
        if not reached.is_set():
            reached.set()
            assert release.wait(DEADLINE)

    with at("before_commit", hold):
        first = beside.submit(world.write, FIRST, 2, 20)
        assert reached.wait(DEADLINE)
        world.write(SECOND, 9)  # would never return if it waited
        second = beside.submit(world.write, FIRST, 3, 30)
        release.set()
        for done in (first, second):
            done.result(DEADLINE)
    assert world.seen() == [(FIRST.start, 30, 3, 3), (SECOND.start, 14, 9, 9)]
    assert world.relations() == ["clicks_2024w41", "clicks_2024w42", "clicks_template", "clicks_weeks"]


@pytest.mark.faults
def test_first_runs_that_come_together_create_once_and_all_weeks_are_in_the_view(
    world: World, beside: ThreadPoolExecutor
) -> None:
    weeks = [Week.of(date(2024, month, 15)) for month in range(1, 9)]
    for done in [beside.submit(world.write, week, 1, 7) for week in [*weeks, *weeks]]:
        done.result(DEADLINE)
    assert world.seen() == [(week.start, 7, 1, 1) for week in weeks]
    assert world.relations("v") == ["clicks"]


def test_rows_that_are_refused_leave_the_week_as_it_was_and_are_not_quoted(world: World) -> None:
    world.write(FIRST, 1)
    before = (world.seen(), world.relations())
    with pytest.raises(RowsOutsideWeek, match=r"a `day` that does not lie in 2024-W41.*Nothing was written"):
        world.write_rows(FIRST, [*rows_of(FIRST, 2, 3), (SECOND.start, 1, 2)])
    with pytest.raises(LoadRefused, match="could not create unique index"):
        world.write_rows(FIRST, rows_of(FIRST, 2, 3) * 2)
    with pytest.raises(LoadRefused, match="InvalidTextRepresentation") as refused:
        world.write_rows(FIRST, [(FIRST.start, "jane@example.org", 1)])
    assert "jane" not in str(refused.value)
    assert (world.seen(), world.relations()) == before


def test_what_the_rows_themselves_raise_comes_out_and_leaves_the_week_as_it_was(world: World) -> None:
    world.write(FIRST, 1)

    class EngineGone(TransientError):
        pass

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from rows_of(FIRST, 2, 5000)
        raise EngineGone

    with pytest.raises(EngineGone):
        world.write_rows(FIRST, rows())
    assert world.seen() == [(FIRST.start, 14, 1, 1)]


def write_again(schema: str) -> None:
    """In a process of its own."""
    World(schema).write(FIRST, 2)


@pytest.mark.faults
@pytest.mark.parametrize(("point", "version"), [("before_commit", 1), ("after_commit", 2)])
def test_kill_9_leaves_the_old_week_or_the_new_one_and_no_table_beside_it(
    world: World, point: str, version: int
) -> None:
    world.write(FIRST, 1)
    warm_process.dies("test_weekly_tables:write_again", world.schema, DE_KILL_AT=point)

    assert world.seen() == [(FIRST.start, 14, version, version)]
    world.write(FIRST, 2)
    assert world.seen() == [(FIRST.start, 14, 2, 2)]
    assert world.relations() == ["clicks_2024w41", "clicks_template", "clicks_weeks"]


def test_closed_weeks_become_one_table_with_the_same_rows_and_one_can_come_back(world: World) -> None:
    database = PostgresDatabase()
    fourth = Week.of(date(2024, 10, 28))
    for version, week in enumerate((FIRST, THIRD, fourth), start=1):
        world.write(week, version)
    before = world.seen()

    moved = freeze(database, world.view, fourth)
    assert (moved.weeks, moved.rows) == ((FIRST, THIRD), 28)
    assert world.seen() == before
    assert world.relations() == ["clicks_2024w44", "clicks_frozen", "clicks_template", "clicks_weeks"]
    again = freeze(database, world.view, fourth)
    assert (again.weeks, again.rows) == ((), 0)

    with pytest.raises(WeekFrozen, match=r"2024-W41 of .* is frozen.*`thaw_week` for `2024-10-07`"):
        world.write_rows(FIRST, _never())
    world.write(SECOND, 9)  # a week between the frozen ones, which was never loaded
    with pytest.raises(WeekNotFrozen, match="2024-W42"):
        thaw(database, world.view, SECOND)

    thaw(database, world.view, FIRST)
    assert "clicks_2024w41" in world.relations()
    world.write(FIRST, 7, 3)
    expected = [(FIRST.start, 3, 7, 7), (SECOND.start, 14, 9, 9), *before[1:]]
    assert world.seen() == expected
    assert freeze(database, world.view, fourth).weeks == (FIRST, SECOND)
    assert world.seen() == expected
    thaw(database, world.view, THIRD)
    assert world.seen() == expected
    assert world.query("SELECT week, rows, run_id FROM {}.clicks_weeks ORDER BY 1")[0] == (FIRST.start, 3, "run")


def _never() -> Iterator[tuple[Any, ...]]:
    raise AssertionError("no row is asked for")
    yield ()


def test_a_frozen_table_that_becomes_empty_is_gone(world: World) -> None:
    world.write(FIRST, 1)
    freeze(PostgresDatabase(), world.view, SECOND)
    thaw(PostgresDatabase(), world.view, FIRST)
    assert world.relations() == ["clicks_2024w41", "clicks_template", "clicks_weeks"]
    assert world.seen() == [(FIRST.start, 14, 1, 1)]


@pytest.mark.faults
def test_a_freeze_that_is_broken_off_leaves_all_as_it_was(world: World) -> None:
    world.write(FIRST, 1)

    def cut(_: str) -> None:
        world.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE '%{}%' AND pid <> pg_backend_pid() AND usename = current_user"
        )

    with at("before_commit", cut), pytest.raises(TransientError, match="interrupted"):
        freeze(PostgresDatabase(), world.view, SECOND)
    assert world.seen() == [(FIRST.start, 14, 1, 1)]
    assert world.relations() == ["clicks_2024w41", "clicks_template", "clicks_weeks"]


def test_a_new_column_comes_to_all_tables_by_a_step_of_its_own(world: World) -> None:
    database = PostgresDatabase()
    for week in (FIRST, SECOND, THIRD):
        world.write(week, 1)
    freeze(database, world.view, SECOND)
    wider = replace(world, columns=(COLUMNS[0], ("mark", "text"), *COLUMNS[1:]))

    with pytest.raises(ColumnsNotAdded, match=r"the column `mark`.*run the job `add_week_columns`"):
        wider.write_rows(SECOND, _never())
    assert add_columns(database, wider.view) == ("mark",)
    assert add_columns(database, wider.view) == ()
    assert _columns(world, "clicks") == ["day", "id", "version", "mark"], "new ones are the last, for the readers' sake"
    assert wider.seen() == [(week.start, 14, 1, 1) for week in (FIRST, SECOND, THIRD)]

    wider.write_rows(SECOND, [(SECOND.start, "m", 1, 2)])
    assert wider.query("SELECT mark, id, version FROM {}.clicks WHERE mark IS NOT NULL") == [("m", 1, 2)]
    thaw(database, wider.view, FIRST)
    world.write(THIRD, 3)  # the code of before, which knows nothing of it
    assert wider.query("SELECT count(*), count(mark) FROM {}.clicks WHERE version = 3") == [(14, 0)]


def test_columns_are_taken_by_name_where_a_table_has_them_in_another_order(world: World) -> None:
    world.write(FIRST, 1)
    world.query("ALTER TABLE {0}.clicks_2024w41 ADD COLUMN b text, ADD COLUMN a text")
    wider = replace(world, columns=(*COLUMNS, ("a", "text"), ("b", "text")))
    add_columns(PostgresDatabase(), wider.view)
    world.query("UPDATE {0}.clicks_2024w41 SET a = 'is a', b = 'is b'")
    wider.write_rows(SECOND, [(SECOND.start, 1, 1, "is a", "is b")])
    assert _columns(world, "clicks")[-2:] == ["a", "b"]
    assert _columns(world, "clicks_2024w41")[-2:] == ["b", "a"]
    assert world.query("SELECT DISTINCT a, b FROM {}.clicks") == [("is a", "is b")]


def test_columns_that_cannot_be_added_are_named_and_nothing_is_changed(world: World) -> None:
    world.write(FIRST, 1)
    required = replace(world, columns=(*COLUMNS, ("mark", "text NOT NULL")))
    with pytest.raises(ColumnsNotOptional, match=r"`mark` of .* cannot be added"):
        add_columns(PostgresDatabase(), required.view)
    retyped = replace(world, columns=(*COLUMNS[:2], ("version", "text")))
    with pytest.raises(ColumnTypeDiffers, match=r"`version` of .* is declared as text, and its tables have integer"):
        retyped.write_rows(FIRST, _never())
    assert _columns(world, "clicks") == ["day", "id", "version"]


def _columns(world: World, relation: str) -> list[str]:
    found = world.query(
        f"SELECT attname FROM pg_attribute WHERE attrelid = '{{}}.{relation}'::regclass AND attnum > 0 ORDER BY attnum"
    )
    return [name for (name,) in found]


def test_what_readers_were_granted_outlives_a_replacement(world: World) -> None:
    world.write(FIRST, 1)
    world.query("GRANT SELECT ON {}.clicks TO PUBLIC")
    world.write(FIRST, 2)
    assert world.query("SELECT has_table_privilege('public', '{}.clicks', 'SELECT')") == [(True,)]
    with pytest.raises(psycopg2.Error):
        world.query("DROP TABLE {}.clicks_2024w41")  # the view holds on to it


def test_a_view_of_somebody_else_on_the_table_itself_is_said_and_not_dropped(world: World) -> None:
    world.write(FIRST, 1)
    world.query("CREATE VIEW {0}.theirs AS SELECT id FROM {0}.clicks_2024w41")
    with pytest.raises(LoadRefused, match="other objects depend on it"):
        world.write(FIRST, 2)
    assert world.seen() == [(FIRST.start, 14, 1, 1)]


def test_patience_ends_before_the_server_looks_for_deadlocks() -> None:
    assert LockWait().wait_seconds < 1
