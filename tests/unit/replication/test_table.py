"""Tables with their log: history and time travel on the replica are the source's, and no reader sees half a version."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from killing import killed_at
from pyspark.sql import SparkSession

from de_resources import atomic_files
from de_resources.replication.delta_log import LOG, DeltaLog, FilesElsewhere, LogGap
from de_resources.replication.environments import EnvironmentsOverlap
from de_resources.replication.table import (
    ReplicaDiverged,
    SourceFileMissing,
    SourceTableMissing,
    replicate_table,
    table_digests,
)

ODD_VALUES = ["plain", "two words/and:more", "ü%20=+", None]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "staging" / "devices"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Four versions: two appends, an overwrite, a delete."""
    table = tmp_path / "lake" / "devices"
    append(table, 1, 2)
    append(table, 3)
    write_deltalake(table, rows(4, 5, 6), mode="overwrite")
    DeltaTable(table).delete("id = 5")
    return table


def rows(*ids: int, kinds: list[Any] | None = None) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "kind": pa.array(kinds or ["k"] * len(ids), pa.string())})


def append(table: Path, *ids: int) -> None:
    properties = CommitProperties(custom_metadata={"userMetadata": "a note"})
    write_deltalake(table, rows(*ids), mode="append", partition_by=None, commit_properties=properties)


def ids(table: Path, version: int | None = None) -> list[int]:
    return sorted(DeltaTable(table, version=version).to_pyarrow_table()["id"].to_pylist())


def held(table: Path) -> dict[str, bytes]:
    paths = [p for p in table.rglob("*") if p.is_file()] if table.exists() else []
    return {p.relative_to(table).as_posix(): p.read_bytes() for p in paths}


def assert_same(source: Path, target: Path) -> None:
    """History, every version's rows, and the digests are the same."""
    newest = DeltaTable(source).version()
    assert DeltaTable(target).history() == DeltaTable(source).history()
    assert [ids(target, v) for v in range(newest + 1)] == [ids(source, v) for v in range(newest + 1)]
    ours, theirs = table_digests(source, target)
    assert ours == theirs
    assert len(ours) > newest


@pytest.mark.pattern("passthrough_replicator")
def test_history_and_time_travel_are_those_of_the_source(source: Path, target: Path) -> None:
    done = replicate_table(source, target)

    assert (done.version, done.previous) == (3, None)
    assert_same(source, target)
    assert held(target) == held(source)


@pytest.mark.pattern("passthrough_replicator")
def test_a_run_copies_what_is_new_and_a_rerun_nothing(source: Path, target: Path) -> None:
    replicate_table(source, target)
    append(source, 7)

    done = replicate_table(source, target)
    again = replicate_table(source, target)

    assert (done.version, done.previous, done.files_copied) == (4, 3, 2)
    assert (again.version, again.files_copied, again.files_removed, again.bytes_copied) == (4, 0, 0, 0)
    assert_same(source, target)


def test_partition_values_that_are_no_plain_names_of_folders(tmp_path: Path, target: Path) -> None:
    table = tmp_path / "lake" / "odd"
    write_deltalake(table, rows(1, 2, 3, 4, kinds=ODD_VALUES), partition_by=["kind"])

    replicate_table(table, target)

    assert_same(table, target)


def test_a_replica_at_an_older_version_goes_on_to_newer_ones(source: Path, target: Path) -> None:
    replicate_table(source, target, version=1)
    assert ids(target) == [1, 2, 3]

    assert replicate_table(source, target).previous == 1
    assert_same(source, target)
    assert replicate_table(source, target, version=2).version == 3, "a replica never goes back"


