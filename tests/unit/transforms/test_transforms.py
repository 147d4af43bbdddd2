"""The small transforms, each against rows written by hand."""

from datetime import datetime

import pytest
from examples import generated
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_assets.transforms.data_value.distributed_aggregator import cube
from de_assets.transforms.data_value.static_joiner import join_reference, join_valid_at
from de_assets.transforms.error_management.late_data_detector import split_late
from de_assets.transforms.error_management.windowed_deduplicator import deduplicate
from de_assets.transforms.idempotency.slowly_changing_dimension import versions


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2024-10-{text}")


@pytest.mark.pattern("windowed_deduplicator")
class TestDeduplicate:
    def test_the_declared_survivor_stays_whatever_the_order_of_arrival(self, spark: SparkSession) -> None:
        rows = [("a", 2, "late copy"), ("a", 1, "first"), ("b", 5, "only")]
        for arrival in (rows, rows[::-1]):
            frame = spark.createDataFrame(arrival, "id STRING, seen INT, text STRING").repartition(3)
            kept = deduplicate(frame, ["id"], [F.col("seen").asc()]).collect()
            assert sorted(r["text"] for r in kept) == ["first", "only"]

    def test_rows_without_a_key_are_not_copies_of_each_other(self, spark: SparkSession) -> None:
        frame = spark.createDataFrame([(None, 1), (None, 1), ("a", 1), ("a", 1)], "id STRING, seen INT")
        assert deduplicate(frame, ["id"], [F.col("seen")]).count() == 3

    def test_the_key_may_have_several_columns(self, spark: SparkSession) -> None:
        frame = spark.createDataFrame([("h1", "a"), ("h2", "a"), ("h1", "a")], "hour STRING, id STRING")
        assert deduplicate(frame, ["hour", "id"], [F.col("id")]).count() == 2

    def test_an_order_is_required(self, spark: SparkSession) -> None:
        with pytest.raises(ValueError, match="order that names the survivor"):
            deduplicate(spark.range(1), ["id"], [])


@pytest.mark.pattern("late_data_detector")
def test_late_and_future_rows_are_captured(spark: SparkSession) -> None:
    window = at("10T10:00:00")
    events = {
        "first instant": at("10T10:00:00"),
        "last instant": at("10T10:59:59"),
        "next window": at("10T11:00:00"),
        "just before": at("10T09:59:59"),
        "future": at("19T10:00:00"),
        "unknown": None,
    }
    frame = spark.createDataFrame([(n, e, window) for n, e in events.items()], "n STRING, e TIMESTAMP, w TIMESTAMP")
    on_time, late = split_late(frame, "e", "w")
    assert {r["n"] for r in on_time.collect()} == {"first instant", "last instant"}
    lateness = {r["n"]: r["lateness_seconds"] for r in late.collect()}
    assert lateness == {"next window": -3600, "just before": 1, "future": -9 * 86400, "unknown": None}


