"""Slices against their definition: a row is inside when it belongs to one of the partition keys, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from de_resources.delta.slices import Box, OffsetRange, Slice, UnusablePartitionColumn, make_slice
from de_resources.errors import PermanentError

ZONES = ["UTC", "Europe/Warsaw", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "Asia/Kathmandu"]
# Both ends of summer time in each zone are within these days.
DAYS = {zone: dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-11-30", timezone=zone) for zone in ZONES}
CHANGES = [
    "2024-10-27",
    "2024-11-03",
    "2024-03-31",
    "2024-03-10",
    "2024-04-26",
    "2024-10-31",
    "2024-04-07",
    "2024-10-06",
]
STATIC = dg.StaticPartitionsDefinition([*"abcdef", "'", "a|b".replace("|", "/")])
GRID = dg.MultiPartitionsDefinition({"day": DAYS["Europe/Warsaw"], "kind": STATIC})

TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "double": DoubleType(),
    "int": IntegerType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}


def hours(day: str, zone: str) -> dg.HourlyPartitionsDefinition:
    end = date.fromisoformat(day) + timedelta(days=1)
    return dg.HourlyPartitionsDefinition(f"{day}-00:00", end_date=f"{end}-00:00", timezone=zone)


def inside(box: Box, row: dict[str, Any]) -> bool:
    return all(d.contains(row[d.column]) for d in box)


def in_boxes(slice_: Slice, row: dict[str, Any]) -> bool:
    return any(inside(box, row) for box in slice_.boxes)


@given(st.data())
def test_merged_hours_are_the_union_of_the_hours(data: st.DataObject) -> None:
    zone, day = data.draw(st.sampled_from(ZONES)), data.draw(st.sampled_from(CHANGES))
    partitions = hours(day, zone)
    known = partitions.get_partition_keys()
    chosen = data.draw(st.lists(st.sampled_from(known), unique=True))
    slice_ = make_slice(chosen, partitions, "at")
    for key in known:
        start, end = partitions.time_window_for_partition_key(key)
        for instant in (start, end - timedelta(microseconds=1)):
            # `end - delta` walks on the wall clock; the instant in UTC is what a table holds.
            utc = instant.astimezone(UTC)
            if not start.timestamp() <= utc.timestamp() < end.timestamp():
                continue
            assert in_boxes(slice_, {"at": utc}) == (key in chosen)
            assert slice_.key_of({"at": utc}) == (key if key in chosen else None)


@given(st.sampled_from(ZONES), st.lists(st.integers(0, 270), unique=True, max_size=12))
def test_merged_days_are_the_union_of_the_days(zone: str, numbers: list[int]) -> None:
    known = DAYS[zone].get_partition_keys()
    chosen = [known[n] for n in numbers]
    slice_ = make_slice(chosen, DAYS[zone], "day")
    assert slice_.keys == tuple(chosen)
    for n in {m + step for m in numbers for step in (-1, 0, 1)} & set(range(len(known))):
        row = {"day": date.fromisoformat(known[n])}
        assert in_boxes(slice_, row) == (known[n] in chosen)
    gaps = sum(n + 1 not in numbers for n in numbers)
    assert len(slice_.boxes) == gaps, "adjacent days are one range"


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(STATIC.get_partition_keys())), unique=True, max_size=20))
def test_merged_cells_never_fill_the_rectangle(cells: list[tuple[int, str]]) -> None:
    days = DAYS["Europe/Warsaw"].get_partition_keys()
    chosen = {(days[d], kind) for d, kind in cells}
    keys = [str(dg.MultiPartitionKey({"day": d, "kind": k})) for d, k in chosen]
    slice_ = make_slice(keys, GRID, {"day": "day", "kind": "kind"})
    for day in days[:7]:
        for kind in STATIC.get_partition_keys():
            row = {"day": date.fromisoformat(day), "kind": kind}
            assert in_boxes(slice_, row) == ((day, kind) in chosen)


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    """The session's zone is not the columns'."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.pattern("data_overwrite")
@pytest.mark.usefixtures("elsewhere")
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_the_predicate_means_the_same_to_the_engine(spark: SparkSession, data: st.DataObject) -> None:
    """Every hour of a day on which clocks change, asked as TIMESTAMP and as TIMESTAMP_NTZ in UTC."""
    zone, day = data.draw(st.sampled_from(ZONES)), data.draw(st.sampled_from(CHANGES[:4]))
    partitions = hours(day, zone)
    known = partitions.get_partition_keys()
    chosen = data.draw(st.lists(st.sampled_from(known), unique=True))
    starts = {k: partitions.time_window_for_partition_key(k).start.astimezone(UTC) for k in known}
    rows = [(k, at, at.replace(tzinfo=None)) for k, at in starts.items()]
    frame = spark.createDataFrame(rows, "k string, at timestamp, ntz timestamp_ntz")
    for column in ("at", "ntz"):
        slice_ = make_slice(chosen, partitions, column)
        found = {r.k for r in frame.where(slice_.predicate(frame.schema)).collect()}
        assert found == set(chosen)


