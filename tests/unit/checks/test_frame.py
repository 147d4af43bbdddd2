"""The rules and the key of a contract on any frame, in one pass: against a count by hand and against the graph's checks."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from benchmarks.engine_jobs import counted_jobs
from de_checks.frame import Judged, judge
from de_checks.keys import Repeated, repeated_by_key
from de_checks.violations import count_by_key
from de_resources.contract import Contract

pytestmark = pytest.mark.pattern("constraints_enforcer")


class Orders(pa.DataFrameModel):
    """Twelve rules, and a key of two columns that may be null."""

    shop: T.StringType = pa.Field(nullable=False)
    number: T.LongType = pa.Field(nullable=True, ge=0, le=100, ne=13)
    price: T.LongType = pa.Field(nullable=False, ge=0, le=100, ne=50)
    pieces: T.LongType = pa.Field(nullable=False, ge=0, le=100, ne=50)

    class Config:
        name = "silver.orders"
        metadata = {"key": ["shop", "number"], "rules": {"paid": "price * pieces > 0"}}  # noqa: RUF012


class Keyless(pa.DataFrameModel):
    a: T.LongType = pa.Field(nullable=False)

    class Config:
        name = "silver.keyless"


class Seen(pa.DataFrameModel):
    at: T.TimestampType = pa.Field(nullable=True)

    class Config:
        name = "silver.seen"
        metadata = {"key": ["at"]}  # noqa: RUF012


class Picky(pa.DataFrameModel):
    n: T.LongType = pa.Field(nullable=True)

    class Config:
        name = "silver.picky"
        metadata = {"key": ["n"], "rules": {f"above_{limit}": f"n > {limit}" for limit in range(70)}}  # noqa: RUF012


CONTRACT = Contract.of(Orders)
NUMBERS = st.sampled_from([None, -1, 0, 1, 13, 50, 101])
ROWS = st.tuples(st.sampled_from([None, "a", "b"]), NUMBERS, NUMBERS, NUMBERS)


def frame_of(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, CONTRACT.struct_type())


def broken(judged: Judged) -> dict[str, int]:
    return {rule: n for rule, n in judged.counted.violations.items() if n}


def test_all_violations_and_the_keys_that_come_twice_are_told_together(spark: SparkSession) -> None:
    rows = [
        ("a", 1, 5, 5),
        ("a", 1, 5, 5),
        ("a", 2, -1, 101),
        (None, None, None, 5),
        (None, None, 0, 5),
        ("b", 1, 50, 5),
    ]
    judged = judge(frame_of(spark, rows), CONTRACT)
    assert judged.counted.rows == 6
    assert broken(judged) == {
        "shop_present": 2,
        "price_present": 1,
        "price_greater_than_or_equal_to": 1,
        "price_not_equal_to": 1,
        "pieces_less_than_or_equal_to": 1,
        "paid": 3,  # -1 * 101, null * 5, 0 * 5
    }
    assert (judged.repeated.keys, judged.repeated.rows) == (2, 4), "a null is a value of the key as any other"
    assert not judged.passed


@pytest.mark.usefixtures("one_shuffle_partition")
def test_a_good_frame_passes_and_so_does_an_empty_one(spark: SparkSession) -> None:
    good = judge(frame_of(spark, [("a", 1, 5, 5), ("b", 1, 5, 5), ("a", 2, 5, 5)]), CONTRACT)
    assert (good.passed, good.counted.rows, good.repeated) == (True, 3, Repeated())
    for empty in (frame_of(spark, []), spark.range(9).selectExpr("'a' shop", "id number", "id price", "id pieces")):
        judged = judge(empty.where("number > 100"), CONTRACT)
        assert (judged.passed, judged.counted.rows) == (True, 0)
        assert set(judged.counted.violations) == {rule.name for rule in CONTRACT.rules}


def test_a_key_that_comes_six_hundred_times_is_one_key(spark: SparkSession) -> None:
    rows = [("a", 1, -1, None)] * 600 + [("b", 1, 5, 5)]
    judged = judge(frame_of(spark, rows), CONTRACT)
    assert judged.counted.rows == 601
    assert broken(judged) == {"price_greater_than_or_equal_to": 600, "pieces_present": 600, "paid": 600}
    assert (judged.repeated, judged.example()) == (Repeated(1, 600), '{"shop":"a","number":1}')


@pytest.mark.usefixtures("one_shuffle_partition")
def test_the_rules_of_a_second_mask_are_told_as_well(spark: SparkSession) -> None:
    judged = judge(spark.range(1, 67).toDF("n"), Contract.of(Picky))
    assert judged.counted.violations == {f"above_{limit}": min(limit, 66) for limit in range(70)}
    assert judged.repeated == Repeated()


@settings(max_examples=3)
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_it_finds_what_the_checks_of_the_graph_find(spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    frame = frame_of(spark, rows)
    judged = judge(frame, CONTRACT)
    assert judged.counted == count_by_key(frame, None, CONTRACT)[None]
    repeated = repeated_by_key(frame, None, CONTRACT.key).get(None, Repeated())
    assert (judged.repeated.keys, judged.repeated.rows) == (repeated.keys, repeated.rows)
    twice = {key for key, times in Counter(map(_key_of, rows)).items() if times > 1}
    assert judged.example() in (twice or {""})


def _key_of(row: tuple[Any, ...]) -> str:
    """As people are shown it, which leaves a null out."""
    said = {name: value for name, value in zip(CONTRACT.key, row, strict=False) if value is not None}
    return json.dumps(said, separators=(",", ":"))


def test_a_null_has_its_place_in_a_key(spark: SparkSession) -> None:
    """The engine's hash passes over nulls; and text that follows text is not one text."""
    rows = spark.createDataFrame(
        [("a", None), (None, "a"), ("", "a"), ("a", ""), ("ab", "c"), ("a", "bc")], "x STRING, y STRING"
    )
    contract = replace(Contract.of(Keyless), key=("x", "y"), rules=())
    assert judge(rows, contract).repeated == Repeated()
    twice = judge(rows.union(rows.where("x IS NULL")), contract)
    assert (twice.repeated, twice.example()) == (Repeated(1, 2), '{"y":"a"}')


