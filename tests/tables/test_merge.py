"""Merger: what a batch of changes does to a table, against a dictionary that does the same."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from functools import reduce
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyarrow as arrow
import pyspark.sql.types as T
import pytest
from deltalake import write_deltalake
from other_reader import rows_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from seeding import named, seed

from benchmarks.engine_jobs import counted_jobs
from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.slices import make_slice
from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.frames import RowsOutsideSlice
from de_resources.delta.write.merge import CHANGE, IncomparableColumn, MergeRule, UnmergeableRows, compared, merge
from de_resources.engine.own_commits import USER_METADATA, session_mark
from de_resources.errors import PermanentError
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("merger")

MakeTable = Callable[..., Table]
MakeStamp = Callable[..., CommitInfo]

SCHEMA = "id long, seq long, text string, gone boolean"
RULE = MergeRule(("id",), order="seq", deleted="gone")
Row = tuple[int | None, int | None, str | None, bool | None]


class Merging:
    """One table and the batches that are merged into it."""

    def __init__(self, spark: SparkSession, table: Table, stamp: MakeStamp) -> None:
        self.spark, self.table, self.stamp = spark, table, stamp

    def __call__(self, rows: list[Any], rule: MergeRule = RULE, schema: str = SCHEMA, **options: Any) -> Written:
        frame = self.spark.createDataFrame(rows, schema).coalesce(1)
        return merge(self.spark, self.table, frame, self.stamp(), rule=rule, **({"slice_": None} | options))

    def seed_worlds(self, rows: Iterable[tuple[int, *Row]]) -> None:
        """The rows of several worlds."""
        columns = T.StructType.fromDDL(WORLD_SCHEMA)
        seed(self.table.uri, named(rows, columns), columns)

    def seed(self, **columns: list[Any]) -> None:
        """Rows that are there before, written without an engine."""
        write_deltalake(
            self.table.uri, arrow.table(columns), partition_by=list(self.table.partitioned_by) or None, mode="append"
        )

    def seed_rows(self, *rows: Row) -> None:
        """The same, in the schema of most tests."""
        ids, orders, texts, marks = map(list, zip(*rows, strict=True))
        self.seed(
            id=arrow.array(ids, arrow.int64()),
            seq=arrow.array(orders, arrow.int64()),
            text=arrow.array(texts, arrow.string()),
            gone=arrow.array(marks, arrow.bool_()),
        )

    def rows(self) -> list[tuple[Any, ...]]:
        return rows_of(self.table.uri)

    @property
    def log(self) -> TableLog:
        log = self.table.log()
        assert log is not None
        return log

    @property
    def version(self) -> int:
        return self.log.version

    @property
    def files(self) -> set[str]:
        return set(self.log.files().column("path").to_pylist())


def descriptions(spark: SparkSession, jobs: list[int]) -> list[str]:
    """What the engine says of its jobs."""
    store = spark.sparkContext._jsc.sc().statusStore()
    return [told.get() for job in jobs if (told := store.job(job).description()).isDefined()]


@pytest.fixture
def merging(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> Merging:
    return Merging(spark, table(), stamp)


def test_insert_update_and_soft_delete_are_one_commit_a_replay_is_none_and_nothing_stays_in_the_session(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    """Neither the stamp nor the comparison stays, nor is it planned again; the location's name is no template."""
    session = spark.conf.get(USER_METADATA, None)
    merging = Merging(spark, table("odd {x} `name`"), stamp)
    merging.seed_rows((1, 1, "a", False), (2, 1, "b", False), (3, 1, "c", True))
    before = merging.version
    batch = [(1, 2, "A", False), (2, 2, "b", True), (4, 2, "d", False), (5, 1, "e", None)]
    with counted_jobs(spark) as jobs:
        written = merging(batch)
    planned, *merged = "\n".join(descriptions(spark, sorted(jobs))).split("MERGE operation")
    assert "Filtering files for query" in planned
    assert merged
    assert not any("Filtering files for query" in each for each in merged)
    assert merging.version == before + 1
    assert written.version == merging.version
    assert written.changes == {"update": 1, "soft_delete": 1, "insert": 2}
    assert written.rows == 4
    after = [(1, 2, "A", False), (2, 2, "b", True), (3, 1, "c", True), (4, 2, "d", False), (5, 1, "e", None)]
    assert merging.rows() == after
    assert spark.conf.get(USER_METADATA, None) == session
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    assert merging.log.commits(1)[0].stamp["writer"] == "silver/rows"
    replay = merging(batch)
    assert merging.version == before + 1
    assert (replay.skipped, replay.version, replay.commit) == ("nothing changed", before + 1, None)
    assert replay.rows == 4, "rows are counted also where nothing has to change"


