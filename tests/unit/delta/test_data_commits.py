"""Which commits of a real table brought rows, and what its check says of it: no engine."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from de_resources.delta.log import TableLog
from de_resources.delta.log.data_commits import newest_commits

pytestmark = pytest.mark.pattern("flow_interruption_detector")


def rows(*regions: str) -> pa.Table:
    return pa.table({"region": pa.array(regions, pa.string()), "value": pa.array([1] * len(regions), pa.int64())})


def land(uri: str, *regions: str, mode: str = "append") -> None:
    write_deltalake(uri, rows(*regions), mode=mode, partition_by=["region"])  # type: ignore[call-overload]


def vacuum(uri: str) -> list[str]:
    removed = DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert removed, "there was something to remove"
    return removed


HOUSEKEEPING: dict[str, Callable[[str], object]] = {
    "compaction": lambda uri: DeltaTable(uri).optimize.compact(),
    "compaction and vacuum": lambda uri: (DeltaTable(uri).optimize.compact(), vacuum(uri)),
    "settings": lambda uri: DeltaTable(uri).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 2 days"}
    ),
    "a person erased": lambda uri: DeltaTable(uri).delete("region = 'eu' AND value = 7"),
    "rows corrected": lambda uri: DeltaTable(uri).update(updates={"value": "2"}, predicate="region = 'eu'"),
    "restored": lambda uri: DeltaTable(uri).restore(1),
    "nothing written": land,
}


@pytest.mark.parametrize("kind", HOUSEKEEPING)
def test_housekeeping_brings_nothing(kind: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    land(uri, "eu", "us")
    land(uri, "eu")
    land(uri, "us")
    before = TableLog(DeltaTable(uri)).version

    HOUSEKEEPING[kind](uri)

    log = TableLog(DeltaTable(uri))
    assert log.version > before or kind == "a person erased", "something was committed"
    told = {each.version: {dict(p)["region"] for p in each.partitions} for each in newest_commits(log, 100)}
    assert {version: regions for version, regions in told.items() if regions} == {0: {"eu", "us"}, 1: {"eu"}, 2: {"us"}}


def test_commits_come_newest_first_with_their_own_time_and_only_as_many_as_asked_for(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    started = datetime.now(UTC)
    for _ in range(5):
        land(uri, "eu")
    found = list(newest_commits(TableLog(DeltaTable(uri)), 3))
    assert [each.version for each in found] == [4, 3, 2]
    assert all(started - timedelta(seconds=1) <= each.at <= datetime.now(UTC) for each in found)
    assert found[0].at >= found[-1].at


def test_where_the_log_has_forgotten_its_commits_the_tale_ends(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    for _ in range(4):
        land(uri, "eu")
    DeltaTable(uri).create_checkpoint()
    for version in (0, 1):
        (tmp_path / "table" / "_delta_log" / f"{version:020}.json").unlink()
    assert [each.version for each in newest_commits(TableLog(DeltaTable(uri)), 100)] == [3, 2]


def test_a_writer_that_tells_neither_its_time_nor_its_rows_brought_some(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    land(uri, "eu")
    first = tmp_path / "table" / "_delta_log" / f"{0:020}.json"
    lines = [line for line in first.read_text().splitlines() if "commitInfo" not in line]
    first.write_text("\n".join(lines).replace('"stats":', '"nobody":'))
    (found,) = newest_commits(TableLog(DeltaTable(uri)), 9)
    assert found.brought
    assert datetime.now(UTC) - found.at < timedelta(minutes=5), "its file says when"
