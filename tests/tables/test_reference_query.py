"""The proof that a compaction changed nothing notices where something changed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from seeding import signed

from de_resources.delta.log import TableLog
from de_resources.delta.maintenance import reference_query
from de_resources.delta.maintenance.compaction import maintain
from de_resources.delta.maintenance.reference_query import ContentChanged, Sample, compare, sample_of
from de_resources.delta.table import CommitInfo, Table

pytestmark = pytest.mark.pattern("compactor")
EVERYTHING = Sample((), ((),))


def test_versions_with_other_rows_are_told_apart_and_named(
    spark: SparkSession, table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table()
    digest = reference_query._digest
    asked: list[int] = []
    known: dict[int, tuple[int, Decimal | None]] = {}

    def once(session: SparkSession, of: Table, sample: Sample, version: int) -> tuple[int, Decimal | None]:
        """A version stays what it is: the engine is asked once."""
        asked.append(version)
        if version not in known:
            known[version] = digest(session, of, sample, version)
        return known[version]

    monkeypatch.setattr(reference_query, "_digest", once)
    for values in (["a", "b"], ["c"]):
        write_deltalake(rows.uri, pa.table({"text": values}), mode="append")
    # By another engine, which makes the same two commits of it; the platform's own compaction: test_maintenance.py.
    DeltaTable(rows.uri).update(predicate="text = 'c'", updates={"text": "'d'"})
    assert DeltaTable(rows.uri).optimize.compact()["numFilesRemoved"] == 2
    assert compare(spark, rows, EVERYTHING, 2, 3, 2).runs == 2, "only files were rewritten"
    assert asked == [2, 3, 2, 3]
    for before, after in ((0, 1), (1, 2)):
        with pytest.raises(ContentChanged, match=f"version {after} than in version {before}.*restore version {before}"):
            compare(spark, rows, EVERYTHING, before, after, 1)


def test_the_sample_is_the_partitions_of_the_most_files_that_fit(lake: Path, spark: SparkSession) -> None:
    """Of a: three files, of b: two, of c: one, of d: one that is much larger than the limit."""
    uri = str(lake / "events")
    for key, count, rows in (("a", 3, 10), ("b", 2, 10), (None, 1, 10), ("d", 1, 100_000)):
        for turn in range(count):
            written = pa.table({"id": [n * 7919 + turn for n in range(rows)], "k": pa.array([key] * rows, pa.string())})
            write_deltalake(uri, written, partition_by=["k"], mode="append")
    log = TableLog.open(uri)
    assert log is not None
    small = sum(f["size_bytes"] for f in log.files().to_pylist() if f["partition.k"] != "d")
    assert sample_of(log, small) == Sample(("k",), (("a",), ("b",), (None,)))
    assert sample_of(log, 10) is None
    found = spark.read.format("delta").load(uri).where(Sample(("k",), (("a",), (None,))).condition())
    assert {(row["k"], row["count"]) for row in found.groupBy("k").count().collect()} == {("a", 30), (None, 10)}


def test_maintenance_measures_the_sample_and_nothing_where_there_is_none(
    spark: SparkSession,
    table: Callable[..., Table],
    stamp: Callable[..., CommitInfo],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which versions are compared, and by what; the engine's own compaction, with its query: test_maintenance.py."""
    read: list[tuple[Sample, int]] = []

    def counted(_: SparkSession, __: Table, sample: Sample, version: int) -> tuple[int, None]:
        read.append((sample, version))
        return 1, None

    def compacted(_: SparkSession, of: Table, stamp: CommitInfo) -> None:
        DeltaTable(of.uri).optimize.compact(commit_properties=signed(stamp))

    monkeypatch.setattr(reference_query, "_digest", counted)
    monkeypatch.setattr("de_resources.delta.maintenance.compaction._optimize", compacted)
    rows = table()

    def maintained(sample: Sample | None) -> reference_query.Comparison | None:
        """After two appends, so that there is something to compact."""
        for value in "ab":
            write_deltalake(rows.uri, pa.table({"text": [value]}), mode="append")
        monkeypatch.setattr(reference_query, "sample_of", lambda _: sample)
        report = maintain(spark, rows, stamp(), query_runs=1)
        assert report.compacted is not None
        return report.query

    assert maintained(None) is None
    assert read == []
    measured = maintained(EVERYTHING)
    assert measured is not None
    assert measured.runs == 1
    # Two appends and a compaction, and two appends again, before the one that is measured.
    assert read == [(EVERYTHING, 4), (EVERYTHING, 5)], "both versions, of the sample that was chosen"


def test_a_large_table_without_partitions_is_not_measured(lake: Path) -> None:
    uri = str(lake / "events")
    write_deltalake(uri, pa.table({"id": range(1000)}))
    log = TableLog.open(uri)
    assert log is not None
    assert sample_of(log, 100) is None
    assert sample_of(log) == EVERYTHING
