"""Records aggregated where they lie: no exchange in the plan, and what the engine gives that moves every record."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from de_assets.transforms.data_value.local_aggregator import NoParts, aggregate_parts, keys_in_several_parts
from de_resources.compat.plans import formatted_plan

pytestmark = pytest.mark.pattern("local_aggregator")

PARTS = 3
KEYS = st.one_of(st.none(), st.integers(0, 8).map(str))
Row = tuple[int, str | None, int]


def measures() -> dict[str, Column]:
    return {"records": F.count(F.lit(1)), "least": F.min("n"), "all": F.sort_array(F.collect_list("n"))}


def parts_of(spark: SparkSession, rows: list[Row]) -> list[DataFrame]:
    """A frame of several tasks for each part, as a folder of files would be."""
    frame = spark.createDataFrame(rows, "part INT, key STRING, n INT").repartition(4)
    return [frame.where(F.col("part") == part) for part in range(PARTS)]


def some_rows() -> list[Row]:
    """Keys in the part that is theirs, null in any; what hypothesis finds, in one frame."""
    found: list[Row] = []

    @given(KEYS, st.integers(0, PARTS - 1), st.integers(-5, 5))
    @settings(max_examples=200, deadline=None, database=None)
    def collect(key: str | None, any_part: int, n: int) -> None:
        found.append((any_part if key is None else int(key) % PARTS, key, n))

    collect()
    return found


def test_the_result_is_the_distributed_one_without_an_exchange(spark: SparkSession) -> None:
    rows = some_rows()
    parts = parts_of(spark, rows)
    local = aggregate_parts(parts, "key", measures())
    kept = local.where("key IS NOT NULL")
    moved = parts[0].unionByName(parts[1]).unionByName(parts[2]).where("key IS NOT NULL").groupBy("key")
    distributed = moved.agg(*(measure.alias(name) for name, measure in measures().items()))
    assert sorted(kept.collect()) == sorted(distributed.collect())
    by_hand = {key: sorted(n for _, k, n in rows if k == key) for _, key, _ in rows if key is not None}
    assert {row.key: row.all for row in kept.collect()} == by_hand
    nulls = sum(row.records for row in local.where("key IS NULL").collect())
    assert nulls == sum(key is None for _, key, _ in rows)
    assert keys_in_several_parts(local, "key", 5) == []


def test_the_plan_moves_no_record(spark: SparkSession) -> None:
    ranges = [spark.range(10 * part, 10 * part + 10, 1, 4).withColumn("key", F.col("id") % 3) for part in range(PARTS)]
    counted = {"records": F.count(F.lit(1))}
    assert "Exchange" not in formatted_plan(aggregate_parts(ranges, "key", counted))
    assert "Exchange" in formatted_plan(ranges[0].groupBy("key").agg(counted["records"]))


def test_a_key_in_two_parts_is_seen_and_null_in_two_is_not(spark: SparkSession) -> None:
    rows: list[Row] = [(0, "a", 1), (1, "b", 1), (1, "a", 2), (2, "a", 3), (0, None, 1), (1, None, 1), (0, "c", 1)]
    rows += [(1, "c", 1), (1, "c", 1)]
    assert keys_in_several_parts(aggregate_parts(parts_of(spark, rows), "key", measures()), "key", 5) == ["a", "c"]


def test_a_part_without_records_adds_no_row_and_none_at_all_give_none(spark: SparkSession) -> None:
    parts = parts_of(spark, [(0, "a", 1), (2, None, 2), (2, "b", 3)])
    counted = {"records": F.count(F.lit(1))}
    found = aggregate_parts(parts, "key", counted).collect()
    assert {(row.key, row.records) for row in found} == {("a", 1), (None, 1), ("b", 1)}
    assert len(found) == 3
    assert aggregate_parts([part.limit(0) for part in parts], "key", counted).collect() == []


def test_no_parts_at_all_are_refused_with_what_to_do() -> None:
    """A source that has no partition and no file yet: nothing says of which columns an empty result would be."""
    with pytest.raises(NoParts, match=r"no part to aggregate by `visit_id`.*give one empty frame"):
        aggregate_parts([], "visit_id", {})
