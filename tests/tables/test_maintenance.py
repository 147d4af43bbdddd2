"""Compactor: fewer files, the same rows; nothing is removed that somebody was promised."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from other_reader import rows_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType
from seeding import restored, seed

from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.log.retention import DEFAULT, OVERRIDE, RetentionRefused, UnreadableRetention, parse
from de_resources.delta.log.versions import VersionUnreadable, files_of, ranges, readable_versions
from de_resources.delta.maintenance import EmptyTable, Report, insist, maintain
from de_resources.delta.maintenance.restore import restore
from de_resources.delta.table import CommitInfo, Table, TableMissing
from de_resources.delta.write.overwrite import replace
from de_resources.delta.write.refusals import ConcurrentWrite

pytestmark = pytest.mark.pattern("compactor")

MakeTable = Callable[..., Table]
MakeStamp = Callable[..., CommitInfo]
NOW = timedelta()


def appended(table: Table, times: int, letters: str = "ab") -> None:
    """One file per letter and time in a table that began empty, written without an engine: ids in order, ten each."""
    columns = StructType([StructField("id", LongType()), StructField("k", StringType())])
    seed(table.uri, [], columns, partitioned_by=table.partitioned_by, properties=table.properties)
    for turn in range(times):
        ids = range(turn * 10, turn * 10 + 10)
        written = pa.table({"id": ids, "k": [letters[number % len(letters)] for number in ids]})
        write_deltalake(table.uri, written, mode="append")


def rows(spark: SparkSession, table: Table, version: int | None = None) -> list[int]:
    return sorted(r.id for r in table.read(spark, version).collect())


def aged(path: Path, hours: float) -> None:
    """As if the file had been written so many hours ago."""
    moment = time.time() - hours * 3600
    os.utime(path, (moment, moment))


def log_of(table: Table) -> TableLog:
    log = table.log()
    assert log is not None
    return log


def on_disk(table: Table) -> set[str]:
    return {p.name for p in Path(table.uri).rglob("*.parquet") if "_delta_log" not in p.parts}


@pytest.fixture(scope="module")
def compacted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, Report, Report, list[str]]:
    """A partitioned table of twelve files after maintenance, twice; and the operations of its log."""
    table = Table("silver.rows", str(tmp_path_factory.mktemp("lake") / "rows"), partitioned_by=("k",))

    def stamp() -> CommitInfo:
        attempt = os.urandom(8).hex()
        return CommitInfo("silver.rows", "silver/rows", "all", attempt, attempt, attempt)

    appended(table, times=6)
    first = maintain(spark, table, stamp(), retention=NOW, override=OVERRIDE, query_runs=1)
    second = maintain(spark, table, stamp(), retention=NOW, override=OVERRIDE)
    return table, first, second, [c.operation for c in log_of(table).commits(20)]


def test_the_report_tells_files_bytes_time_and_what_was_lost(
    spark: SparkSession, compacted: tuple[Table, Report, Report, list[str]]
) -> None:
    table, report, _, _ = compacted
    assert (report.live_before.files, report.live_after.files) == (12, 2)
    assert (report.stored_before.files, report.stored_after.files) == (12, 2)
    sizes = [p.stat().st_size for p in Path(table.uri).rglob("*.parquet") if "_delta_log" not in p.parts]
    assert report.stored_after.bytes == report.live_after.bytes == sum(sizes) < report.live_before.bytes
    # Version 0 created the table, 1 to 6 appended, 7 compacted: the empty table and the compacted one are left.
    assert report.compacted == 7
    assert report.lost == (1, 2, 3, 4, 5, 6)
    assert report.query is not None
    assert report.query.runs == 1
    assert report.query.after > 0
    assert report.query.before > 0
    assert rows(spark, table) == list(range(60))


def test_a_second_maintenance_finds_nothing_and_commits_nothing(
    compacted: tuple[Table, Report, Report, list[str]],
) -> None:
    _, first, second, operations = compacted
    assert second.did_nothing
    assert (second.lost, second.query) == ((), None)
    assert second.live_after == first.live_after
    assert operations == ["VACUUM END", "VACUUM START", "OPTIMIZE", *["WRITE"] * 7]


def test_a_table_gets_the_description_of_its_contract_once(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    contract = Contract("silver.rows", "What is in the rows", "", (), ())
    target = table(contract=contract)
    seed(target.uri, [{"id": 1}], StructType([StructField("id", LongType())]))
    told = []
    for _ in range(2):
        report = maintain(spark, target, stamp(), query_runs=0)
        told.append((report.described, report.did_nothing, log_of(target).table.metadata().description))
    assert told == [(True, False, "What is in the rows"), (False, True, "What is in the rows")]
    assert [c.operation for c in log_of(target).commits(9)] == ["SET TBLPROPERTIES", "WRITE"]


def test_time_travel_to_a_lost_version_names_what_is_left(
    spark: SparkSession, compacted: tuple[Table, Report, Report, list[str]], stamp: MakeStamp
) -> None:
    table = compacted[0]
    with pytest.raises(
        VersionUnreadable, match=r"Version 3 of `silver\.rows` .* oldest readable version is 0"
    ) as error:
        table.read(spark, 3)
    assert error.value.reason == "6 of its 6 files were vacuumed"
    assert error.value.readable == (0, 7, 8, 9)
    assert "available are 0, 7-9" in str(error.value)
    with pytest.raises(VersionUnreadable, match="there is no such version"):
        table.read(spark, 10)
    with pytest.raises(VersionUnreadable, match="were vacuumed"):
        restore(spark, table, 3, stamp())
    # Version 6 has lost its files too, but its rows are the compacted ones. One query for all; 9 is what the report's test
    # reads, and 8 the same files.
    found: list[DataFrame] = [
        table.read(spark, version).select(F.lit(version).alias("version"), "id") for version in (0, 6, 7)
    ]
    pairs = sorted(tuple(row) for row in reduce(DataFrame.unionByName, found).collect())
    assert pairs == [(version, number) for version in (6, 7) for number in range(60)], "version 0 is empty"
    assert files_of(log_of(table), 8) == files_of(log_of(table), 9)


def test_without_the_words_nothing_younger_than_the_promise_is_removed(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    target = table()
    appended(target, times=3)
    before = log_of(target).version
    for override in (None, "", "yes", OVERRIDE.upper()):
        with pytest.raises(RetentionRefused, match=r"for 168 hours; a retention of 100 hours is refused.*I accept"):
            maintain(spark, target, stamp(), retention=timedelta(hours=100), override=override)
    assert log_of(target).version == before
    abandoned = {hours: Path(target.uri) / f"part-{hours}.parquet" for hours in (1, 100, 200, 400)}
    for hours, path in abandoned.items():
        path.write_bytes(b"left by a killed writer")
        aged(path, hours)

    # Delta by itself ignores a retention that is longer than the table's.
    longer = maintain(spark, target, stamp(), retention=timedelta(hours=300), query_runs=0)
    assert longer.lost == ()
    assert [hours for hours, path in abandoned.items() if path.exists()] == [1, 100, 200]
    usual = maintain(spark, target, stamp(), query_runs=0)
    assert usual.retention == DEFAULT
    assert usual.lost == ()
    assert [hours for hours, path in abandoned.items() if path.exists()] == [1, 100]
    shorter = maintain(spark, target, stamp(), retention=timedelta(hours=50), override=OVERRIDE, query_runs=0)
    assert shorter.lost == ()
    assert [hours for hours, path in abandoned.items() if path.exists()] == [1]
    assert rows(spark, target, 2) == list(range(20))


def test_the_tables_own_promise_counts(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> None:
    target = table(properties={"delta.deletedFileRetentionDuration": "interval 2 hours"})
    appended(target, times=1)
    orphan = Path(target.uri) / "part-orphan.parquet"
    orphan.write_bytes(b"x")
    aged(orphan, 1)
    maintain(spark, target, stamp(), query_runs=0)
    assert orphan.exists()
    aged(orphan, 3)
    with pytest.raises(RetentionRefused, match="for 2 hours; a retention of 1 hours"):
        maintain(spark, target, stamp(), retention=timedelta(hours=1))
    assert maintain(spark, target, stamp(), query_runs=0).retention == timedelta(hours=2)
    assert not orphan.exists()


def test_what_is_listed_as_readable_is_what_the_engine_reads(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp
) -> None:
    """Ages around the retention: the engine refuses old versions though their files are there."""
    target = table()
    for turn in range(5):
        replace(spark, target, spark.range(turn).coalesce(1), stamp(), slice_=None)
    for version, days in enumerate((30, 20, 10, 3, 1)):
        aged(Path(target.uri) / "_delta_log" / f"{version:020}.json", days * 24)
    listed = readable_versions(log_of(target))
    assert listed == [3, 4]
    for version in range(5):
        if version in listed:
            assert len(rows(spark, target, version)) == version
        else:
            with pytest.raises(VersionUnreadable, match="older than the table's retention of 168 hours"):
                target.read(spark, version)
            with pytest.raises(Exception, match="DELTA_UNSUPPORTED_TIME_TRAVEL"):
                spark.read.format("delta").option("versionAsOf", version).load(target.uri).collect()


def test_tables_that_are_missing_or_empty_are_named(spark: SparkSession, table: MakeTable, stamp: MakeStamp) -> None:
    with pytest.raises(TableMissing, match=r"silver\.rows"):
        maintain(spark, table(), stamp())
    target = table("blank")
    appended(target, times=0)
    with pytest.raises(EmptyTable, match=r"silver\.blank"):
        maintain(spark, target, stamp())


@pytest.mark.parametrize("conflicts", [0, 2, 3])
def test_a_conflict_is_tried_again_three_times_at_most(conflicts: int) -> None:
    calls = []

    def action() -> None:
        calls.append(1)
        if len(calls) <= conflicts:
            raise ConcurrentWrite("silver.rows", "DELTA_CONCURRENT_DELETE_READ")

    if conflicts == 3:
        with pytest.raises(ConcurrentWrite):
            insist(action, 3)
    else:
        insist(action, 3)
    assert len(calls) == min(conflicts + 1, 3)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("interval 7 days", 168), ("interval 1 week", 168), ("2 HOURS", 2), ("interval 1 day 12 hours", 36)],
)
def test_durations_are_read_as_delta_writes_them(text: str, hours: float) -> None:
    assert parse(text) == timedelta(hours=hours)
    with pytest.raises(UnreadableRetention, match="interval 7 days"):
        parse(f"{text} and a bit")


def test_versions_are_told_as_ranges() -> None:
    assert ranges([0, 3, 4, 5, 9]) == "0, 3-5, 9"


@pytest.mark.pattern("full_loader")
@pytest.mark.parametrize("restored_by", ["delta-rs", "the engine"])
def test_a_restore_commits_once_and_says_so_when_there_is_nothing_to_do(
    spark: SparkSession, table: MakeTable, stamp: MakeStamp, monkeypatch: pytest.MonkeyPatch, restored_by: str
) -> None:
    if restored_by == "delta-rs":
        monkeypatch.setattr("de_resources.delta.maintenance.restore._restore", restored)
    target = table()
    seed(target.uri, [], StructType([StructField("id", LongType())]))
    for size in (3, 5):
        write_deltalake(target.uri, pa.table({"id": range(size)}), mode="overwrite")
    mark = stamp()
    done = restore(spark, target, 1, mark)
    assert (done.version, done.skipped) == (3, None)
    assert done.commit is not None
    assert done.commit.operation == "RESTORE"
    assert done.commit.stamp["attempt"] == mark.attempt
    assert rows_of(target.uri) == [(0,), (1,), (2,)]

    again = restore(spark, target, 1, stamp())
    assert again.version == log_of(target).version == 3
    assert "holds the rows of version 1 already" in str(again.skipped)
    assert sorted(DeltaTable(target.uri, version=2).to_pyarrow_table()["id"].to_pylist()) == list(range(5))
