"""Stateful Merger: partitions that build on each other, run again in the middle, against the same fold in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from de_resources.delta.crash_points import at
from de_resources.delta.log import TableLog
from de_resources.delta.maintenance import compact, vacuum
from de_resources.delta.merge import MergeRule, UnmergeableRows
from de_resources.delta.merge_state import MergeState, ReplayFirst
from de_resources.delta.stateful_merge import merge, read
from de_resources.delta.stateful_plan import StateGone, StateMoved, Turn, WouldUndo
from de_resources.delta.table import Stamp, Table, Written

pytestmark = pytest.mark.pattern("stateful_merger")

MakeTable = Callable[..., Table]
MakeStamp = Callable[..., Stamp]
Row = tuple[int | None, str, bool]

SCHEMA = "id long, text string, gone boolean"
RULE = MergeRule(("id",), deleted="gone")
DAYS = tuple(f"2024-01-{n:02}" for n in range(1, 11))


class History:
    """One table, what each day brings, and what a clean run of some days in order has to leave."""

    def __init__(self, spark: SparkSession, table: Table, stamp: MakeStamp) -> None:
        self.spark, self.table, self.stamp = spark, table, stamp
        self.days: dict[int, list[Row]] = {n: [(n, f"day {n}", False), (0, f"day {n}", False)] for n in range(1, 11)}

    def run(self, day: int, run: str | None = None, **turn: Any) -> Written:
        frame = self.spark.createDataFrame(self.days[day], SCHEMA).coalesce(1)
        return merge(
            self.spark,
            self.table,
            frame,
            self.stamp(run, DAYS[day - 1]),
            rule=RULE,
            turn=Turn(DAYS[day - 1], DAYS, **turn),
        )

    def fill(self, days: Iterable[int]) -> None:
        for day in days:
            assert self.run(day).details["stateful/taken_back"] == "not"

    def clean(self, days: Iterable[int]) -> list[Row]:
        """The rows after a clean run, without Spark."""
        rows: dict[int | None, Row] = {}
        for day in days:
            for row in self.days[day]:
                if row[0] in rows or not row[2]:
                    rows[row[0]] = row
        return sorted(rows.values(), key=repr)

    def rows(self) -> list[Row]:
        return sorted((tuple(r) for r in self.table.read(self.spark).collect()), key=repr)

    @property
    def log(self) -> TableLog:
        log = self.table.log()
        assert log is not None
        return log

    @property
    def operations(self) -> list[str]:
        """Oldest first."""
        return [c.operation for c in self.log.commits(1000)][::-1]

    @property
    def state(self) -> MergeState:
        return MergeState.of(self.log, "silver/rows")

    def keys(self) -> list[str]:
        return [e.key for e in self.state.entries]


@pytest.fixture
def history(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> History:
    return History(spark, table(), stamp)


def _fail(_: str) -> None:
    raise ConnectionError("the engine went away")


def test_a_rerun_of_day_three_and_the_days_after_it_equal_one_clean_run_compactions_in_between(
    history: History,
) -> None:
    """Random inserts, updates and soft deletes; day 3 is corrected before it is run again."""
    chance = random.Random(7)  # noqa: S311 - the same days in every run
    for day in history.days:
        # Days of new ids only add a file, and so leave something to compact.
        ids = range(100 * day, 100 * day + 3) if day in (2, 5, 10) else chance.sample(range(12), 5)
        history.days[day] = [(i, f"{day}/{i}", chance.random() < 0.3) for i in ids]
    for day in history.days:
        history.run(day)
        if day in (2, 5, 10):
            compact(history.spark, history.table, history.stamp())
    assert history.rows() == history.clean(range(1, 11))
    assert history.operations.count("OPTIMIZE") == 3
    assert not {"RESTORE", "DELETE"} & set(history.operations), "a normal run restores nothing"
    assert history.keys() == list(DAYS)

    history.days[3] = [(1, "corrected", False), (99, "new", False)]
    written = history.run(3)
    assert written.details["stateful/replay"] == list(DAYS[3:])
    assert written.details["stateful/after"] == DAYS[1]
    assert history.rows() == history.clean([1, 2, 3])
    history.fill(range(4, 11))
    assert history.rows() == history.clean(range(1, 11))
    assert history.state.replay == ()
    assert history.operations.count("RESTORE") == 1


def test_the_first_partition_clears_the_table_and_marks_the_rest(history: History) -> None:
    history.fill([1, 2, 3])
    history.days[1] = [(50, "corrected", False)]
    written = history.run(1)
    assert (written.details["stateful/taken_back"], written.details["stateful/after"]) == ("cleared", "nothing")
    assert history.rows() == [(50, "corrected", False)]
    assert history.state.replay == DAYS[1:3]
    history.fill([2, 3])
    assert history.rows() == history.clean([1, 2, 3])


def test_later_partitions_wait_for_the_replay_of_earlier_ones_and_a_gap_in_the_calendar_is_none(
    history: History,
) -> None:
    history.fill([1, 2, 4])  # nobody ever ran day 3, and nobody waits for it
    history.run(2)
    before = history.log.version
    with pytest.raises(ReplayFirst, match=f"up to `{DAYS[6]}` are not in it again: `{DAYS[3]}`") as caught:
        history.run(7)
    assert caught.value.missing == (DAYS[3],)
    assert history.log.version == before
    history.fill([4])
    assert history.rows() == history.clean([1, 2, 4])
    late = history.run(3)  # for the first time, though a later day is in
    assert late.details["stateful/replay"] == [DAYS[3]]
    history.fill([4])
    assert history.rows() == history.clean([1, 2, 3, 4])


def test_a_vacuumed_version_is_refused_before_anything_changes_and_the_first_partition_is_the_way_out(
    history: History,
) -> None:
    history.fill([1, 2, 3])
    vacuum(history.spark, history.table, history.stamp(), retention=timedelta())
    assert history.operations[-1] == "VACUUM END"
    before = history.log.version
    with pytest.raises(
        StateGone, match=r"version 1, and \d of its \d files were vacuumed.*Nothing was changed"
    ) as caught:
        history.run(2)
    assert caught.value.first == DAYS[0]
    with pytest.raises(StateGone, match="vacuumed"):
        read(history.spark, history.table, "silver/rows", [DAYS[0]], DAYS)
    assert history.log.version == before
    assert history.rows() == history.clean([1, 2, 3])
    history.fill([4])  # a normal run needs no old version
    history.run(1)
    history.fill([2, 3, 4])
    assert history.rows() == history.clean([1, 2, 3, 4])


@pytest.mark.faults
@pytest.mark.parametrize("first", [1, 2], ids=["after clearing", "after restoring"])
def test_a_crash_between_taking_back_and_merging_heals_by_running_again(history: History, first: int) -> None:
    history.fill([1, 2, 3])
    with at("after_commit", _fail), pytest.raises(ConnectionError):
        history.run(first)
    assert history.operations[-1] in ("RESTORE", "DELETE")
    assert history.rows() == history.clean(range(1, first)), "the partition and all later ones are out"
    assert history.state.replay == DAYS[first - 1 : 3]
    with pytest.raises(ReplayFirst):
        history.run(3)
    history.fill(range(first, 4))
    assert history.rows() == history.clean([1, 2, 3])
    assert history.state.replay == ()


def test_a_day_that_changes_nothing_has_its_place_in_the_order(history: History) -> None:
    history.days[2] = history.days[1]
    history.days[3] = []
    history.fill([1])
    before = {f for f in history.log.files().column("path").to_pylist()}
    history.fill([2, 3])
    assert {f for f in history.log.files().column("path").to_pylist()} == before, "no file was written"
    history.fill([4])
    assert history.keys() == list(DAYS[:4])
    assert history.run(3).details["stateful/replay"] == [DAYS[3]]
    history.days[2] = [(1, "it changes after all", False)]
    assert history.run(2).details["stateful/replay"] == [DAYS[2], DAYS[3]]
    history.fill([3, 4])
    assert history.rows() == history.clean([1, 2, 3, 4])


def test_what_cannot_be_merged_takes_nothing_back(history: History) -> None:
    history.fill([1, 2, 3])
    before = history.log.version
    history.days[2] = [(None, "no key", False)]
    with pytest.raises(UnmergeableRows):
        history.run(2)
    assert history.log.version == before


def test_what_others_changed_is_not_undone_unseen(history: History) -> None:
    target = history.table.sql
    history.fill([1])
    history.spark.sql(f"DELETE FROM {target} WHERE id = 1")
    history.fill([2, 3])
    history.spark.sql(f"DELETE FROM {target} WHERE id = 2")
    erased = history.log.version
    with pytest.raises(WouldUndo, match=f"version {erased} \\(DELETE\\).*`de/stateful_undo: {erased}`"):
        history.run(2)
    assert history.log.version == erased
    history.run(2, undo=erased)
    history.fill([3])
    assert history.rows() == [r for r in history.clean([1, 2, 3]) if r[0] != 1], "what lies before it stays"
    with pytest.raises(WouldUndo):
        history.run(1)


def test_a_restore_by_hand_and_the_tables_settings_are_understood(history: History) -> None:
    history.fill([1, 2, 3])
    history.spark.sql(f"RESTORE TABLE {history.table.sql} TO VERSION AS OF {history.state.entries[0].version}")
    assert (history.keys(), history.state.replay) == ([DAYS[0]], DAYS[1:3])
    history.fill([2])
    history.table.set_properties(history.spark, {"delta.deletedFileRetentionDuration": "interval 30 days"})
    history.run(2)
    assert history.table.properties_now()["delta.deletedFileRetentionDuration"] == "interval 30 days"
    assert history.rows() == history.clean([1, 2])


def test_a_log_that_no_longer_reaches_back_refuses_old_partitions_and_takes_new_ones(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    history = History(spark, table(properties={"delta.checkpointInterval": "2"}), stamp)
    history.fill([1, 2, 3])
    log = Path(history.table.uri) / "_delta_log"
    for version in range(2):
        (log / f"{version:020}.json").unlink()
    assert not history.state.complete
    history.fill([4])
    before = history.log.version
    with pytest.raises(StateGone, match="the log no longer tells which partitions"):
        history.run(2)
    assert history.log.version == before
    history.run(1)
    assert history.state.complete
    history.fill([2])
    assert history.rows() == history.clean([1, 2])


def test_a_retry_of_the_same_run_is_skipped_and_a_new_run_is_not(history: History) -> None:
    history.run(1, run="a")
    version = history.run(2, run="b").version
    assert "already committed" in str(history.run(2, run="b").skipped)
    assert history.log.version == version
    history.run(2, run="c")
    assert history.operations[-2:] == ["RESTORE", "MERGE"]


def test_a_run_that_computed_with_a_state_that_was_replayed_since_is_refused(history: History) -> None:
    columns = history.spark.createDataFrame([], SCHEMA).schema
    nothing, basis = read(history.spark, history.table, "silver/rows", [DAYS[0]], DAYS, if_missing=columns)
    assert nothing.collect() == []
    history.fill([1])
    with pytest.raises(StateMoved):
        history.run(2, basis=basis)
    _, basis = read(history.spark, history.table, "silver/rows", [DAYS[0]], DAYS)
    history.run(1)
    before = history.log.version
    with pytest.raises(StateMoved, match=f"after `{DAYS[0]}`"):
        history.run(2, basis=basis)
    assert history.log.version == before
    frame, basis = read(history.spark, history.table, "silver/rows", [DAYS[0]], DAYS)
    history.run(2, basis=basis)
    assert sorted((tuple(r) for r in frame.collect()), key=repr) == history.clean([1]), "computed late, it stays"


def test_the_table_is_read_as_it_was_after_a_partition(history: History) -> None:
    def state_after(*days: int) -> list[Row]:
        keys = [DAYS[day - 1] for day in days]
        frame, _ = read(history.spark, history.table, "silver/rows", keys, DAYS)
        return sorted((tuple(r) for r in frame.collect()), key=repr)

    history.fill([2, 3])
    compact(history.spark, history.table, history.stamp())
    history.fill([5])
    assert state_after() == state_after(1) == []
    assert state_after(3) == state_after(4) == history.clean([2, 3])
    assert state_after(2, 3, 5) == state_after(10) == history.clean([2, 3, 5])
    history.run(2)
    with pytest.raises(ReplayFirst):
        state_after(4)
