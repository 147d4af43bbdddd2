"""Measures in parts, salted keys, and the week from its days; each beside a plain computation over all rows."""

import re
from collections import defaultdict
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_assets.transforms.data_value.distinct_cube import cube_with_distinct
from de_assets.transforms.data_value.distributed_aggregator import cube
from de_assets.transforms.data_value.mergeable_measures import (
    STANDARD_ERROR,
    Measure,
    Measures,
    bounded,
    count,
    distinct,
    mean,
    sketch_of,
    total,
)
from de_assets.transforms.data_value.salting import NoSalt, Skew, aggregate, aggregate_by_skew, skew_of
from de_assets.transforms.data_value.weekly_cube import weekly_cube

pytestmark = pytest.mark.pattern("distributed_aggregator")

# A hot key, a rare one, an unknown one; few numbers and names, so that rows repeat.
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["hot", "hot", "hot", "rare", "old", "new", "", None]),
        st.one_of(st.none(), st.integers(-5, 5)),
        st.one_of(st.none(), st.sampled_from(["", "ann", "bob", "eve"])),
    ),
    max_size=60,
)


def measures() -> Measures:
    """One of each kind. A function, since columns need an engine."""
    number = F.col("number")
    return {"rows": count(), "sum": total(number), "mean": mean(number), "names": distinct(F.col("name"))}


def frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, "key STRING, number LONG, name STRING")


def expected(rows: list[tuple[Any, ...]]) -> dict[str | None, tuple[Any, ...]]:
    groups: dict[str | None, list[tuple[Any, ...]]] = defaultdict(list)
    for key, number, name in rows:
        groups[key].append((number, name))
    found: dict[str | None, tuple[Any, ...]] = {}
    for key, members in groups.items():
        numbers = [number for number, _ in members if number is not None]
        names = {name for _, name in members if name is not None}
        average = float(Fraction(sum(numbers), len(numbers))) if numbers else None
        found[key] = (len(members), sum(numbers) if numbers else None, average, len(names))
    return found


class TestSalting:
    @settings(max_examples=4)
    @given(rows=ROWS, salts=st.sampled_from([1, 2, 7]))
    def test_the_result_is_that_of_plain_python_whatever_the_salts(
        self, spark: SparkSession, rows: list[tuple[Any, ...]], salts: int
    ) -> None:
        found = aggregate(frame(spark, rows), ["key"], measures(), salts=salts).collect()
        assert {row["key"]: tuple(row)[1:] for row in found} == expected(rows)
        assert len(found) == len(expected(rows))

    def test_a_salted_key_is_cut_into_groups_of_about_the_same_size(self, spark: SparkSession) -> None:
        """What it is for: no group has much more than its share of the hot key, and the salts of a rerun are the same."""
        rows = spark.range(4000).select(
            F.lit("hot").alias("key"), F.col("id").alias("number"), F.lit("x").alias("name")
        )
        parts: list[list[int]] = []
        for partitions in (3, 8):
            salted = aggregate(rows.repartition(partitions), ["key"], {"rows": count()}, salts=4)
            assert [row["rows"] for row in salted.collect()] == [4000]
            parts.append(sorted(_rows_per_group(rows.repartition(partitions), 4)))
        assert parts[0] == parts[1]
        assert len(parts[0]) == 4
        assert max(parts[0]) < 1200

    def test_distinct_values_of_salted_groups_are_merged_and_not_added(self, spark: SparkSession) -> None:
        rows = spark.range(30_000).select(
            F.lit("hot").alias("key"), F.col("id").alias("number"), (F.col("id") % 5000).cast("string").alias("name")
        )
        found = aggregate(rows, ["key"], {"names": distinct(F.col("name"))}, salts=8).collect()[0]["names"]
        assert found == pytest.approx(5000, rel=3 * STANDARD_ERROR)

    def test_the_skew_is_measured(self, spark: SparkSession) -> None:
        rows = frame(spark, [("hot", 1, "a")] * 6 + [(None, 1, "a")] * 3 + [("rare", 1, "a")])
        assert skew_of(rows, ["key"]) == Skew(10, 6)
        assert skew_of(rows.limit(0), ["key"]) == Skew(0, 0)
        assert Skew(0, 0).salts(8) == 1

    def test_only_what_is_skewed_is_salted(self) -> None:
        """By the given figure: 200 tasks of 10 rows each. A key of five tasks' rows stays whole, and more is cut."""
        assert Skew(2000, 50).factor(200) == 5.0
        assert Skew(2000, 50).salts(200) == 1
        assert Skew(2000, 51).salts(200) == 5
        assert Skew(2000, 1000).salts(200) == 100
        assert Skew(2000, 2000).salts(200) == 200

    def test_the_measured_skew_decides_about_the_plan(self, spark: SparkSession) -> None:
        rows = frame(spark, [("hot", n, "a") for n in range(60)] + [("rare", 1, "a")])
        plain = aggregate_by_skew(rows, ["key"], {"rows": count()}, tasks=4)
        salted = aggregate_by_skew(rows, ["key"], {"rows": count()}, tasks=40)
        given_one = aggregate_by_skew(rows, ["key"], {"rows": count()}, tasks=40, skew=Skew(61, 2))
        for found, cut in ((plain, False), (salted, True), (given_one, False)):
            assert {row["key"]: row["rows"] for row in found.collect()} == {"hot": 60, "rare": 1}
            assert ("_salt" in _optimized(found)) is cut

    def test_no_salt_is_refused(self, spark: SparkSession) -> None:
        with pytest.raises(NoSalt, match="0 salts: every row needs one"):
            aggregate(frame(spark, []), ["key"], measures(), salts=0)


