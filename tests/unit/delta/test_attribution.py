"""Rows and files find their partition key as if every key had been asked, at a cost that does not grow with the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from math import ceil, log2
from random import Random
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampNTZType

from de_checks.violations import Count, count_by_key
from de_resources.contract import Contract
from de_resources.delta.attribution import KeyGroups
from de_resources.delta.slices import Slice, make_slice

YEAR = dg.HourlyPartitionsDefinition("2023-01-01-00:00", end_date="2024-01-01-00:00")
FIRST = datetime(2023, 1, 1, tzinfo=UTC)
LETTERS = dg.StaticPartitionsDefinition([*"abc", "None", "x'y"])


def around(day: str, zone: str) -> dg.HourlyPartitionsDefinition:
    """The hours of two days, in a zone whose clocks change on the first of them."""
    end = date.fromisoformat(day) + timedelta(days=2)
    return dg.HourlyPartitionsDefinition(f"{day}-00:00", end_date=f"{end}-00:00", timezone=zone)


HOURLY = [
    around("2024-10-27", "Europe/Warsaw"),  # an hour twice
    around("2024-03-31", "Europe/Warsaw"),  # an hour that is not there
    around("2024-04-07", "Australia/Lord_Howe"),  # half an hour twice
    around("2024-01-01", "Asia/Kathmandu"),  # a quarter beside the hour
]
DAILY = dg.DailyPartitionsDefinition("2024-03-25", end_date="2024-04-12", timezone="America/New_York")
WEEKLY = dg.WeeklyPartitionsDefinition("2024-03-04", end_date="2024-06-03", timezone="Europe/Warsaw", hour_offset=2)


def owner_of(instant: datetime, chosen: list[str], windows: dg.TimeWindowPartitionsDefinition) -> str | None:
    """The definition: the first of the keys whose window has the instant. Every key is asked."""
    for key in chosen:
        start, end = bounds(windows)[key]
        if start <= instant.timestamp() < end:
            return key
    return None


@cache
def bounds(windows: dg.TimeWindowPartitionsDefinition) -> dict[str, tuple[float, float]]:
    """Beginning and end of each window as seconds since 1970."""
    known = {key: windows.time_window_for_partition_key(key) for key in windows.get_partition_keys()}
    return {key: (window.start.timestamp(), window.end.timestamp()) for key, window in known.items()}


def moments(windows: dg.TimeWindowPartitionsDefinition) -> list[datetime]:
    """Beginning, middle and last microsecond of each window, and some time before the first and after the last, in UTC."""
    starts = [datetime.fromtimestamp(start, UTC) for start, _ in bounds(windows).values()]
    ends = [datetime.fromtimestamp(end, UTC) for _, end in bounds(windows).values()]
    edge = timedelta(microseconds=1)
    middles = [start + (end - start) / 2 for start, end in zip(starts, ends, strict=True)]
    return [
        starts[0] - edge,
        *starts,
        *middles,
        *(end - edge for end in ends),
        ends[-1],
        ends[-1] + timedelta(days=400),
    ]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_an_instant_has_the_key_whose_window_has_it(data: st.DataObject) -> None:
    windows = data.draw(st.sampled_from([*HOURLY, DAILY, WEEKLY]))
    chosen = data.draw(st.lists(st.sampled_from(windows.get_partition_keys()), unique=True))
    slice_ = make_slice(chosen, windows, "at")
    for instant in moments(windows):
        expected = owner_of(instant, chosen, windows)
        assert slice_.key_of({"at": instant}) == expected
        assert slice_.key_of({"at": instant.replace(tzinfo=None)}) == expected, "a table's naive times are UTC"
    assert slice_.key_of({"at": None}) is None


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(DAILY.get_partition_keys()), unique=True))
def test_a_day_and_a_text_have_the_key_that_names_them(chosen: list[str]) -> None:
    slice_ = make_slice(chosen, DAILY, "day")
    for key in [*DAILY.get_partition_keys(), "2024-03-24", "2024-04-12"]:
        expected = key if key in chosen else None
        assert slice_.key_of({"day": date.fromisoformat(key)}) == expected
        assert slice_.key_of({"day": key}) == expected
    assert slice_.key_of({"day": "2024-03-26 "}) is None


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(HOURLY[0].get_partition_keys()), st.sampled_from(LETTERS.get_partition_keys())),
        unique=True,
        max_size=12,
    )
)
def test_two_dimensions_have_the_key_of_both(cells: list[tuple[str, str]]) -> None:
    grid = dg.MultiPartitionsDefinition({"hour": HOURLY[0], "kind": LETTERS})
    keys = {cell: str(dg.MultiPartitionKey({"hour": cell[0], "kind": cell[1]})) for cell in cells}
    slice_ = make_slice(list(keys.values()), grid, {"hour": "at", "kind": "kind"})
    for instant in moments(HOURLY[0]):
        for kind in [*LETTERS.get_partition_keys(), "z", None]:
            hour = owner_of(instant, [*{h: None for h, k in cells if k == kind}], HOURLY[0])
            expected = keys[hour, kind] if hour is not None and kind is not None else None
            assert slice_.key_of({"at": instant, "kind": kind}) == expected


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (["1", "2"], 2, "2"),
        (["01", "2"], 1, "01"),  # the engine is asked for the number as well
        (["1", "2"], 3, None),
        (["true", "false"], False, "false"),
        (["1", "true"], True, "true"),
        (["2024-01-01"], date(2024, 1, 1), "2024-01-01"),
        (["a", "None"], None, None),  # a null is no member, whatever the members are called
        (["a", "1"], "1", "1"),
        ([], "a", None),
    ],
)
def test_a_member_is_compared_as_the_columns_type_has_it(keys: list[str], value: Any, expected: str | None) -> None:
    slice_ = make_slice(keys, dg.StaticPartitionsDefinition(keys), "k")
    assert slice_.key_of({"k": value}) == expected
    assert any(d.contains(value) for box in slice_.by_key.values() for d in box) == (expected is not None)


class Asked(float):
    """A number that counts how often it is compared."""

    count = 0

    def __lt__(self, other: float) -> bool:
        Asked.count += 1
        return float(self) < other

    def __le__(self, other: float) -> bool:
        Asked.count += 1
        return float(self) <= other

    def __gt__(self, other: float) -> bool:
        Asked.count += 1
        return float(self) > other

    def __ge__(self, other: float) -> bool:
        Asked.count += 1
        return float(self) >= other


class Moment(datetime):
    """A partition value of a file whose comparisons are counted."""

    def timestamp(self) -> float:
        return Asked(super().timestamp())


def test_files_of_a_year_of_hours_are_attributed_by_a_few_comparisons_each() -> None:
    keys = YEAR.get_partition_keys()
    slice_ = make_slice(keys, YEAR, "hour")
    values = [Moment.fromtimestamp((FIRST + timedelta(hours=n)).timestamp(), UTC) for n in range(len(keys))]
    Asked.count = 0
    assert [slice_.key_of({"hour": value}) for value in values] == keys
    # A search among the bounds, and one key that is asked; asking all keys would be 38 million comparisons.
    assert Asked.count <= len(values) * (ceil(log2(len(keys) + 1)) + 3)
    assert len(slice_.boxes) == 1


class Readings(pa.DataFrameModel):
    """Rows of which a few break a rule."""

    at: T.TimestampType = pa.Field(nullable=False, description="When")
    ntz: T.TimestampNTZType = pa.Field(nullable=True, description="When, without a zone")
    day: T.DateType = pa.Field(nullable=True, description="Day")
    hour: T.StringType = pa.Field(nullable=True, description="Partition as text")
    number: T.IntegerType = pa.Field(nullable=True, description="Partition as a number")
    flag: T.BooleanType = pa.Field(nullable=True, description="Partition as a switch")
    kind: T.StringType = pa.Field(nullable=True, description="Partition of a second dimension")
    value: T.IntegerType = pa.Field(nullable=True, ge=3, description="What the rules are about")

    class Config:
        name = "x.readings"
        metadata = {"owner": "team:web", "rules": {"even": "value % 2 = 0"}}  # noqa: RUF012


CONTRACT = Contract.of(Readings)
NUMBERS = dg.StaticPartitionsDefinition(["01", "2", "3"])
FLAGS = dg.StaticPartitionsDefinition(["true", "false"])
GRID = dg.MultiPartitionsDefinition({"hour": HOURLY[0], "kind": LETTERS})


def readings(random: Random) -> list[tuple[Any, ...]]:
    """Rows around the bounds of the windows, and nulls."""
    return [
        (
            at,
            random.choice([at.replace(tzinfo=None), None]),
            random.choice([at.date(), None]),
            random.choice([*windows.get_partition_keys(), None]),
            random.choice([1, 2, 3, 4, None]),
            random.choice([True, False, None]),
            random.choice([*LETTERS.get_partition_keys(), None]),
            random.choice([1, 2, 3, 4, None]),
        )
        for windows in (*HOURLY, WEEKLY, DAILY)
        for at in random.choices(moments(windows), k=40)
    ]


def slices(random: Random) -> Iterator[Slice]:
    """Every kind of column and of keys, some keys of each."""

    def some(partitions: dg.PartitionsDefinition, count: int) -> list[str]:
        return random.sample(partitions.get_partition_keys(), count)

    for windows in (HOURLY[0], HOURLY[2], DAILY):
        yield make_slice(some(windows, 12), windows, "at")
    yield make_slice(some(HOURLY[0], 20), HOURLY[0], "ntz")
    yield make_slice(some(DAILY, 7), DAILY, "day")
    yield make_slice(some(HOURLY[0], 20), HOURLY[0], "hour")
    yield make_slice(["3", "01"], NUMBERS, "number")
    yield make_slice(["false"], FLAGS, "flag")
    yield make_slice(["x'y", "None", "b"], LETTERS, "kind")
    yield make_slice(some(GRID, 60), GRID, {"hour": "at", "kind": "kind"})


def counted_one_by_one(frame: DataFrame, slices: list[Slice]) -> list[dict[str, Count]]:
    """What each key's own predicate says of every row, key by key, added up here."""
    predicates = [slice_.key_predicate(key, frame.schema) for slice_ in slices for key in slice_.keys]
    hits = (f"coalesce({predicate}, FALSE) AS k{n}" for n, predicate in enumerate(predicates))
    rows = frame.selectExpr("at IS NULL", "value", *hits).collect()
    counters = iter([Counter[str]() for _ in predicates])
    counts = [{key: next(counters) for key in slice_.keys} for slice_ in slices]
    ordered = [counter for by_key in counts for counter in by_key.values()]
    for absent, value, *mine in rows:
        broken = {
            "rows": True,
            "at_present": absent,
            "value_greater_than_or_equal_to": value is not None and value < 3,
            "even": value is None or value % 2 != 0,
        }
        for counter in (counter for counter, hit in zip(ordered, mine, strict=True) if hit):
            counter.update(rule for rule, bad in broken.items() if bad)
    names = [rule.name for rule in CONTRACT.rules]
    return [{k: Count(c["rows"], {n: c[n] for n in names}) for k, c in by_key.items()} for by_key in counts]