@pytest.mark.usefixtures("one_shuffle_partition")
@pytest.mark.parametrize("key", ["amount", "nested", "name"])
def test_a_key_that_only_the_engine_can_compare_is_left_to_it(spark: SparkSession, key: str) -> None:
    """Zero is zero, what is no number is one value, and a collation has its own idea of what is the same."""
    rows = spark.sql(
        "SELECT amount, named_struct('a', amount) AS nested, name COLLATE UTF8_LCASE AS name "
        "FROM VALUES (0D, 'a'), (-0D, 'A'), (double('NaN'), 'b'), (double('NaN'), 'B'), (1D, 'c') AS t(amount, name)"
    )
    judged = judge(rows, replace(Contract.of(Keyless), key=(key,), rules=()))
    assert (judged.repeated.keys, judged.repeated.rows, judged.counted.rows) == (2, 4, 5)
    assert judged.example() == judged.repeated.example != ""


@pytest.mark.usefixtures("one_shuffle_partition")
def test_instants_of_one_millisecond_are_two_keys(spark: SparkSession) -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    close = [(noon.replace(microsecond=1),), (noon.replace(microsecond=2),)]
    seen = spark.createDataFrame(close, "at TIMESTAMP")
    assert repeated_by_key(seen, None, ["at"]) == {}
    assert judge(seen, Contract.of(Seen)).passed
    (twice,) = repeated_by_key(seen.union(seen.limit(1)), None, ["at"]).values()
    assert (twice.keys, twice.rows) == (1, 2)
    assert ".00000" in twice.example, "the example says which of them"


@pytest.mark.usefixtures("one_shuffle_partition")
def test_a_key_that_the_engine_cannot_group_by_is_compared_as_text(spark: SparkSession) -> None:
    rows = spark.sql("SELECT parse_json(j) AS k FROM VALUES ('{\"a\": 1}'), ('{\"a\":1}'), ('2') AS t(j)")
    assert repeated_by_key(rows, None, ["k"])[None].rows == 2


@pytest.mark.usefixtures("one_shuffle_partition")
def test_a_contract_without_a_key_is_counted_all_the_same(spark: SparkSession) -> None:
    judged = judge(spark.createDataFrame([(None,), (1,), (1,)], "a LONG"), Contract.of(Keyless))
    assert (judged.counted.rows, judged.counted.total, judged.repeated) == (3, 1, Repeated())


def test_the_frame_is_computed_once_in_two_jobs_at_most(spark: SparkSession) -> None:
    frame = spark.range(0, 1000, 1, 4).selectExpr("'a' shop", "id number", "id price", "id pieces")
    with counted_jobs(spark) as jobs:
        judge(frame, CONTRACT)
    assert len(jobs) <= 2
