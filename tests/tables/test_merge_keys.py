"""Merger: when a key is none, when it is in another partition, and when a change is older than what the table has or had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from itertools import chain, permutations

import dagster as dg
import pandera.pyspark as pa
import pyarrow as arrow
import pyspark.sql.types as T
import pytest
from deltalake import write_deltalake
from other_reader import rows_of
from pyspark.sql import SparkSession
from seeding import named, seed

from de_resources.contract import Contract
from de_resources.delta.slices import make_slice
from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write.key_elsewhere import KeyElsewhere
from de_resources.delta.write.merge import MergeRule, UnmergeableRows, merge

pytestmark = pytest.mark.pattern("merger")

Merge = Callable[..., Written]


@pytest.fixture
def target(table: Callable[..., Table]) -> Table:
    return table()


def there(target: Table, rows: Sequence[tuple[object, ...]], schema: str) -> None:
    """Rows that are in the table before, written without the engine."""
    columns = T.StructType.fromDDL(schema)
    seed(target.uri, named(rows, columns), columns)


@pytest.fixture
def merged(spark: SparkSession, target: Table, stamp: Callable[..., CommitInfo]) -> Merge:
    def merged(rows: Sequence[tuple[object, ...]], schema: str, rule: MergeRule) -> Written:
        frame = spark.createDataFrame(rows, schema).coalesce(1)
        return merge(spark, target, frame, stamp(), rule=rule, slice_=None)

    return merged


def test_a_key_of_which_a_part_is_null_is_refused(merged: Merge, target: Table) -> None:
    rows = [(1, None, 5), (1, "x", 6), (None, "x", 5), (None, None, 5)]
    with pytest.raises(UnmergeableRows, match=r"3 row\(s\) have no a and b") as caught:
        merged(rows, "a int, b string, v int", MergeRule(("a", "b")))
    assert "`silver.rows`" in str(caught.value)
    assert sorted(caught.value.examples) == ["a=1, b=None", "a=None, b=None", "a=None, b=x"]
    assert target.log() is None, "nothing was written, and no table made"


def test_a_change_of_the_same_order_is_no_older_one(merged: Merge, target: Table) -> None:
    """Where it may replace the table's row."""
    rule, schema = MergeRule(("id",), order="seq", ties="replace"), "id int, seq int, text string"
    there(target, [(1, 5, "wrong"), (2, 5, "newer")], schema)
    assert merged([(1, 5, "mended"), (2, 4, "older")], schema, rule).changes == {"update": 1, "stale": 1}
    assert sorted(rows_of(target.uri)) == [(1, 5, "mended"), (2, 5, "newer")]


def test_the_same_order_with_other_content_is_refused_whether_in_one_batch_or_in_two(
    merged: Merge, target: Table
) -> None:
    rule, schema = MergeRule(("id",), order="seq", deleted="gone"), "id int, seq int, text string, gone boolean"
    first = [(1, 5, "one", False), (2, None, "one", False), (3, 5, "one", False), (4, 5, None, False)]
    other = [(1, 5, "two", False), (2, None, "two", False), (3, 5, "one", True), (4, 5, "two", False)]
    there(target, first, schema)
    with pytest.raises(UnmergeableRows, match="the newest `seq`") as caught:
        merged([*first, *other], schema, rule)
    alike = ["id=1", "id=2", "id=3", "id=4"]
    assert caught.value.examples == alike
    with pytest.raises(
        UnmergeableRows, match=r"4 row\(s\) have the `seq` of the table's row and other content"
    ) as caught:
        merged([*other, (5, 1, "new", False)], schema, rule)
    assert caught.value.examples == alike
    assert merged([*first[1:], (1, 4, "older", False)], schema, rule).skipped, "the same content is no contradiction"
    assert sorted(rows_of(target.uri)) == first


def test_a_row_that_vanished_comes_back_as_it_was_and_not_otherwise(merged: Merge, target: Table) -> None:
    rule = MergeRule(("id",), order="seq", deleted="gone", vanished="delete")
    schema = "id int, seq int, text string, gone boolean"
    there(target, [(1, 5, None, False), (2, 5, "there", False)], schema)
    assert merged([(2, 5, "there", False)], schema, rule).changes == {"vanished": 1}
    assert sorted(rows_of(target.uri)) == [(1, 5, None, True), (2, 5, "there", False)]
    with pytest.raises(UnmergeableRows, match=r"1 row\(s\) have the `seq`"):
        merged([(1, 5, "otherwise", False), (2, 5, "there", False)], schema, rule)
    assert merged([(1, 5, None, False), (2, 5, "there", False)], schema, rule).changes == {"update": 1}
    assert sorted(rows_of(target.uri)) == [(1, 5, None, False), (2, 5, "there", False)]


Change = tuple[str, int | None, str, bool]
BATCHES: tuple[list[Change], ...] = (
    [("a", 1, "new", False), ("b", 4, "gone", True), ("c", 1, "new", False)],
    [("a", 3, "gone", True), ("b", 2, "new", False), ("d", 7, "gone", True)],
    [("a", 2, "changed", False), ("b", 5, "back", False), ("d", 6, "new", False), ("e", None, "gone", True)],
)
"""A deletion is in an earlier batch than its key's insert, in a later one, and in none but its own."""