def test_violations_are_attributed_as_by_each_keys_own_predicate(spark: SparkSession) -> None:
    random = Random(7)  # noqa: S311 - the same rows every time
    frame = spark.createDataFrame(readings(random), CONTRACT.struct_type()).coalesce(1)
    known = list(slices(random))
    for slice_, expected in zip(known, counted_one_by_one(frame, known), strict=True):
        counts = count_by_key(frame, slice_, CONTRACT)
        assert counts == expected, slice_.describe()
        assert list(counts) == list(slice_.keys)
        assert sum(count.total for count in counts.values()), "there are violations to attribute"


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe"])
@pytest.mark.usefixtures("compiled_plans")
def test_times_without_a_zone_are_grouped_in_utc_whatever_the_sessions_zone_is(spark: SparkSession, zone: str) -> None:
    windows = around("2024-04-07", zone)
    keys = windows.get_partition_keys()
    groups = KeyGroups(make_slice(keys, windows, "ntz").by_key, StructType().add("ntz", TimestampNTZType()))
    starts = [windows.time_window_for_partition_key(key).start.astimezone(UTC).replace(tzinfo=None) for key in keys]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame(list(zip(keys, starts, strict=True)), "k string, ntz timestamp_ntz")
        found = frame.selectExpr("k", *(f"{e} AS step" for e in groups.expressions)).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert {row.k: groups.key_of([row.step]) for row in found} == {key: key for key in keys}


@pytest.mark.parametrize("column", ["at", "ntz", "day", "hour", "number"])
def test_the_query_for_a_year_of_hours_is_that_for_a_day(column: str) -> None:
    day, year = YEAR.get_partition_keys()[:24], YEAR.get_partition_keys()
    schema = CONTRACT.struct_type()
    if column == "number":
        keys = dg.StaticPartitionsDefinition([str(n) for n in range(8760)])
        few, many = (make_slice(keys.get_partition_keys()[:n], keys, column) for n in (24, 8760))
    else:
        few, many = (make_slice(keys, YEAR, column) for keys in (day, year))
    assert KeyGroups(few.by_key, schema).expressions == KeyGroups(many.by_key, schema).expressions