class TestVersions:
    HISTORY = "user STRING, city STRING, at TIMESTAMP, op STRING"

    def build(self, spark: SparkSession, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        history = spark.createDataFrame(rows, self.HISTORY)
        built = versions(history, "user", ["city"], "at", F.col("op") == "D")
        return sorted((tuple(r) for r in built.collect()), key=lambda r: (r[0], r[2]))

    def test_intervals_are_half_open_and_follow_each_other(self, spark: SparkSession) -> None:
        rows = [("u", "Wien", at("10T00:00:00"), "I"), ("u", "Graz", at("11T00:00:00"), "U")]
        expected = [
            ("u", "Wien", at("10T00:00:00"), at("11T00:00:00"), False),
            ("u", "Graz", at("11T00:00:00"), None, True),
        ]
        assert self.build(spark, rows) == expected == self.build(spark, rows[::-1])

    def test_a_change_of_nothing_opens_no_version(self, spark: SparkSession) -> None:
        rows = [("u", "Wien", at("10T00:00:00"), "I"), ("u", "Wien", at("11T00:00:00"), "U")]
        assert self.build(spark, rows) == [("u", "Wien", at("10T00:00:00"), None, True)]

    def test_a_null_that_becomes_a_value_is_a_change(self, spark: SparkSession) -> None:
        rows = [("u", None, at("10T00:00:00"), "I"), ("u", "Wien", at("11T00:00:00"), "U")]
        assert [r[1] for r in self.build(spark, rows)] == [None, "Wien"]

    def test_a_deleted_user_has_no_open_version(self, spark: SparkSession) -> None:
        rows = [("u", "Wien", at("10T00:00:00"), "I"), ("u", "Wien", at("12T00:00:00"), "D")]
        assert self.build(spark, rows) == [("u", "Wien", at("10T00:00:00"), at("12T00:00:00"), False)]

    def test_a_user_who_returns_has_a_gap(self, spark: SparkSession) -> None:
        rows = [
            ("u", "Wien", at("10T00:00:00"), "I"),
            ("u", "Wien", at("11T00:00:00"), "D"),
            ("u", "Wien", at("12T00:00:00"), "I"),
        ]
        assert [(r[2], r[3]) for r in self.build(spark, rows)] == [
            (at("10T00:00:00"), at("11T00:00:00")),
            (at("12T00:00:00"), None),
        ]

    def test_versions_agree_with_replaying_the_changes(self, spark: SparkSession) -> None:
        """Forty worlds of two users each, who are other users in each."""
        cities, hours = st.sampled_from(["x", "y", None]), st.integers(0, 6)
        change = st.tuples(st.sampled_from("ab"), cities, hours, st.sampled_from("UD"))
        worlds = generated(st.lists(change, min_size=1, max_size=12), 40)
        unique = {(f"{n}{user}", hour): (city, op) for n, each in enumerate(worlds) for user, city, hour, op in each}
        rows = [(user, city, at(f"10T{hour:02}:00:00"), op) for (user, hour), (city, op) in unique.items()]
        built = self.build(spark, rows)
        for moment in (at(f"10T{h:02}:30:00") for h in range(7)):
            valid = {r[0]: r[1] for r in built if r[2] <= moment and (r[3] is None or moment < r[3])}
            state: dict[str, object] = {}
            for user, city, when, op in sorted(rows, key=lambda r: r[2]):
                if when <= moment:
                    state.pop(user, None) if op == "D" else state.__setitem__(user, city)
            assert valid == state


@pytest.mark.pattern("static_joiner")
class TestStaticJoiner:
    def test_events_meet_what_was_valid_then(self, spark: SparkSession) -> None:
        events = spark.createDataFrame(
            [
                ("before", "u", at("09T12:00:00")),
                ("first", "u", at("10T00:00:00")),
                ("boundary", "u", at("11T00:00:00")),
                ("stranger", "x", at("11T12:00:00")),
                ("nobody", None, at("11T12:00:00")),
            ],
            "id STRING, user STRING, t TIMESTAMP",
        )
        dimension = spark.createDataFrame(
            [("u", "Wien", at("10T00:00:00"), at("11T00:00:00")), ("u", "Graz", at("11T00:00:00"), None)],
            "user STRING, city STRING, valid_from TIMESTAMP, valid_to TIMESTAMP",
        )
        joined = join_valid_at(events, dimension, "user", "t", {"city": "home"}, matched="known")
        found = {r["id"]: (r["home"], r["known"]) for r in joined.collect()}
        assert found == {
            "before": (None, False),
            "first": ("Wien", True),
            "boundary": ("Graz", True),
            "stranger": (None, False),
            "nobody": (None, False),
        }
        assert joined.count() == 5

    def test_reference_without_a_match_stays(self, spark: SparkSession) -> None:
        events = spark.createDataFrame([("a", "mac", "1"), ("b", "pinephone", "1")], "id STRING, kind STRING, v STRING")
        devices = spark.createDataFrame([("mac", "1", "MacBook")], "type STRING, version STRING, full_name STRING")
        on = {"kind": "type", "v": "version"}
        joined = join_reference(events, devices, on, {"full_name": "device"}).collect()
        assert {r["id"]: r["device"] for r in joined} == {"a": "MacBook", "b": None}


@pytest.mark.pattern("distributed_aggregator")
def test_the_cube_recounts_distinct_visitors_for_every_subtotal(spark: SparkSession) -> None:
    events = spark.createDataFrame(
        [("d1", "AT", "mac", "u1"), ("d1", "AT", "lg", "u1"), ("d1", None, "lg", "u2"), ("d2", "DE", "lg", "u1")],
        "day STRING, country STRING, device STRING, user STRING",
    )
    measures = {"visits": F.count(F.lit(1)), "users": F.count_distinct("user")}
    rows = {
        (r["day"], r["grouping"], r["country"], r["device"]): (r["visits"], r["users"])
        for r in cube(events, "day", ["country", "device"], measures).collect()
    }
    assert rows[("d1", 3, None, None)] == (3, 2)  # the day's total: u1 counts once
    assert rows[("d1", 1, "AT", None)] == (2, 1)
    assert rows[("d1", 1, None, None)] == (1, 1)  # the unknown country is no subtotal
    assert rows[("d1", 2, None, "lg")] == (2, 2)
    assert rows[("d1", 0, "AT", "mac")] == (1, 1)
    assert rows[("d2", 3, None, None)] == (1, 1)
    assert {day for day, *_ in rows} == {"d1", "d2"}