@pytest.mark.pattern("passthrough_replicator")
@pytest.mark.parametrize("checkpoint", [False, True], ids=["commits", "with a checkpoint"])
def test_at_every_moment_a_reader_sees_a_whole_version_or_no_table(
    source: Path, target: Path, checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if checkpoint:
        DeltaTable(source).create_checkpoint()
    seen: list[int] = []
    real = atomic_files.publish

    def publish(path: Path) -> None:
        real(path)
        if DeltaLog.read(target) is not None:
            version = DeltaTable(target).version()
            assert ids(target) == ids(source, version)
            seen.append(version)

    monkeypatch.setattr(atomic_files, "publish", publish)
    replicate_table(source, target)
    append(source, 8)
    append(source, 9)
    replicate_table(source, target)

    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2, 3, 4, 5}


@pytest.mark.pattern("passthrough_replicator")
@pytest.mark.faults
@pytest.mark.parametrize("calls", [1, 3, 5, 7])
def test_a_killed_run_leaves_a_whole_version_and_the_next_one_completes(source: Path, target: Path, calls: int) -> None:
    replicate_table(source, target, version=0)
    append(source, 7)
    statement = (
        "from de_resources.replication.table import replicate_table; "
        f"replicate_table(Path({str(source)!r}), Path({str(target)!r}))"
    )

    assert killed_at("replace", calls, statement) == -signal.SIGKILL

    assert ids(target) == ids(source, DeltaTable(target).version())
    replicate_table(source, target)
    assert_same(source, target)
    assert not [name for name in held(target) if "incoming" in name]


@pytest.mark.pattern("passthrough_replicator")
def test_a_replica_whose_log_is_gone_is_red_and_made_whole(source: Path, target: Path) -> None:
    replicate_table(source, target)
    for path in (target / LOG).iterdir():
        path.unlink()
    (target / LOG).rmdir()

    ours, theirs = table_digests(source, target)
    assert ours
    assert theirs == {}

    assert replicate_table(source, target).files_copied == 4, "the commits; the data files are still there"
    assert_same(source, target)


@pytest.mark.pattern("passthrough_replicator")
def test_a_replica_that_somebody_else_wrote_to_is_refused(source: Path, target: Path) -> None:
    replicate_table(source, target)
    append(target, 99)
    before = held(target)

    ours, theirs = table_digests(source, target)
    assert sorted(theirs.keys() - ours.keys())[0] == f"{LOG}/{4:020}.json"
    with pytest.raises(ReplicaDiverged, match="Version 4 of the replica"):
        replicate_table(source, target)
    append(source, 7)  # the source has a version 4 of its own now
    with pytest.raises(ReplicaDiverged, match="Version 4 of the replica"):
        replicate_table(source, target)

    assert held(target) == before


def test_a_source_that_was_made_anew_is_refused(source: Path, target: Path, tmp_path: Path) -> None:
    replicate_table(source, target)
    source.rename(tmp_path / "old")
    append(source, 1)

    with pytest.raises(ReplicaDiverged, match="made again"):
        replicate_table(source, target)

    assert ids(target) == [4, 6]


@pytest.mark.pattern("passthrough_replicator")
def test_a_source_that_vanished_leaves_the_replica(source: Path, target: Path, tmp_path: Path) -> None:
    replicate_table(source, target)
    before = held(target)
    source.rename(tmp_path / "gone")

    with pytest.raises(SourceTableMissing, match=r"no Delta table at `.*lake/devices`"):
        replicate_table(source, target)

    assert held(target) == before


def test_a_source_that_lost_a_file_leaves_the_replica_at_its_version(source: Path, target: Path) -> None:
    replicate_table(source, target)
    append(source, 7)
    (lost,) = DeltaLog.read(source).files(4)  # type: ignore[union-attr]
    (source / lost).unlink()

    with pytest.raises(SourceFileMissing) as error:
        replicate_table(source, target)

    assert error.value.name == lost
    assert DeltaTable(target).version() == 3
    assert ids(target) == [4, 6]


def test_a_data_file_that_was_cut_off_at_the_replica_is_named_and_copied_again(source: Path, target: Path) -> None:
    replicate_table(source, target)
    (live,) = DeltaLog.read(target).live_files(3)  # type: ignore[union-attr]
    (target / live).write_bytes((target / live).read_bytes()[:-10])

    ours, theirs = table_digests(source, target)
    assert [name for name in ours if ours[name] != theirs[name]] == [live]

    replicate_table(source, target)
    assert_same(source, target)


