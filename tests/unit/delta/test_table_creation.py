"""A table comes into being once, whoever else creates it and wherever a creator died."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from de_resources.delta.table import LocationTaken, Table

pytestmark = [pytest.mark.pattern("data_overwrite"), pytest.mark.faults]

SCHEMA = StructType().add("hour", StringType()).add("id", LongType())


def table_at(path: Path) -> Table:
    return Table("bronze.visits", str(path), partitioned_by=("hour",))


def test_first_writers_at_once_all_find_the_one_table(spark: SparkSession, tmp_path: Path) -> None:
    for attempt in range(3):
        target = table_at(tmp_path / f"visits{attempt}")
        with ThreadPoolExecutor(8) as writers:
            list(writers.map(lambda _, t=target: t.create_if_missing(spark, SCHEMA), range(8)))  # type: ignore[misc]
        log = target.log()
        assert log is not None
        assert log.version == 0


def test_a_crafted_field_name_adds_no_column(spark: SparkSession, tmp_path: Path) -> None:
    payload = StructType().add("x:STRING>", LongType()).add("user-agent", StringType())
    schema = StructType([*SCHEMA.fields, StructField("payload", payload)])
    target = table_at(tmp_path / "visits")
    target.create_if_missing(spark, schema)
    found = {field.name: field.dataType for field in target.read(spark).schema.fields}
    assert found == {field.name: field.dataType for field in schema.fields}


def test_what_a_dead_creator_left_is_no_obstacle(spark: SparkSession, tmp_path: Path) -> None:
    target = table_at(tmp_path / "visits")
    left = tmp_path / "visits" / "_delta_log"
    left.mkdir(parents=True)
    (left / ".00000000000000000000.json.8d1f.tmp").write_text('{"commitInfo":')
    target.create_if_missing(spark, SCHEMA)
    log = target.log()
    assert log is not None
    assert log.version == 0
    assert not list(left.glob(".*.tmp")), "the half-written commit is gone"


def test_a_folder_with_other_files_is_refused_and_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    target = table_at(tmp_path / "visits")
    (tmp_path / "visits" / "_delta_log").mkdir(parents=True)
    other = tmp_path / "visits" / "report.parquet"
    other.write_bytes(b"somebody's")
    with pytest.raises(LocationTaken, match=r"report\.parquet"):
        target.create_if_missing(spark, SCHEMA)
    assert other.read_bytes() == b"somebody's"