def test_personal_keys_are_not_shown(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> None:
    class People(pa.DataFrameModel):
        email: T.StringType = pa.Field(nullable=False, metadata={"personal": True})
        age: T.IntegerType = pa.Field(nullable=True)

        class Config:
            name = "silver.people"

    merging = Merging(spark, table(contract=Contract.of(People)), stamp)
    merging.seed(email=["somebody@example.org"], age=arrow.array([7], arrow.int32()))
    with pytest.raises(UnmergeableRows, match="declare an ordering column") as caught:
        merging([("canary@example.org", 1), ("canary@example.org", 2)], MergeRule(("email",)), "email string, age int")
    assert "canary" not in str(caught.value)
    assert caught.value.examples == ["email=•••"]


def kinds(spark: SparkSession, source: list[Any], target: list[Any], schema: str, rule: MergeRule) -> dict[Any, str]:
    """What has to happen to each row, by its first column, without a table."""
    frames = (spark.createDataFrame(rows, schema).coalesce(1) for rows in (source, target))
    return {row[0]: row[CHANGE] for row in compared(*frames, rule).collect()}


def test_keys_of_several_columns_and_null_values_compare_safely(spark: SparkSession) -> None:
    rule, schema = MergeRule(("v", "b")), "v int, b string, c int, d int"
    target = [(1, "x", None, 1), (2, "x", 2, 1), (3, "x", None, 1), (4, "x", 4, 1), (5, "x", 5, 1)]
    source = [(1, "x", 1, 1), (2, "x", None, 1), (3, "x", None, 1), (4, "x", 4, 1), (5, "y", 5, 1)]
    found = kinds(spark, source, target, schema, rule)
    assert found == {1: "update", 2: "update", 3: "same", 4: "same", 5: "insert"}


def test_halves_of_the_upsert(merging: Merging) -> None:
    merging.seed_rows((1, 1, "a", False))
    assert merging([(1, 2, "A", False), (2, 2, "B", False)], MergeRule(("id",), insert=False)).changes == {
        "update": 1,
        "ignored": 1,
    }
    assert merging([(1, 3, "Z", False), (3, 3, "C", False)], MergeRule(("id",), update=False)).changes == {
        "ignored": 1,
        "insert": 1,
    }
    assert merging.rows() == [(1, 2, "A", False), (3, 3, "C", False)]


def test_a_table_of_keys_only(merging: Merging) -> None:
    rule = MergeRule(("id",), vanished="delete")
    merging.seed(id=[1, 2])
    assert merging([(2,), (3,)], rule, "id long").changes == {"insert": 1, "delete": 1}
    assert merging.rows() == [(2,), (3,)]


class TestVanished:
    DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")

    @pytest.mark.parametrize("layout", [("day",), ()], ids=["partitioned", "flat"])
    def test_only_rows_of_the_slice_can_vanish(
        self, spark: SparkSession, table: MakeTable, stamp: MakeStamp, layout: tuple[str, ...]
    ) -> None:
        """Where the day is a part of the key, a key of another day is another one."""
        merging = Merging(spark, table(partitioned_by=layout), stamp)
        first, second = (date(2024, 1, n) for n in (1, 2))
        rule, schema = MergeRule(("id", "day"), vanished="delete"), "id long, day date, text string"
        merging.seed(id=[10, 11, 20, 21], day=[first, first, second, second], text=["a", "b", "a", "b"])
        slice_ = make_slice([str(second)], self.DAYS, "day")
        before = merging.files
        written = merging([(20, second, "A"), (10, second, "new")], rule, schema, slice_=slice_)
        if layout:
            assert {path.split("/")[0] for path in before - merging.files} == {"day=2024-01-02"}, "no other can match"
        assert written.changes == {"update": 1, "delete": 1, "insert": 1}
        assert written.rows == 2
        assert merging.rows() == [(10, first, "a"), (10, second, "new"), (11, first, "b"), (20, second, "A")]


def test_who_opens_the_engine_meanwhile_leaves_the_stamp_of_a_merge(spark: SparkSession, engine: SparkEngine) -> None:
    """Engines of several runs are one session in a process."""
    before = spark.conf.get(USER_METADATA, None)
    spark.conf.set(USER_METADATA, "a stamp")
    try:
        assert SparkEngine(url=engine.url).spark_session is spark
        assert spark.conf.get(USER_METADATA) == "a stamp"
    finally:
        spark.conf.set(USER_METADATA, before or session_mark())


@pytest.mark.parametrize(
    ("rule", "missing"),
    [(MergeRule(("nope",)), "nope"), (MergeRule(("id",), "later", "dead"), "later, dead"), (MergeRule(()), "no key")],
)
def test_a_rule_about_other_columns_is_refused(merging: Merging, rule: MergeRule, missing: str) -> None:
    with pytest.raises(PermanentError, match=missing):
        merging([(1, 1, "a", False)], rule)


WORLDS = 200
WORLD_SCHEMA = f"world int, {SCHEMA}"
WORLD_RULE = MergeRule(("world", "id"), order="seq", deleted="gone")


def drawn(chance: random.Random) -> list[Row]:
    """Up to eight changes of up to five keys, exact repetitions among them; without ties: a row follows from key and order."""
    changes = []
    for _ in range(chance.randint(0, 8)):
        key, order = chance.randint(1, 5), chance.choice([None, *range(1, 13)])
        text = None if (key, order) == (1, 4) else f"{key}@{order}"
        changes.append((key, order, text, {0: True, 1: None}.get((3 * key + (order or 1)) % 5, False)))
    return changes


class Dictionary:
    """What one world's table is, kept by hand: a change without an order is older than any other."""

    def __init__(self) -> None:
        self.rows: dict[int | None, Row] = {}

    def merge(self, batch: list[Row], rule: MergeRule) -> Counter[str]:
        counts: Counter[str] = Counter()
        last = {row[0]: row for row in sorted(batch, key=_age)}
        for key, row in last.items():
            kind = _kind(row, self.rows.get(key), rule)
            counts[kind] += 1
            if kind in ("insert", "tombstone", "update", "soft_delete"):
                self.rows[key] = row
        if rule.vanished == "delete":
            gone = [k for k, row in self.rows.items() if k not in last and not row[3]]
            counts["vanished"] += len(gone)
            for key in gone:
                self.rows[key] = (*self.rows[key][:3], True)
        return counts


def _age(row: Row) -> int:
    return -1 if row[1] is None else row[1]


def _kind(row: Row, old: Row | None, rule: MergeRule) -> str:
    if old is None and row[3]:
        return "tombstone" if rule.insert and rule.update else "arrived_deleted"
    if old is None:
        return "insert" if rule.insert else "ignored"
    if row == old:
        return "same"
    if _age(row) < _age(old):
        return "stale"
    if not rule.update:
        return "ignored"
    if _age(row) == _age(old) and rule.ties == "refuse":
        return "contradiction"
    return "soft_delete" if row[3] and not old[3] else "update"


ONE_MORE = WORLDS
"""A world in which somebody else inserts rows after the comparison."""


def test_batches_do_what_they_do_to_a_dictionary_and_a_row_that_somebody_else_inserted_meanwhile_is_not_there_twice(
    merging: Merging,
) -> None:
    """Two hundred worlds in one table that has rows of each: every world's rows, and the counts of all.

    Rows that vanished are marked, once: what is marked has not vanished. An empty batch has no rows.
    Another engine may commit between the comparison and the MERGE where no lock is possible (object stores). Of what it has
    inserted, a newer row stays.
    """

    def interfere(_: str) -> None:
        # By an engine of its own: this one would notice that its own comparison is outdated, and make it again.
        merging.seed_worlds([(ONE_MORE, 2, 9, "newer", False), (ONE_MORE, 3, 1, "older", False)])

    chance = random.Random(12)  # noqa: S311 - the same worlds in every run
    worlds = [Dictionary() for _ in range(WORLDS)]
    for world in worlds:
        world.merge(drawn(chance), WORLD_RULE)
    merging.seed_worlds((n, *row) for n, world in enumerate(worlds) for row in world.rows.values())
    batches = [drawn(chance) for _ in worlds]
    rows = [(world, *row) for world, batch in enumerate(batches) for row in batch]
    rows += [(ONE_MORE, 2, 5, "ours", False), (ONE_MORE, 3, 5, "ours", False)]
    rule = replace(WORLD_RULE, vanished="delete")
    with at("before_commit", interfere):
        written = merging(rows, rule, WORLD_SCHEMA)
    counts = sum((w.merge(batch, rule) for w, batch in zip(worlds, batches, strict=True)), Counter(insert=2))
    assert counts.keys() >= {"insert", "update", "soft_delete", "tombstone", "stale", "same", "vanished"}
    assert written.changes == {kind: n for kind, n in counts.items() if n and kind != "same"}
    assert written.rows == len(rows)
    after = [(n, *row) for n, world in enumerate(worlds) for row in world.rows.values()]
    after += [(ONE_MORE, 2, 9, "newer", False), (ONE_MORE, 3, 5, "ours", False)]
    assert merging.rows() == sorted(after, key=repr)
    nothing = merging([], WORLD_RULE, WORLD_SCHEMA)
    assert (nothing.skipped, nothing.rows, nothing.violations) == ("nothing changed", 0, {})


RULES: tuple[dict[str, Any], ...] = (
    {"insert": False},
    {"update": False},
    {"vanished": "delete"},
    {"vanished": "delete", "update": False},
    {"ties": "replace"},
)


def test_every_rule_names_what_it_does_to_a_dictionary(spark: SparkSession) -> None:
    """The same worlds without a table: what has to happen to each row by rules that few tables have. One query for all."""
    rules = [MergeRule(("world", "id"), order="seq", deleted="gone", **options) for options in RULES]
    chance = random.Random(13)  # noqa: S311 - the same worlds in every run
    source, target, expected = [], [], [Counter[str]() for _ in rules]
    for number in range(WORLDS):
        world, (before, batch) = Dictionary(), (drawn(chance), drawn(chance))
        world.merge(before, WORLD_RULE)
        target += [(number, *row) for row in world.rows.values()]
        told_otherwise = [(*row[:2], "other", row[3]) if row[0] == 2 else row for row in batch]
        source += [(number, *row) for row in told_otherwise]
        for rule, counts in zip(rules, expected, strict=True):
            counts += copy.deepcopy(world).merge(told_otherwise, rule)
    frames = [spark.createDataFrame(rows, WORLD_SCHEMA).coalesce(1) for rows in (source, target)]
    kinds_by_rule = [compared(*frames, rule).select(F.lit(n).alias("rule"), CHANGE) for n, rule in enumerate(rules)]
    found = reduce(DataFrame.unionByName, kinds_by_rule).groupBy("rule", CHANGE).count().collect()
    for n, (rule, counts) in enumerate(zip(rules, expected, strict=True)):
        assert ("contradiction" in counts) == (rule.update and rule.ties == "refuse"), rule
        assert {row[CHANGE]: row["count"] for row in found if row["rule"] == n} == counts, rule


@pytest.mark.parametrize("type_", ["map<string,int>", "array<struct<m: map<string,int>>>", "variant"])
def test_a_column_that_nobody_can_compare_is_named(merging: Merging, type_: str) -> None:
    with pytest.raises(IncomparableColumn, match="`m`") as caught:
        merging([(1, None)], MergeRule(("id",)), schema=f"id long, m {type_}")
    assert (caught.value.table, caught.value.column) == ("silver.rows", "m")
    assert merging.table.log() is None


def test_a_stray_row_of_a_small_local_frame_is_named(merging: Merging) -> None:
    """The optimizer computes such a frame while it plans."""
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")
    merging.seed(id=[7], day=[date(2024, 1, 1)])
    frame = merging.spark.sql("SELECT * FROM VALUES (1L, DATE '2024-01-02') AS v(id, day)")
    with pytest.raises(RowsOutsideSlice) as caught:
        merge(
            merging.spark,
            merging.table,
            frame,
            merging.stamp(),
            rule=MergeRule(("id",)),
            slice_=make_slice(["2024-01-01"], days, "day"),
        )
    assert caught.value.values == ["2024-01-02"]
    assert merging.version == 0, "nothing was written"