@pytest.mark.pattern("passthrough_replicator")
def test_what_the_source_vacuumed_leaves_the_replica_too(source: Path, target: Path) -> None:
    replicate_table(source, target)
    vacuumed = DeltaTable(source).vacuum(0, enforce_retention_duration=False, dry_run=False)
    assert vacuumed

    done = replicate_table(source, target)

    assert done.files_removed == len(vacuumed)
    assert held(target) == held(source)
    assert ids(target) == [4, 6]


def test_a_log_that_begins_with_a_checkpoint(source: Path, target: Path) -> None:
    DeltaTable(source).create_checkpoint()
    append(source, 7)
    for version in range(3):
        (source / LOG / f"{version:020}.json").unlink()

    replicate_table(source, target)

    assert ids(target) == ids(source) == [4, 6, 7]
    assert ids(target, 3) == [4, 6]
    assert {name for name in held(target) if LOG in name} == {name for name in held(source) if LOG in name}


@pytest.mark.parametrize("version", [2, 3, 99], ids=["unknown kind", "here", "newer than the listing"])
def test_a_hint_is_copied_only_with_its_checkpoint(source: Path, target: Path, version: int) -> None:
    DeltaTable(source).create_checkpoint()  # of version 3
    (source / LOG / "_last_checkpoint").write_text(json.dumps({"version": version, "size": 1}))

    replicate_table(source, target)

    assert (target / LOG / "_last_checkpoint").is_file() == (version == 3)
    assert ids(target) == [4, 6]


def test_a_log_that_lost_a_commit_is_refused(source: Path, target: Path) -> None:
    (source / LOG / f"{1:020}.json").unlink()

    with pytest.raises(LogGap, match="version 3"):
        replicate_table(source, target)

    assert held(target) == {}


@pytest.mark.parametrize("path", ["file:///elsewhere/part-0.parquet", "/elsewhere/part-0.parquet", "../part-0.parquet"])
def test_a_table_with_files_elsewhere_is_refused(source: Path, target: Path, path: str) -> None:
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    (source / LOG / f"{4:020}.json").write_text(json.dumps({"add": add}) + "\n")

    with pytest.raises(FilesElsewhere, match="no file inside its folder"):
        replicate_table(source, target)

    assert held(target) == {}


def test_a_replica_inside_its_source_is_refused(source: Path) -> None:
    with pytest.raises(EnvironmentsOverlap):
        replicate_table(source, source / "copy")


@pytest.mark.pattern("passthrough_replicator")
def test_deletion_vectors_change_data_and_the_engines_own_log(
    tmp_path: Path, target: Path, spark: SparkSession
) -> None:
    table = tmp_path / "lake" / "vectors"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT) USING DELTA TBLPROPERTIES ("
        "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', 'delta.checkpointInterval' = '3')"
    )
    spark.range(10).coalesce(1).write.format("delta").mode("append").save(str(table))
    for statement in (
        "DELETE FROM {t} WHERE id = 3",
        "UPDATE {t} SET id = 100 WHERE id = 4",
        "DELETE FROM {t} WHERE id = 5",
    ):
        spark.sql(statement.format(t=f"delta.`{table}`"))

    replicate_table(table, target)

    names = held(target)
    assert any(name.endswith(".bin") for name in names)
    assert any(name.startswith("_change_data/") for name in names)
    assert any(".checkpoint." in name for name in names)
    read = {v: spark.read.format("delta").option("versionAsOf", v).load(str(target)).collect() for v in (2, 4)}
    assert sorted(row.id for row in read[2]) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert sorted(row.id for row in read[4]) == [0, 1, 2, 6, 7, 8, 9, 100]
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).load(str(target))
    assert sorted(row._change_type for row in changes.collect()) == [
        "delete",
        "delete",
        "update_postimage",
        "update_preimage",
    ]
    ours, theirs = table_digests(table, target)
    assert ours == theirs