def test_deletions_are_remembered_whatever_the_order_of_the_batches(merged: Merge, target: Table) -> None:
    """Six orders of three batches, each once before its second and once before its third, as a part of the key; and again.

    What the batches before have left is there, deletions too: after one of them that is itself, after two of them what the
    merge of the second has to leave. A merge that is right in each of these is so in all of them, one after the other.
    """
    rule, schema = (
        MergeRule(("life", "id"), order="seq", deleted="gone"),
        "life int, id string, seq int, text string, gone boolean",
    )
    lives = [batches[:count] for batches in permutations(BATCHES) for count in (2, 3)]
    there(target, [(life, *row) for life, batches in enumerate(lives) for row in newest(*batches[:-1])], schema)
    merged([(life, *row) for life, batches in enumerate(lives) for row in batches[-1]], schema, rule)
    expected = {(life, *row) for life, batches in enumerate(lives) for row in newest(*batches)}
    assert set(rows_of(target.uri)) == expected
    everything = [(life, *row) for life, batches in enumerate(lives) for row in chain(*batches)]
    assert merged(everything, schema, rule).skipped
    assert len(rows_of(target.uri)) == len(expected)
    log = target.log()
    assert log is not None
    assert log.version == 1, "the table was there and had a merge; repeating all batches changed nothing"


def newest(*batches: list[Change]) -> Iterable[Change]:
    """What is left of all changes, in whatever order they come: of each key the last one, by the order that it says."""
    return {row[0]: row for row in sorted(chain(*batches), key=lambda row: row[1] or 0)}.values()


def test_without_an_order_a_deletion_of_an_unknown_key_is_left_out(merged: Merge, target: Table) -> None:
    """So that nothing is in the way of a later insert."""
    rule, schema = MergeRule(("id",), deleted="gone"), "id int, gone boolean"
    there(target, [(2, False)], schema)
    told = merged([(1, True)], schema, rule)
    assert (told.changes, told.commit) == ({"arrived_deleted": 1}, None)
    assert rows_of(target.uri) == [(2, False)]


DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
SOLD = "id string, day date, text string, gone boolean"
FIRST, SECOND = (date(2024, 1, n) for n in (1, 2))
Sale = tuple[str, date, str, bool]


class Sales(pa.DataFrameModel):
    """What the message of a refusal must not show."""

    id: T.StringType = pa.Field(nullable=False, metadata={"personal": True})
    day: T.DateType = pa.Field(nullable=False)
    text: T.StringType = pa.Field(nullable=True)
    gone: T.BooleanType = pa.Field(nullable=True)

    class Config:
        name = "silver.rows"


class Daily:
    """A table by day with three sales, `c` of them deleted, and merges of single days into it."""

    def __init__(self, spark: SparkSession, table: Table, stamp: Callable[..., CommitInfo]) -> None:
        self.spark, self.table, self.stamp = spark, table, stamp
        rows: list[Sale] = [("a", FIRST, "old", False), ("b", SECOND, "old", False), ("c", FIRST, "old", True)]
        names = ("id", "day", "text", "gone")
        there = arrow.table({name: [row[n] for row in rows] for n, name in enumerate(names)})
        write_deltalake(table.uri, there, partition_by=list(table.partitioned_by) or None)

    def merge(self, days: Sequence[date], *rows: Sale) -> Written:
        frame = self.spark.createDataFrame(list(rows), SOLD).coalesce(1)
        slice_ = make_slice([str(day) for day in days], DAYS, "day")
        rule = MergeRule(("id",), deleted="gone")
        return merge(self.spark, self.table, frame, self.stamp(), rule=rule, slice_=slice_)

    def rows(self) -> list[tuple[str, date, str, bool]]:
        return sorted(rows_of(self.table.uri))


@pytest.fixture(params=[("day",), ()], ids=["partitioned", "flat"])
def daily(
    request: pytest.FixtureRequest, spark: SparkSession, table: Callable[..., Table], stamp: Callable[..., CommitInfo]
) -> Daily:
    """The flat one has a contract, by which keys are personal."""
    contract = None if request.param else Contract.of(Sales)
    return Daily(spark, table(partitioned_by=request.param, contract=contract), stamp)


def test_new_keys_that_are_in_another_partition_are_refused_nothing_is_written_and_a_personal_one_is_not_shown(
    daily: Daily,
) -> None:
    """A row that is marked as deleted is one of the key."""
    before = daily.rows()
    new = [(key, SECOND, "new", False) for key in "abcd"]
    with pytest.raises(KeyElsewhere, match="Add day to the merge's key") as caught:
        daily.merge([SECOND], *new)
    keys = "ac" if daily.table.partitioned_by else ("•••", "•••")
    assert caught.value.examples == tuple(f"id={key} in day=2024-01-01" for key in keys)
    assert (caught.value.slice, caught.value.columns) == ("2024-01-02", ("day",))
    assert daily.rows() == before
    log = daily.table.log()
    assert log is not None
    assert log.version == 0


def test_a_key_moves_between_partitions_of_one_run(daily: Daily) -> None:
    moved = [("a", SECOND, "moved", False), ("b", SECOND, "old", False), ("c", FIRST, "old", True)]
    assert daily.merge([FIRST, SECOND], *moved[:2]).changes == {"update": 1}
    assert daily.rows() == moved


def test_a_partition_lets_a_key_go_before_another_takes_it(
    spark: SparkSession, table: Callable[..., Table], stamp: Callable[..., CommitInfo]
) -> None:
    rule = MergeRule(("id",), vanished="delete")
    days = table(partitioned_by=("day",))

    def merged(day: date, *ids: int) -> dict[str, int]:
        frame = spark.createDataFrame([(n, day) for n in ids], "id int, day date").coalesce(1)
        return merge(spark, days, frame, stamp(), rule=rule, slice_=make_slice([str(day)], DAYS, "day")).changes

    assert merged(FIRST, 1, 2) == {"insert": 2}
    with pytest.raises(KeyElsewhere):
        merged(SECOND, 1)
    assert merged(FIRST, 2) == {"delete": 1}
    assert merged(SECOND, 1) == {"insert": 1}
    assert sorted(rows_of(days.uri)) == [(1, SECOND), (2, FIRST)]