def test_the_repeated_hour_is_not_swallowed_by_its_neighbours() -> None:
    partitions = hours("2024-11-03", "America/New_York")
    first, second = "2024-11-03-01:00", "2024-11-03-01:00-0500"
    slice_ = make_slice(["2024-11-03-00:00", second], partitions, "at")
    assert len(slice_.boxes) == 2
    at = datetime(2024, 11, 3, 5, 30, tzinfo=UTC)
    assert not in_boxes(slice_, {"at": at})
    assert make_slice([first], partitions, "at").key_of({"at": at}) == first


def schema(ddl: str) -> StructType:
    """`name type`, without asking an engine to parse it."""
    name, _, type_ = ddl.rpartition(" ")
    return StructType([StructField(name.strip("`").replace("``", "`"), TYPES[type_])])


def test_bounds_are_half_open_and_typed() -> None:
    keys = ["2024-03-30", "2024-03-31"]
    slice_ = make_slice(keys, DAYS["Europe/Warsaw"], "day")
    assert slice_.predicate(schema("day date")) == "((`day` >= DATE '2024-03-30' AND `day` < DATE '2024-04-01'))"
    assert slice_.predicate(schema("day timestamp"), "t.") == (
        "((t.`day` >= TIMESTAMP '2024-03-29 23:00:00.000000+00:00' AND "
        "t.`day` < TIMESTAMP '2024-03-31 22:00:00.000000+00:00'))"
    )
    assert slice_.predicate(schema("day string")) == "(`day` IN ('2024-03-30', '2024-03-31'))"


def test_no_keys_are_no_rows() -> None:
    slice_ = make_slice([], DAYS["UTC"], "day")
    assert slice_.predicate(schema("day date")) == "FALSE"
    assert slice_.describe() == "nothing"


@pytest.mark.parametrize(
    ("partitions", "key", "ddl", "problem"),
    [
        (hours("2024-01-01", "UTC"), "2024-01-01-05:00", "c date", "not a midnight"),
        (DAYS["UTC"], "2024-03-01", "c bigint", "need TIMESTAMP, DATE or STRING"),
        (STATIC, "a", "c int", "'a' is no such value"),
        (STATIC, "a", "c date", "'a' is no such value"),
        (STATIC, "a", "c double", "'a' is no such value"),
        (STATIC, "a", "c boolean", "'a' is no such value"),
    ],
)
def test_columns_that_cannot_carry_the_partitions(
    partitions: dg.PartitionsDefinition[str], key: str, ddl: str, problem: str
) -> None:
    with pytest.raises(UnusablePartitionColumn, match=problem):
        make_slice([key], partitions, "c").predicate(schema(ddl))


def test_typed_members() -> None:
    partitions = dg.StaticPartitionsDefinition(["1", "true", "2024-01-01"])
    for key, ddl, expected in [
        ("1", "c int", "1"),
        ("true", "c boolean", "TRUE"),
        ("2024-01-01", "c date", "DATE '2024-01-01'"),
    ]:
        assert make_slice([key], partitions, "c").predicate(schema(ddl)) == f"(`c` IN ({expected}))"


def test_mistakes_in_partition_expr_are_named() -> None:
    with pytest.raises(PermanentError, match="dimension\\(s\\) kind"):
        make_slice(["2024-03-01|a"], GRID, {"day": "day"})
    with pytest.raises(PermanentError, match="one column name"):
        make_slice(["a"], STATIC, {"kind": "kind"})
    with pytest.raises(PermanentError, match="`nope` is not in the data"):
        make_slice(["a"], STATIC, "nope").predicate(schema("kind string"))
    with pytest.raises(PermanentError, match="cannot be said in SQL"):
        make_slice(["a"], STATIC, "").predicate(StructType([StructField("", StringType())]))


def test_a_column_of_any_name_carries_partitions() -> None:
    assert make_slice(["a"], STATIC, "k`; DROP").predicate(schema("`k``; DROP` string")) == "(`k``; DROP` IN ('a'))"


def test_a_stretch_of_a_stream_goes_from_the_last_position_to_the_newest_and_is_named_in_full() -> None:
    stretch = OffsetRange.of("shard", "number", {2: 9, 0: 5, 1: 7}, {0: 3, 1: 6, 4: 4})
    assert stretch.describe() == "0:4-5, 1:7-7, 2:0-9", (
        "two stretches with one name would pass for a retry of each other"
    )
    assert stretch.key_of({"shard": 0, "number": 4}) == "0:4-5"
    assert stretch.key_of({"shard": 0, "number": 3}) is None
    schema = StructType([StructField("shard", IntegerType()), StructField("number", LongType())])
    first, *_ = stretch.predicate(schema).split(" OR ")
    assert first == "(`shard` IN (0) AND (`number` > 3 AND `number` <= 5))"
