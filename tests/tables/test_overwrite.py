"""Data Overwrite below the orchestrator: keys that Dagster itself would refuse, and counters of empty writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, convert_to_deltalake
from other_reader import rows_of
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType
from seeding import seed

from benchmarks.engine_jobs import counted_jobs
from de_resources.delta.slices import Box, Members, Slice, make_slice
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.overwrite import append, replace

pytestmark = pytest.mark.pattern("data_overwrite")

MakeTable = Callable[..., Table]
MakeStamp = Callable[..., CommitInfo]


def slice_of(*keys: str) -> Slice:
    by_key: dict[str, Box] = {k: (Members("k", (k,)),) for k in keys}
    return Slice(boxes=((Members("k", keys),),), by_key=by_key)


LONG = "n" * 300


@pytest.mark.parametrize("first", ["plain", LONG], ids=["folders by key", "random folders"])
def test_any_text_is_a_key(spark: SparkSession, table: MakeTable, stamp: MakeStamp, first: str) -> None:
    """Newline, NUL and over-long keys cannot name a folder: the table then uses random ones, from then on."""
    target = table(partitioned_by=("k",))
    several = ["line\nbreak", "nul\0byte", LONG]
    slices = [[first], [key for key in several if key != first], ["😀" * 100]]
    keys = [key for each in slices for key in each]
    if first != LONG:
        (_, *slices), columns = slices, StructType().add("id", LongType()).add("k", StringType())
        seed(target.uri, [{"id": 0, "k": first}], columns, partitioned_by=["k"])
    for each in slices:
        frame = spark.createDataFrame([(keys.index(key), key) for key in each], "id long, k string").coalesce(1)
        assert replace(spark, target, frame, stamp(slice_=each[0]), slice_=slice_of(*each)).rows == len(each)
    unique = dict(zip(keys, range(len(keys)), strict=True))
    assert {r.k: r.id for r in target.read(spark).collect()} == unique
    log = target.log()
    assert log is not None
    assert log.rows_by_partition() == {(k,): 1 for k in unique}
    assert log.first_rows(["k", "id"], 1) == [{"k": keys[-1], "id": len(keys) - 1}]


def test_a_frame_that_turns_out_empty_while_it_runs_is_counted(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    """The engine cuts empty branches from a running plan; the counters of the write have to survive it."""
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
    slice_ = make_slice(["2024-01-01", "2024-01-02"], days, "day")
    target = table(partitioned_by=("day",))
    source = spark.createDataFrame([(1, "2024-01-01")], "id long, day string")
    seed(target.uri, [{"id": 1, "day": "2024-01-01"}], source.schema, partitioned_by=["day"])
    nothing = source.where(F.col("id") < F.rand()).groupBy("day").agg(F.max("id").alias("id")).select("id", "day")
    assert replace(spark, target, nothing, stamp(), slice_=slice_).rows == 0
    assert append(spark, target, nothing, stamp(), slice_=slice_).rows == 0
    assert rows_of(target.uri) == []


def test_times_are_whole_microseconds_with_bounds_beside_files_of_an_older_form(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    """A lake that the engine's default has written is read on, and gets the other form file by file."""
    target = table()
    first, last = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    there = pa.table({"at": pa.array([first], pa.timestamp("us", "UTC"))})
    Path(target.uri).mkdir(parents=True)
    pq.write_table(there, f"{target.uri}/older.parquet", use_deprecated_int96_timestamps=True)
    convert_to_deltalake(target.uri)
    append(spark, target, spark.createDataFrame([(last,)], "at timestamp").coalesce(1), stamp(), slice_=None)

    files = [pq.ParquetFile(path) for path in DeltaTable(target.uri).file_uris()]
    stored = {file.schema.column(0).physical_type: file.metadata.row_group(0).column(0).statistics for file in files}
    assert stored.keys() == {"INT96", "INT64"}
    assert (stored["INT64"].min, stored["INT64"].max) == (last, last)
    assert target.read(spark).where((F.col("at") == F.lit(first)) | (F.col("at") == F.lit(last))).count() == 2
    assert sorted(DeltaTable(target.uri).to_pyarrow_table()["at"].to_pylist()) == [first, last]


def test_an_origin_writes_one_slice_once_and_another_one_too(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    """The other one is there, with the commit that its append makes."""
    target = table(partitioned_by=("k",))
    columns = StructType().add("id", LongType()).add("k", StringType())
    seed(target.uri, [{"id": 1, "k": "a"}], columns, partitioned_by=["k"], stamp=stamp(run="one", slice_="a"))
    written = []
    for key in ("b", "b", "a"):
        frame = spark.createDataFrame([(1, key)], columns)
        written.append(append(spark, target, frame, stamp(run="one", slice_=key), slice_=slice_of(key)))
    assert written[0].version == 1
    assert [each.skipped and each.skipped.partition(";")[0] for each in written] == [
        None,
        *(f"this run had already committed the slice as version {version}" for version in (1, 0)),
    ]
    assert rows_of(target.uri) == [(1, "a"), (1, "b")]


def steps_of_rows(session: SparkSession, jobs: list[int]) -> list[str]:
    """What the engine did with the rows of a range in one of the jobs: the names of its steps."""
    store, tracker = session.sparkContext._jsc.sc().statusStore(), session.sparkContext.statusTracker()
    told = [tracker.getJobInfo(job) for job in jobs]

    def names(cluster: Any) -> list[str]:
        parts = cluster.childClusters()
        return [cluster.name(), *(name for i in range(parts.size()) for name in names(parts.apply(i)))]

    stages = [names(store.operationGraphForStage(stage).rootCluster()) for job in told if job for stage in job.stageIds]
    (steps,) = (found for found in stages if "Range" in found)
    return steps


def test_rows_that_lie_by_partition_are_not_sorted(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> None:
    """Whole, and in a file for each partition, also where a task has more of them than it may have files open."""
    target = table(partitioned_by=("k",))
    keys = [f"{n:02}" for n in range(12)]
    rows = spark.range(120, numPartitions=1).select("id", F.format_string("%02d", F.col("id") % 12).alias("k"))
    steps = []
    for frame, slice_, lies_so in ((rows.where("k = '00'"), slice_of("00"), False), (rows, slice_of(*keys), True)):
        with counted_jobs(spark) as jobs:
            written = replace(spark, target, frame, stamp(), slice_=slice_, pre_clustered=lies_so)
        assert written.rows == 10 * len(slice_.keys)
        steps.append(steps_of_rows(spark, jobs))
    assert ["Sort" in each for each in steps] == [True, False]
    log = target.log()
    assert log is not None
    assert log.rows_by_partition() == {(key,): 10 for key in keys}
    assert log.files().num_rows == len(keys)
    assert spark.conf.get("spark.sql.maxConcurrentOutputFileWriters", None) in (None, "0"), "of this write alone"
