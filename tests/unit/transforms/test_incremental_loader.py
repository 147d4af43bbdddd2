"""What increments add up to, whatever their order."""

from itertools import permutations

import pytest
from pyspark.sql import SparkSession

from de_assets.transforms.data_ingestion.incremental_loader import newest_states

pytestmark = pytest.mark.pattern("incremental_loader")

COLUMNS = "id STRING, page STRING, taken_back BOOLEAN, at INT"
STATES = [
    ("kept", "old", False, 1),
    ("kept", "new", False, 2),
    ("gone", "page", False, 1),
    ("gone", "page", True, 2),
    ("back", "page", True, 1),
    ("back", "again", False, 2),
    ("at once", "page", False, 1),
    ("at once", "page", True, 1),
    ("unsaid", "page", None, 1),
]
CURRENT = {("kept", "new"), ("back", "again"), ("unsaid", "page")}


def current(spark: SparkSession, rows: list[tuple[str, str, bool | None, int]]) -> list[tuple[str, str]]:
    frame = newest_states(spark.createDataFrame(rows, COLUMNS), key="id", at="at", deleted="taken_back")
    assert frame.columns == ["id", "page", "taken_back", "at"]
    return [(row["id"], row["page"]) for row in frame.collect()]


def test_the_newest_state_of_each_key_stays_and_deleted_keys_go(spark: SparkSession) -> None:
    found = current(spark, STATES)
    assert len(found) == len(set(found))
    assert set(found) == CURRENT


def test_increments_that_repeat_or_come_in_another_order_make_no_difference(spark: SparkSession) -> None:
    thirds = [STATES[:3], STATES[3:6], STATES[6:]]
    for order in permutations(thirds):
        rows = [row for increment in order for row in increment]
        assert set(current(spark, rows + order[0])) == CURRENT


def test_nothing_gives_nothing(spark: SparkSession) -> None:
    assert current(spark, []) == []
