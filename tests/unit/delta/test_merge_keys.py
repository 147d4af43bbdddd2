"""Merger: when a key is none, and when a change is older than what the table has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import SparkSession

from de_resources.delta.merge import MergeRule, UnmergeableRows, merge
from de_resources.delta.table import Stamp, Table, Written

pytestmark = pytest.mark.pattern("merger")

Merge = Callable[..., Written]


@pytest.fixture
def target(table: Callable[..., Table]) -> Table:
    return table()


@pytest.fixture
def merged(spark: SparkSession, target: Table, stamp: Callable[..., Stamp]) -> Merge:
    def merged(rows: Sequence[tuple[object, ...]], schema: str, rule: MergeRule) -> Written:
        frame = spark.createDataFrame(rows, schema).coalesce(1)
        return merge(spark, target, frame, stamp(), rule=rule, slice_=None)

    return merged


@pytest.mark.parametrize(
    ("rows", "examples"),
    [
        ([(1, None, 5), (1, "x", 6)], ["a=1, b=None"]),
        ([(None, "x", 5)], ["a=None, b=x"]),
        ([(None, None, 5)], ["a=None, b=None"]),
    ],
    ids=["the second part", "the first part", "both"],
)
def test_a_key_of_which_a_part_is_null_is_refused(
    merged: Merge, target: Table, rows: list[tuple[object, ...]], examples: list[str]
) -> None:
    with pytest.raises(UnmergeableRows, match=r"1 row\(s\) have no a and b") as caught:
        merged(rows, "a int, b string, v int", MergeRule(("a", "b")))
    assert caught.value.examples == examples
    log = target.log()
    assert log is not None
    assert log.version == 0, "the table was made, and nothing was written to it"


def test_a_change_of_the_same_order_is_no_older_one(merged: Merge, spark: SparkSession, target: Table) -> None:
    rule, schema = MergeRule(("id",), order="seq"), "id int, seq int, text string"
    merged([(1, 5, "wrong"), (2, 5, "newer")], schema, rule)
    assert merged([(1, 5, "mended"), (2, 4, "older")], schema, rule).changes == {"update": 1, "stale": 1}
    assert sorted(map(tuple, target.read(spark).collect())) == [(1, 5, "mended"), (2, 5, "newer")]
