"""A table comes into being once, whoever else creates it and wherever a creator died."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from de_resources.delta.table import LocationTaken, Table, TableMissing

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


@pytest.mark.pattern("merger")
def test_a_table_that_nobody_has_written_for_long_is_pinned_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Delta refuses to read versions that are older than a table's retention of removed files."""
    target = table_at(tmp_path / "visits")
    write_deltalake(target.uri, pa.table({"hour": ["09"], "id": [1]}))
    long_ago = (datetime.now(UTC) - timedelta(days=60)).timestamp()
    for commit in (tmp_path / "visits" / "_delta_log").glob("*.json"):
        os.utime(commit, (long_ago, long_ago))
    assert [row["id"] for row in target.read_pinned(spark).collect()] == [1]


@pytest.mark.pattern("merger")
def test_what_is_kept_of_a_pinned_table_stays_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    target = Table("bronze.visits", str(tmp_path / "visits"))
    rows = spark.range(1, 2, numPartitions=1)
    rows.write.format("delta").save(target.uri)
    pinned, following = (read(spark).persist() for read in (target.read_pinned, target.read))
    later = target.read_pinned(spark)
    try:
        assert (pinned.count(), following.count()) == (1, 1)
        rows.write.format("delta").mode("append").save(target.uri)
        assert (pinned.count(), following.count()) == (1, 2), (
            "Spark computes what is kept of a table again, and of a version not"
        )
        assert later.count() == 1, "also what was not computed yet"
    finally:
        pinned.unpersist()
        following.unpersist()


def test_of_a_table_that_is_not_there_nothing_is_pinned(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableMissing, match=r"bronze\.visits"):
        table_at(tmp_path / "visits").read_pinned(spark)
