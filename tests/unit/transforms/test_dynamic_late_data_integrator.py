"""Rows that came in another window than their own, beside a search by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from de_assets.transforms.error_management.dynamic_late_data_integrator import LateRule, take_in_late
from de_resources.delta.metadata import FILTER_CONDITIONS

pytestmark = pytest.mark.pattern("dynamic_late_data_integrator")

HOUR = timedelta(hours=1)
START = datetime(2024, 10, 10, tzinfo=UTC)
TAKES = timedelta(hours=3)
RULE = LateRule("event hour", "landing.hour", TAKES, key=["id"], survivor=["text"])
REMOVED = ("not_ahead", "not_too_old", "first_copy")


class Landed(NamedTuple):
    """A row: whose, of which hour, what it says, and when it came."""

    id: str
    of: int
    text: str
    came: int


def on_time(spark: SparkSession, rows: list[Landed]) -> DataFrame:
    values = [(row.id, START + row.of * HOUR, row.text) for row in rows]
    return spark.createDataFrame(values, "id STRING, `event hour` TIMESTAMP, text STRING")


def late(spark: SparkSession, rows: list[Landed]) -> DataFrame:
    values = [(row.id, START + row.of * HOUR, START + row.came * HOUR, row.text) for row in rows]
    return spark.createDataFrame(values, "id STRING, `event hour` TIMESTAMP, `landing.hour` TIMESTAMP, text STRING")


def by_hand(there: list[Landed], came: list[Landed]) -> tuple[set[tuple[str, int, str]], dict[int, dict[str, int]]]:
    """The rows of every hour, and by hour what was removed and why."""
    kept = {(row.id, row.of): row.text for row in there}
    told: dict[int, dict[str, int]] = {}
    for row in sorted(came, key=lambda row: (row.came, row.text)):
        removed = told.setdefault(row.of, dict.fromkeys(REMOVED, 0))
        if row.of >= row.came:
            removed["not_ahead"] += 1
        elif (row.came - row.of) * HOUR > TAKES:
            removed["not_too_old"] += 1
        elif (row.id, row.of) in kept:
            removed["first_copy"] += 1
        else:
            kept[row.id, row.of] = row.text
    return {(id_, hour, text) for (id_, hour), text in kept.items()}, told


def drawn(seed: int) -> tuple[list[Landed], list[Landed]]:
    """Few identities, so that everything comes twice somewhere: on time and late, late twice, ahead and then late."""
    random_ = random.Random(seed)  # noqa: S311 - the same rows every time
    there = {(f"v{random_.randrange(12)}", of): Landed("", of, "on time", of) for of in range(6) for _ in range(4)}
    came = []
    for _ in range(80):
        of, at = random_.randrange(6), random_.randrange(12)
        if of != at:
            came.append(Landed(f"v{random_.randrange(24)}", of, f"line {random_.randrange(3)}", at))
    return [row._replace(id=id_) for (id_, _), row in there.items()], came


def found_by(spark: SparkSession, there: list[Landed], came: list[Landed]) -> tuple[list[tuple[str, int, str]], object]:
    told = take_in_late(on_time(spark, there), late(spark, came), RULE)
    rows = [(row[0], (row[1].astimezone(UTC) - START) // HOUR, row[2]) for row in told.frame.collect()]
    removed = {
        (start - START) // HOUR: {name: account[FILTER_CONDITIONS][name]["first"] for name in REMOVED}
        for start, account in told.metadata().items()
        if start is not None
    }
    return rows, removed


def test_each_hour_has_what_came_for_it_soon_enough_each_once_in_whatever_order_it_came(spark: SparkSession) -> None:
    there, came = drawn(17)
    expected, told = by_hand(there, came)
    assert len(expected) > len(there)
    assert all(sum(removed[name] for removed in told.values()) for name in REMOVED), "each case is drawn"
    for rows in (came, came[::-1]):
        found, removed = found_by(spark, there, rows)
        assert len(found) == len(expected)
        assert set(found) == expected
        assert removed == told


def test_a_row_is_taken_in_at_exactly_the_age_and_no_window_later(spark: SparkSession) -> None:
    found, removed = found_by(spark, [], [Landed("exactly", 0, "", 3), Landed("later", 0, "", 4)])
    assert found == [("exactly", 0, "")]
    assert removed == {0: {"not_ahead": 0, "not_too_old": 1, "first_copy": 0}}


def test_without_late_rows_nothing_changes_and_the_account_is_one_of_zeros(spark: SparkSession) -> None:
    there = [Landed("a", 0, "on time", 0)]
    told = take_in_late(on_time(spark, there), late(spark, []), RULE, expected=[START])
    assert [row["text"] for row in told.frame.collect()] == ["on time"]
    (account,) = told.metadata().values()
    assert account[FILTER_CONDITIONS]["not_too_old"] == {"first": 0, "alone": 0, "unknown": 0}
