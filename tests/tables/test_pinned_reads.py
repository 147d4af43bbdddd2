"""A table that is read as it is now: what is kept of it while it is written stays as it was."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from de_resources.delta.table import Table, TableMissing

pytestmark = pytest.mark.pattern("merger")


def test_a_table_that_nobody_has_written_for_long_is_pinned_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Delta refuses to read versions that are older than a table's retention of removed files."""
    target = Table("bronze.visits", str(tmp_path / "visits"))
    write_deltalake(target.uri, pa.table({"hour": ["09"], "id": [1]}))
    long_ago = (datetime.now(UTC) - timedelta(days=60)).timestamp()
    for commit in (tmp_path / "visits" / "_delta_log").glob("*.json"):
        os.utime(commit, (long_ago, long_ago))
    assert [row["id"] for row in target.read_pinned(spark).collect()] == [1]


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
        Table("bronze.visits", str(tmp_path / "visits")).read_pinned(spark)
