"""Stateful Merger on a table: what the plans of `test_stateful_plan` do to rows, files and commits of the engine.

Every test begins with a copy of one table that holds three days.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark.sql.types as T
import pytest
from deltalake import DeltaTable
from other_reader import rows_of
from pyspark.sql import SparkSession
from seeding import named, restored, seed_day

from de_resources.delta.log import TableLog
from de_resources.delta.maintenance import compact
from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.merge import MergeRule, UnmergeableRows
from de_resources.delta.write.merge_state import MergeState, ReplayFirst
from de_resources.delta.write.stateful_merge import merge, read
from de_resources.delta.write.stateful_plan import PartitionRun, ReadState, StateGone, StateMoved, WouldUndo

pytestmark = pytest.mark.pattern("stateful_merger")

MakeTable = Callable[..., Table]
MakeStamp = Callable[..., CommitInfo]
Row = tuple[int | None, str, bool]

WRITER = "silver/rows"
SCHEMA = "id long, text string, gone boolean"
RULE = MergeRule(("id",), deleted="gone")
DAYS = tuple(f"2024-01-{n:02}" for n in range(1, 7))
BROUGHT: dict[int, list[Row]] = {
    1: [(1, "day 1", False), (0, "day 1", False), (7, "day 1", False)],
    2: [(2, "day 2", False), (0, "day 2", False), (7, "day 2", True), (8, "never here", True)],
    3: [(3, "day 3", False), (9, "day 3", False)],  # only a new file, which leaves something to compact
    4: [(4, "day 4", False), (0, "day 4", False), (2, "day 4", True)],
}


class History:
    """One table, what each day brings, and what a clean run of some days in order has to leave."""

    def __init__(self, spark: SparkSession, table: Table, stamp: MakeStamp) -> None:
        self.spark, self.table, self.stamp = spark, table, stamp
        self.days = dict(BROUGHT)

    def run(self, day: int, run: str | None = None, **turn: Any) -> Written:
        frame = self.spark.createDataFrame(self.days[day], SCHEMA).coalesce(1)
        return merge(
            self.spark,
            self.table,
            frame,
            self.stamp(run, DAYS[day - 1]),
            rule=RULE,
            turn=PartitionRun(DAYS[day - 1], DAYS, **turn),
        )

    def fill(self, days: Iterable[int]) -> None:
        for day in days:
            assert self.run(day).details["stateful/taken_back"] == "not"

    def seed(self, day: int, rows: list[Row], **how: Any) -> None:
        """What a first run of the day leaves, written without the engine."""
        columns = T.StructType.fromDDL(SCHEMA)
        seed_day(self.table.uri, named(rows, columns), columns, writer=WRITER, key=DAYS[day - 1], **how)

    def clean(self, days: Iterable[int]) -> list[Row]:
        """The rows after a clean run, without Spark."""
        rows: dict[int | None, Row] = {}
        for day in days:
            for row in self.days[day]:
                if row[0] in rows or not row[2]:
                    rows[row[0]] = row
        return sorted(rows.values(), key=repr)

    def rows(self) -> list[Row]:
        return rows_of(self.table.uri)

    def after(self, *days: int) -> list[Row]:
        """The rows that a reader of these days gets."""
        frame, _ = read(self.spark, self.table, WRITER, [DAYS[day - 1] for day in days], DAYS)
        return sorted((tuple(r) for r in frame.collect()), key=repr)

    @property
    def log(self) -> TableLog:
        log = self.table.log()
        assert log is not None
        return log

    @property
    def files(self) -> set[str]:
        return set(self.log.files().column("path").to_pylist())

    @property
    def operations(self) -> list[str]:
        """Oldest first."""
        return [c.operation for c in self.log.commits(1000)][::-1]

    @property
    def state(self) -> MergeState:
        return MergeState.of(self.log, WRITER)

    def keys(self) -> list[str]:
        return [e.key for e in self.state.entries]


@pytest.fixture(scope="module")
def three_days(spark: SparkSession, stamp: MakeStamp, tmp_path_factory: pytest.TempPathFactory) -> History:
    """The table from which all others are copied; runs of the platform make such days in `graph/test_stateful_merger.py`."""
    history = History(spark, Table("silver.rows", str(tmp_path_factory.mktemp("three_days") / "rows")), stamp)
    for day in (1, 2):
        history.seed(day, history.clean(range(1, day + 1)), mode="overwrite")
    history.seed(3, history.days[3])  # only adds a file, which leaves something to compact
    assert history.rows() == history.clean([1, 2, 3])
    assert history.keys() == list(DAYS[:3])
    return history


@pytest.fixture
def history(three_days: History, table: MakeTable, stamp: MakeStamp) -> History:
    copied = table()
    shutil.copytree(three_days.table.uri, copied.uri)
    return History(three_days.spark, copied, stamp)


def _fail(_: str) -> None:
    raise ConnectionError("the engine went away")


def test_a_rerun_of_day_three_and_the_days_after_it_equal_one_clean_run_compactions_in_between(
    history: History,
) -> None:
    """Inserts, updates and soft deletes; day 3 is corrected before it is run again."""
    compact(history.spark, history.table, history.stamp())
    fourth = history.run(4, run="a")
    retry = history.run(4, run="a")
    assert "already committed" in str(retry.skipped)
    assert retry.version == fourth.version == history.log.version
    assert history.rows() == history.clean([1, 2, 3, 4])
    assert history.keys() == list(DAYS[:4])
    assert history.after() == []
    assert [history.after(n) for n in (1, 3)] == [history.clean([1]), history.clean([1, 2, 3])]
    assert history.after(2, 6) == history.clean([1, 2, 3, 4]), "what was asked for last counts"

    history.days[3] = [(1, "corrected", False), (99, "new", False)]
    written = history.run(3)
    assert written.details == {
        "slice": DAYS[2],
        "stateful/after": DAYS[1],
        "stateful/taken_back": f"to version {history.state.entries[1].version}",
        "stateful/replay": [DAYS[3]],
    }
    assert history.rows() == history.clean([1, 2, 3])
    with pytest.raises(ReplayFirst):
        history.after(4)
    history.fill([4])
    assert history.rows() == history.clean([1, 2, 3, 4])
    assert history.state.replay == ()
    assert history.operations[3:] == ["OPTIMIZE", "MERGE", "RESTORE", "MERGE", "MERGE"]


@pytest.mark.faults
def test_a_crash_between_clearing_and_merging_heals_by_running_again(history: History) -> None:
    dies_behind_taking_back_and_heals(history, 1)


@pytest.mark.faults
def test_what_others_changed_is_not_undone_unseen_and_a_crash_behind_the_restore_heals_by_running_again(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("de_resources.delta.maintenance.restore._restore", restored)
    DeltaTable(history.table.uri).delete("id = 2")
    erased = history.log.version
    with pytest.raises(WouldUndo, match=f"version {erased} \\(DELETE\\).*`de/stateful_undo: {erased}`"):
        history.run(2)
    assert history.log.version == erased
    dies_behind_taking_back_and_heals(history, 2, undo=erased)


def dies_behind_taking_back_and_heals(history: History, first: int, **turn: Any) -> None:
    with at("after_commit", _fail), pytest.raises(ConnectionError):
        history.run(first, **turn)
    assert history.operations[-1] == {1: "DELETE", 2: "RESTORE"}[first]
    assert history.rows() == history.clean(range(1, first)), "the partition and all later ones are out"
    assert history.state.replay == DAYS[first - 1 : 3]
    with pytest.raises(ReplayFirst):
        history.run(3)
    history.fill([first])
    assert history.rows() == history.clean(range(1, first + 1))
    assert history.state.replay == DAYS[first:3]


def test_a_vacuumed_version_is_refused_before_anything_changes_and_the_first_partition_is_the_way_out(
    history: History,
) -> None:
    # By another engine, which makes the same two commits of it; the platform's own: test_maintenance.py.
    DeltaTable(history.table.uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert history.operations[-2:] == ["VACUUM START", "VACUUM END"]
    before = history.log.version
    with pytest.raises(
        StateGone, match=r"version 0, and \d of its \d files were vacuumed.*Nothing was changed"
    ) as caught:
        history.run(2)
    assert caught.value.first == DAYS[0]
    with pytest.raises(StateGone, match="vacuumed"):
        history.after(1)
    assert history.log.version == before
    assert history.rows() == history.clean([1, 2, 3])
    history.days[1] = [(50, "corrected", False)]
    cleared = history.run(1).details
    assert (cleared["stateful/taken_back"], cleared["stateful/after"]) == ("cleared", "nothing")
    assert history.rows() == [(50, "corrected", False)]
    assert history.state.replay == DAYS[1:3]


def test_a_day_that_changes_nothing_has_its_place_in_the_order(history: History) -> None:
    history.days |= {4: history.days[3], 5: []}
    before = history.files
    history.fill([4, 5])
    assert history.files == before, "no file was written"
    assert history.keys() == list(DAYS[:5])
    history.days[4] = [(1, "it changes after all", False)]
    assert history.run(4).details["stateful/replay"] == [DAYS[4]]
    assert history.rows() == history.clean([1, 2, 3, 4])


def test_what_cannot_be_merged_takes_nothing_back(history: History) -> None:
    before = history.log.version
    history.days[2] = [(None, "no key", False)]
    with pytest.raises(UnmergeableRows):
        history.run(2)
    assert history.log.version == before


def test_a_day_that_says_other_things_under_a_days_order_is_refused_and_a_day_may_correct_itself(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    """A rerun is compared with the rows below its own day, so that what it said before is no contradiction."""
    ordered = table()

    def run(day: int, *rows: tuple[int, int, str]) -> Written:
        frame = spark.createDataFrame(list(rows), "id int, seq int, text string").coalesce(1)
        turn = PartitionRun(DAYS[day - 1], DAYS)
        return merge(spark, ordered, frame, stamp(None, DAYS[day - 1]), rule=MergeRule(("id",), order="seq"), turn=turn)

    there = [{"id": id_, "seq": 5, "text": "one"} for id_ in (1, 2)]
    seed_day(ordered.uri, there, T.StructType.fromDDL("id int, seq int, text string"), writer=WRITER, key=DAYS[0])
    with pytest.raises(UnmergeableRows, match=r"1 row\(s\) have the `seq` of the table's row") as caught:
        run(2, (1, 5, "two"), (2, 6, "two"))
    assert caught.value.examples == ["id=1"]
    assert sorted(rows_of(ordered.uri)) == [(1, 5, "one"), (2, 5, "one")]
    # What it leaves then: the way out in the test of a vacuumed version.
    with at("before_commit", _fail), pytest.raises(ConnectionError):
        run(1, (1, 5, "corrected"), (2, 5, "one"))


def test_a_restore_by_hand_and_the_tables_settings_are_understood(history: History) -> None:
    history.table.set_properties(history.spark, {"delta.deletedFileRetentionDuration": "interval 30 days"})
    history.run(3)
    assert history.operations[-3:] == ["RESTORE", "SET TBLPROPERTIES", "MERGE"]
    assert history.table.properties_now()["delta.deletedFileRetentionDuration"] == "interval 30 days"
    assert history.rows() == history.clean([1, 2, 3])
    history.spark.sql(f"RESTORE TABLE {history.table.sql} TO VERSION AS OF {history.state.entries[0].version}")
    assert (history.keys(), history.state.replay) == ([DAYS[0]], DAYS[1:3])


def test_a_log_that_no_longer_reaches_back_refuses_old_partitions(history: History) -> None:
    DeltaTable(history.table.uri).create_checkpoint()
    for version in range(2):
        (Path(history.table.uri) / "_delta_log" / f"{version:020}.json").unlink()
    assert not history.state.complete
    before = history.log.version
    with pytest.raises(StateGone, match="the log no longer tells which partitions"):
        history.run(2)
    with pytest.raises(StateGone, match="the log no longer tells which partitions"):
        history.after(2)
    assert history.log.version == before


def test_a_run_that_computed_with_a_state_that_was_replayed_since_is_refused(history: History) -> None:
    _, basis = read(history.spark, history.table, WRITER, [DAYS[2]], DAYS)
    history.run(3)
    before = history.log.version
    with pytest.raises(StateMoved, match=f"after `{DAYS[2]}`"):
        history.run(4, basis=basis)
    assert history.log.version == before
    frame, basis = read(history.spark, history.table, WRITER, [DAYS[2]], DAYS)
    history.run(4, basis=basis)
    computed_late = sorted((tuple(r) for r in frame.collect()), key=repr)
    assert computed_late == history.clean([1, 2, 3]), "it stays what it was when it was read"


def test_a_table_that_is_not_there_is_a_basis_as_well(history: History) -> None:
    missing = replace(history.table, uri=f"{history.table.uri}_missing")
    columns = history.table.read(history.spark).schema
    nothing, basis = read(history.spark, missing, WRITER, [DAYS[0]], DAYS, if_missing=columns)
    assert nothing.collect() == []
    assert basis == ReadState(DAYS[0], None)
    assert read(history.spark, missing, WRITER, [], DAYS, if_missing=columns)[1] is None
    # Somebody made it since.
    with pytest.raises(StateMoved):
        history.run(4, basis=basis)
