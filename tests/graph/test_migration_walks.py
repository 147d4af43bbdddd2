"""Columns get another name, another type, a place in a struct, or go, forward and back, while old and new code write."""

from __future__ import annotations

from pathlib import Path

import pytest
from migration_walk import COURSES, RESTARTS, short_walk, walk
from pyspark.sql import SparkSession

pytestmark = pytest.mark.pattern("schema_migrator")


def test_columns_become_a_struct_and_come_back(spark: SparkSession, tmp_path: Path) -> None:
    short_walk(spark, tmp_path)


@pytest.mark.parametrize("kind", COURSES)
def test_every_kind_goes_forward_and_back_under_writers_and_a_stream(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    assert walk(spark, tmp_path, [kind], streamed=True) == {kind: RESTARTS[kind]}