def _rows_per_group(rows: DataFrame, salts: int) -> list[int]:
    """Of the groups by key and salt, from the first stage of the plan that `aggregate` makes."""
    seen = aggregate(rows, ["key"], {"groups": Measure(F.count(F.lit(1)), F.collect_list)}, salts=salts).collect()
    return [n for row in seen for n in row["groups"]]


def _optimized(found: DataFrame) -> str:
    return str(found._jdf.queryExecution().optimizedPlan().toString())  # type: ignore[operator]


MONDAY = date(2024, 12, 30)
"""Of the first week of 2025, two days of which lie in the year before."""
VISITS = st.lists(
    st.tuples(
        st.integers(-1, 7),  # the day, from the Sunday before to the Monday after
        st.sampled_from(["AT", "DE", None]),
        st.sampled_from(["mac", None]),
        st.sampled_from(["", "ann", "bob", "eve"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


def days_of(spark: SparkSession, visits: list[tuple[Any, ...]]) -> tuple[DataFrame, DataFrame]:
    """The cube and the sketches of the days."""
    rows = [(MONDAY + timedelta(days=day), *rest) for day, *rest in visits]
    dated = spark.createDataFrame(rows, "event_date DATE, country STRING, device STRING, user STRING, bot BOOLEAN")
    counts = {"visits": F.count("*"), "users": F.count_distinct("user"), "bot_visits": F.count_if("bot")}
    dimensions = ["country", "device"]
    return (
        cube(dated, "event_date", dimensions, counts),
        cube(dated, "event_date", dimensions, {"visitors": sketch_of(F.col("user"))}),
    )


class TestWeek:
    @settings(max_examples=3)
    @given(visits=VISITS)
    def test_a_week_is_what_plain_python_counts_in_all_its_visits(
        self, spark: SparkSession, visits: list[tuple[Any, ...]]
    ) -> None:
        groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for day, country, device, user, bot in visits:
            when = MONDAY + timedelta(days=day)
            week = when - timedelta(days=when.isocalendar().weekday - 1)
            for grouping in range(4):
                key = (week, grouping, None if grouping & 2 else country, None if grouping & 1 else device)
                groups[key].append((when, user, bot))
        wanted = {
            key: (len({w for w, _, _ in rows}), len(rows), bots, bots / len(rows), len({u for _, u, _ in rows}))
            for key, rows in groups.items()
            for bots in [sum(bot for *_, bot in rows)]
        }
        found = weekly_cube(*days_of(spark, visits), ["country", "device"]).collect()
        assert {tuple(row)[:4]: tuple(row)[4:9] for row in found} == wanted
        assert len(found) == len(wanted)
        assert {row["users_relative_error"] for row in found} == {STANDARD_ERROR}

    def test_a_mean_is_the_sum_over_the_count_and_no_mean_of_means(self, spark: SparkSession) -> None:
        """Monday: one of two visits is a robot's. Tuesday: none of eight. The week: one of ten, and not a quarter."""
        visits = [(0, "AT", "mac", "ann", bot) for bot in (True, False)] + [(1, "AT", "mac", "ann", False)] * 8
        (row,) = weekly_cube(*days_of(spark, visits), ["country", "device"]).where("grouping = 3").collect()
        assert row["bot_share"] == 0.1

    def test_many_visitors_are_within_the_stated_error(self, spark: SparkSession) -> None:
        """20,000 people, each on several days: the days' numbers add up to far more, and no day has all."""
        seen = spark.range(60_000).select(
            F.date_add(F.lit(MONDAY), (F.col("id") % 7).cast("int")).alias("event_date"),
            F.lit("AT").alias("country"),
            (F.col("id") % 20_000).cast("string").alias("user"),
        )
        days = cube(
            seen,
            "event_date",
            ["country"],
            {"visits": F.count("*"), "users": F.count_distinct("user"), "bot_visits": F.lit(0) * F.count("*")},
        )
        sketches = cube(seen, "event_date", ["country"], {"visitors": sketch_of(F.col("user"))})
        found = weekly_cube(days, sketches, ["country"]).collect()
        assert len(found) == 2
        for row in found:
            assert row["visits"] == 60_000
            assert row["users_estimate"] == pytest.approx(20_000, rel=3 * row["users_relative_error"])
            assert row["users_relative_error"] == pytest.approx(1.039 / 64, rel=0.001)

    def test_without_the_sketch_of_a_day_visitors_are_unknown(self, spark: SparkSession) -> None:
        days, sketches = days_of(spark, [(0, "AT", "mac", "ann", False), (1, "DE", "mac", "bob", False)])
        monday_only = sketches.where(F.col("event_date") == F.lit(MONDAY))
        found = {
            (row["grouping"], row["country"]): (row["visits"], row["users_estimate"], row["users_relative_error"])
            for row in weekly_cube(days, monday_only, ["country", "device"]).where("grouping IN (1, 3)").collect()
        }
        assert found == {
            (3, None): (2, None, None),
            (1, "AT"): (1, 1, STANDARD_ERROR),
            (1, "DE"): (1, None, None),
        }

    def test_a_week_without_visits_has_no_rows(self, spark: SparkSession) -> None:
        days, sketches = days_of(spark, [])
        assert weekly_cube(days, sketches, ["country", "device"]).collect() == []


class TestDistinct:
    @settings(max_examples=3)
    @given(visits=VISITS, tasks=st.sampled_from([1, 3]))
    def test_every_combination_has_what_plain_python_counts(
        self, spark: SparkSession, visits: list[tuple[Any, ...]], tasks: int
    ) -> None:
        """Nobody is no visitor, and a value that is summed up is not one that is unknown."""
        groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
        rows = [(day, country, device, user or None, bot) for day, country, device, user, bot in visits]
        for day, country, device, user, bot in rows:
            for grouping in range(4):
                key = (day, grouping, None if grouping & 2 else country, None if grouping & 1 else device)
                groups[key].append((user, bot))
        wanted = {
            key: (len({user for user, _ in them} - {None}), len(them), sum(bot for _, bot in them) / len(them))
            for key, them in groups.items()
        }
        names = "`the day` LONG, within STRING, who STRING, `by_0` STRING, part_0 BOOLEAN"
        events = spark.createDataFrame(rows, names)
        measures = {"rows": count(), "share": mean(F.col("part_0").cast("int"))}
        found = cube_with_distinct(
            events, "the day", ["within", "who"], measures, of="by_0", named="people", tasks=tasks
        )
        assert found.columns == ["the day", "grouping", "within", "who", "people", "rows", "share"]
        figures = found.collect()
        assert {tuple(row)[:4]: tuple(row)[4:] for row in figures} == wanted
        assert len(figures) == len(wanted)

    def test_the_rows_are_moved_before_they_are_multiplied(self, spark: SparkSession) -> None:
        """What is moved after it are sums. From the top: the last step of a plan comes first."""
        visits = spark.range(3000).select(
            (F.col("id") % 1).alias("day"), (F.col("id") % 2).alias("kind"), F.col("id").alias("who")
        )
        found = cube_with_distinct(visits, "day", ["kind"], {}, of="who", named="people", tasks=3)
        assert {tuple(row) for row in found.collect()} == {(0, 0, 0, 1500), (0, 0, 1, 1500), (0, 1, None, 3000)}
        plan = str(found._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]
        final = plan.split("Initial Plan")[0]
        steps = re.findall(r"Exchange hashpartitioning\((\w+)#|(Generate) explode", final)
        assert ["".join(step) for step in steps] == ["within", "Generate", "who"]


def test_no_events_have_no_totals_and_a_day_that_is_unknown_is_no_subtotal(spark: SparkSession) -> None:
    """A total of nothing would be a row for a day that nobody named; a null day has its own groups."""
    rows = [(None, "AT"), (None, None), (MONDAY, None)]
    events = spark.createDataFrame(rows, "event_date DATE, country STRING")
    counts = {"visits": F.count("*")}
    assert cube(events.limit(0), "event_date", ["country"], counts).collect() == []
    assert aggregate(events.limit(0), ["country"], {"rows": count()}, salts=3).collect() == []
    found = [tuple(row) for row in cube(events, "event_date", ["country"], counts).collect()]
    assert set(found) == {
        (None, 1, None, 2),
        (None, 0, "AT", 1),
        (None, 0, None, 1),
        (MONDAY, 1, None, 1),
        (MONDAY, 0, None, 1),
    }
    assert len(found) == 5


def test_an_estimate_keeps_within_what_is_known(spark: SparkSession) -> None:
    found = spark.range(1).select(*(bounded(F.lit(n), F.lit(5), F.lit(9)) for n in (4, 7, 10))).collect()[0]
    assert tuple(found) == (5, 7, 9)
