"""A column may have any name: what looks like a path into a struct, or ends its quotes, is a name all the same."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_assets.transforms.data_value.distributed_aggregator import cube
from de_assets.transforms.data_value.dynamic_joiner import StreamSide, TimeBound, join_streams
from de_assets.transforms.data_value.local_aggregator import aggregate_parts, keys_in_several_parts
from de_assets.transforms.data_value.mergeable_measures import count
from de_assets.transforms.data_value.salting import aggregate, skew_of
from de_assets.transforms.data_value.static_joiner import join_reference, join_valid_at

WHO, AT, SAID = "a.b", "at time", "it`s"


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("x", 1), ("x", 2), ("y", 1)], "who STRING, at INT").toDF(WHO, AT)


@pytest.mark.pattern("static_joiner")
def test_joins_with_a_reference(spark: SparkSession, events: DataFrame) -> None:
    versions = spark.createDataFrame([("x", 1, 2, 7)], "who STRING, valid_from INT, valid_to INT, says INT").toDF(
        WHO, "valid_from", "valid_to", SAID
    )
    valid = join_valid_at(events, versions, WHO, AT, {SAID: "says.it"}, matched="is.known")
    assert sorted(map(tuple, valid.collect()), key=str) == [
        ("x", 1, 7, True),
        ("x", 2, None, False),
        ("y", 1, None, False),
    ]
    known = join_reference(events, versions, {WHO: WHO}, {SAID: "says.it"})
    assert known.columns == [WHO, AT, "says.it"]
    assert [row["says.it"] for row in known.orderBy("`a.b`", "`at time`").collect()] == [7, 7, None]


@pytest.mark.pattern("distributed_aggregator")
def test_cube_and_salted_keys(events: DataFrame) -> None:
    found = cube(events, AT, [WHO], {SAID: F.count(F.lit(1))})
    assert found.columns == [AT, "grouping", WHO, SAID]
    assert sorted(map(tuple, found.where("grouping = 0").collect())) == [(1, 0, "x", 1), (1, 0, "y", 1), (2, 0, "x", 1)]
    assert skew_of(events, [WHO]).largest == 2
    assert sorted(map(tuple, aggregate(events, [WHO], {SAID: count()}, salts=2).collect())) == [("x", 2), ("y", 1)]


@pytest.mark.pattern("local_aggregator")
def test_parts(events: DataFrame) -> None:
    found = aggregate_parts([events, events], WHO, {SAID: F.count(F.lit(1))})
    assert found.columns == [WHO, SAID]
    assert keys_in_several_parts(found, WHO, 5) == ["x", "y"]


@pytest.mark.pattern("dynamic_joiner")
def test_streams(spark: SparkSession) -> None:
    left, right = (
        spark.readStream.format("rate").load().selectExpr(
            f"timestamp AS `{side}.at`", f"value AS `{side}.id`", f"value AS `{side}.on`", f"timestamp AS `{side}.in`"
        )
        for side in "lr"
    )  # fmt: skip
    sides = (StreamSide(each, f"{s}.at", f"{s}.id", f"{s}.in") for each, s in ((left, "l"), (right, "r")))
    hour = timedelta(hours=1)
    joined = join_streams(*sides, ("l.on", "r.on"), TimeBound(hour, hour, hour, hour))
    assert joined.columns == ["l.at", "l.id", "l.on", "l.in", "r.at", "r.id", "r.in"]
