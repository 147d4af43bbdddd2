"""Dynamic Late Data Integrator: which partitions a table's log says have changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from de_resources.delta.log import TableLog
from de_resources.delta.log.changed_partitions import LOG_GONE, NoPartitions, changed_partitions

pytestmark = pytest.mark.pattern("dynamic_late_data_integrator")


@dataclass(frozen=True)
class Source:
    """A table by day, written without an engine."""

    uri: str

    def append(self, *days: int, stamp: str | None = None) -> None:
        properties = CommitProperties(custom_metadata={"userMetadata": stamp}) if stamp else None
        write_deltalake(self.uri, rows(*days), partition_by=["day"], mode="append", commit_properties=properties)

    def changed(self, since: int = -1) -> dict[str | None, int]:
        return {values[0]: change.version for values, change in changed_partitions(self.log, since).changed.items()}

    @property
    def log(self) -> TableLog:
        found = TableLog.open(self.uri)
        assert found is not None
        return found

    def forget(self, before: int) -> None:
        """What log cleanup does: a checkpoint, and no commits older than it."""
        DeltaTable(self.uri).create_checkpoint()
        for version in range(before):
            (Path(self.uri) / "_delta_log" / f"{version:020}.json").unlink(missing_ok=True)


def rows(*days: int) -> pa.Table:
    moments = pa.array([datetime(2024, 1, day, tzinfo=UTC) for day in days], pa.timestamp("us", "UTC"))
    return pa.table({"day": moments, "id": pa.array(range(len(days)))})


def day(number: int) -> str:
    return f"2024-01-{number:02} 00:00:00.000000"


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(str(tmp_path / "days"))


def test_each_partition_has_the_last_version_that_added_or_removed_rows(source: Source) -> None:
    source.append(1, 2)
    source.append(2)
    source.append(3)
    assert source.changed() == {day(1): 0, day(2): 1, day(3): 2}
    DeltaTable(source.uri).delete("day = '2024-01-01 00:00:00.000000'")
    assert source.changed() == {day(1): 3, day(2): 1, day(3): 2}, "what was only removed changed too"
    assert source.changed(since=1) == {day(1): 3, day(3): 2}
    assert source.changed(since=3) == {}


def test_compaction_and_settings_change_nothing(source: Source) -> None:
    for _ in range(3):
        source.append(1, 2)
    before = source.changed()
    table = DeltaTable(source.uri)
    assert table.optimize.compact()["numFilesRemoved"] > 0
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    found = changed_partitions(source.log, since=2)
    assert (found.changed, found.through) == ({}, 4)
    assert source.changed() == before


def test_a_restore_counts_for_what_it_brings_back(source: Source) -> None:
    source.append(1, 2)
    source.append(2)
    DeltaTable(source.uri).restore(0)
    assert source.changed(since=1) == {day(2): 2}


def test_a_change_tells_the_operation_the_run_and_the_time(source: Source) -> None:
    source.append(1, stamp='{"run": "r1", "writer": "silver/days"}')
    source.append(2, stamp="not json")
    told = changed_partitions(source.log).changed
    assert [(told[day(n),].operation, told[day(n),].run) for n in (1, 2)] == [("WRITE", "r1"), ("WRITE", "")]
    assert abs((datetime.now(UTC) - told[day(1),].at).total_seconds()) < 60


def test_where_the_log_was_cleaned_all_that_is_there_may_have_changed(source: Source) -> None:
    source.append(1, 2)
    source.append(3)
    source.append(3)
    source.forget(before=2)
    source.append(2)

    found = changed_partitions(source.log, since=0)
    assert found.gone_before == 2, "version 1 is gone"
    assert {values[0]: (c.version, c.operation) for values, c in found.changed.items()} == {
        day(1): (1, LOG_GONE),
        day(2): (3, "WRITE"),
        day(3): (2, "WRITE"),
    }
    assert changed_partitions(source.log, since=1).gone_before is None, "what is gone was not needed"


def test_where_every_commit_is_gone_the_snapshot_answers(source: Source) -> None:
    source.append(1, 2)
    source.append(3)
    source.forget(before=2)
    found = changed_partitions(source.log)
    assert (found.gone_before, found.through) == (2, 1)
    assert {c.version for c in found.changed.values()} == {1}
    assert len(found.changed) == 3


def test_a_table_that_is_made_anew_has_another_identity(source: Source, tmp_path: Path) -> None:
    source.append(1)
    other = Source(str(tmp_path / "other"))
    other.append(1)
    assert changed_partitions(source.log).table_id != changed_partitions(other.log).table_id


def test_a_table_without_partitions_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "flat"), rows(1))
    with pytest.raises(NoPartitions, match="partitioned_by"):
        changed_partitions(Source(str(tmp_path / "flat")).log)
