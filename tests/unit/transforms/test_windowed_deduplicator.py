"""Copies within a partition and in the partitions before it, against a count in plain Python."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_assets.transforms.error_management.windowed_deduplicator import LookBack, number_copies

pytestmark = pytest.mark.pattern("windowed_deduplicator")

START = datetime(2026, 1, 31, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
Row = tuple[int, str | None, int]
"""Hour, key, text: the least text of an hour survives."""


def numbered(spark: SparkSession, rows: list[Row], partitions: int) -> list[tuple[int, str | None, int, int]]:
    frame = spark.createDataFrame(
        [(START + hour * HOUR, hour, key, text) for hour, key, text in rows],
        "hour TIMESTAMP, n INT, key STRING, text INT",
    ).repartition(3)
    found = number_copies(
        frame, ["key"], [F.col("text").asc()], into="copy", look_back=LookBack("hour", partitions, HOUR)
    )
    return sorted((r.n, r.key or "", r.text, r.copy) for r in found.collect())


def counted(rows: list[Row], partitions: int) -> list[tuple[int, str | None, int, int]]:
    """One row at a time: the copies in its own hour that come before it, and all in the hours before."""
    result = []
    for hour, key, text in rows:
        before = [(h, t) for h, k, t in rows if k == key and k is not None and hour - partitions <= h <= hour]
        result.append((hour, key or "", text, 1 + sum(h < hour or t < text for h, t in before)))
    return sorted(result)


@pytest.mark.parametrize("partitions", [0, 1, 3])
def test_every_copy_is_numbered_as_by_hand(spark: SparkSession, partitions: int) -> None:
    chance = Random(7)  # noqa: S311 - the same rows in every run
    keys = ["a", "b", "c", None]
    rows = [(chance.randrange(9), chance.choice(keys), text) for text in range(60)]
    assert numbered(spark, rows, partitions) == counted(rows, partitions)


def test_a_copy_beyond_the_look_back_passes_and_one_that_goes_on_does_not(spark: SparkSession) -> None:
    rows: list[Row] = [(0, "pauses", 1), (2, "pauses", 2), (0, "goes on", 3), (1, "goes on", 4), (2, "goes on", 5)]
    kept = {(hour, key) for hour, key, _, copy in numbered(spark, rows, 1) if copy == 1}
    assert kept == {(0, "pauses"), (2, "pauses"), (0, "goes on")}


def test_the_earliest_partition_wins_whatever_the_survivors_order_says(spark: SparkSession) -> None:
    assert [copy for *_, copy in numbered(spark, [(0, "a", 9), (1, "a", 1)], 1)] == [1, 2]


@pytest.mark.parametrize(("partitions", "length"), [(-1, HOUR), (1, timedelta(0))])
def test_a_look_back_that_is_none_is_refused(partitions: int, length: timedelta) -> None:
    with pytest.raises(ValueError, match="look-back"):
        LookBack("hour", partitions, length)
