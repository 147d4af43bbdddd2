"""The staging environment: what leaves production, what does not, and that production is only read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyspark.sql.types as T
import pytest
from checks_world import CANARY, verdicts
from deltalake import DeltaTable, write_deltalake
from instances import silent_instance
from pandera.pyspark import DataFrameModel

from de_assets.contracts.devices import Devices
from de_assets.contracts.staging import StagingUsers, StagingVisits
from de_assets.contracts.users import Users
from de_assets.contracts.visits import Visits
from de_assets.definitions import defs
from de_assets.partitions import CALENDAR, hourly
from de_assets.resources import resources
from de_resources.contract import Contract
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

HOURS = [CALENDAR.start + timedelta(hours=n) for n in range(3)]
KEYS = hourly.get_partition_keys()[:3]
DUMP = b'{"type": "mac", "full_name": "M\xc3\xa4c 1.10", "version": 1.10}\r\n'


class Staging:
    """Sources made by hand, with a canary in every personal column, and runs of the real assets between two roots."""

    def __init__(self, settings: Settings, engine: SparkEngine, instance: dg.DagsterInstance) -> None:
        self.settings, self.engine, self.instance = settings, engine, instance
        self.lake, self.root = Path(settings.lake_root), Path(settings.staging_root)

    def feed(self) -> None:
        write_deltalake(self.lake / "silver/users", rows_of(Users, [HOURS[0]] * 4))
        write_deltalake(self.lake / "silver/devices", rows_of(Devices, [HOURS[0]] * 2))
        write_deltalake(self.lake / "silver/devices", rows_of(Devices, [HOURS[0]] * 3), mode="overwrite")
        visits = rows_of(Visits, [hour for hour in HOURS for _ in range(5)])
        write_deltalake(self.lake / "silver/visits", visits, partition_by=["event_hour"])
        drop = self.settings.landing / "devices"
        drop.mkdir(parents=True)
        (drop / "devices.json").write_bytes(DUMP)
        (drop / "more.json").write_bytes(b"\xff\xfe")
        (drop / "_SUCCESS").touch()

    def run(self, name: str, *keys: str, checks_only: bool = False) -> dg.ExecuteInProcessResult:
        world = resources(self.settings, self.engine)
        graph = dg.Definitions(assets=defs.assets, asset_checks=defs.asset_checks, resources=world)
        job = graph.resolve_implicit_global_asset_job_def()
        key = dg.AssetKey(["staging", name])
        checks = {c for c in job.asset_layer.asset_graph.asset_check_keys if c.asset_key == key}
        subset = job.get_subset(asset_selection=set() if checks_only else {key}, asset_check_selection=checks)
        ends = (
            {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
            if keys
            else {}
        )
        return subset.execute_in_process(
            instance=self.instance,
            partition_key=keys[0] if len(keys) == 1 else None,
            tags=ends if len(keys) > 1 else {},
            raise_on_error=False,
        )

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(self.root / "staging" / name)

    def rows(self, table: Path) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
        return sorted(found, key=repr)

    def production(self) -> dict[str, tuple[int, int]]:
        """Every file of production as it lies on the disk."""
        files = [p for root in (self.lake, self.settings.landing) for p in root.rglob("*") if p.is_file()]
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}

    def leaked(self) -> list[str]:
        """Files of staging in which the canary is."""
        return [str(p) for p in self.root.rglob("*") if p.is_file() and CANARY.encode() in p.read_bytes()]


def rows_of(model: type[DataFrameModel], hours: Sequence[datetime]) -> pa.Table:
    """One row per hour with a value in every column that the contract has."""
    contract = Contract.of(model)
    return pa.table({c.name: _values(c.name, c.type, c.personal, hours) for c in contract.columns})


def _values(name: str, type_: T.DataType, personal: bool, hours: Sequence[datetime]) -> pa.Array:
    if isinstance(type_, T.TimestampType):
        # An interval ends after it began: the replica holds the rules of its source.
        later = timedelta(hours=1 if name == "valid_to" else 0)
        return pa.array([hour + later for hour in hours], pa.timestamp("us", "UTC"))
    if isinstance(type_, T.BooleanType):
        return pa.array([False] * len(hours), pa.bool_())
    if isinstance(type_, T.LongType):
        return pa.array(range(len(hours)), pa.int64())
    return pa.array([f"{CANARY if personal else name} {n}" for n in range(len(hours))], pa.string())


@pytest.fixture
def staging(tmp_path: Path, engine: SparkEngine) -> Iterator[Staging]:
    assert engine.spark_session is not None  # the runs below find this session
    settings = replace(
        Settings.from_environment(),
        home=tmp_path,
        lake_root=str(tmp_path / "lake"),
        staging_root=str(tmp_path / "staging"),
    )
    with silent_instance() as instance:
        world = Staging(settings, engine, instance)
        world.feed()
        yield world


def why(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    failed = [event for event in result.all_events if event.is_failure]
    return "\n".join(str(event.event_specific_data) for event in failed)


def judged(result: dg.ExecuteInProcessResult) -> dict[str | None, bool]:
    return {e.partition: e.passed for e in result.get_asset_check_evaluations()}


# Untouched replicas


@pytest.mark.pattern("passthrough_replicator", "full_loader")
def test_the_dropped_files_arrive_as_they_are_and_vanish_as_they_vanish(staging: Staging) -> None:
    drop, replica = staging.settings.landing / "devices", staging.root / "staging/devices_raw"
    before = staging.production()

    result = staging.run("devices_raw")
    assert result.success
    assert judged(result) == {None: True}
    assert (replica / "devices.json").read_bytes() == DUMP
    assert (replica / "more.json").read_bytes() == b"\xff\xfe"
    assert staging.production() == before

    (drop / "more.json").unlink()
    assert staging.run("devices_raw").success
    assert sorted(p.name for p in replica.iterdir()) == ["_SUCCESS", "devices.json"]


@pytest.mark.pattern("passthrough_replicator")
def test_a_drop_that_is_only_half_there_is_refused_by_name(staging: Staging) -> None:
    assert staging.run("devices_raw").success
    (staging.settings.landing / "devices/_SUCCESS").unlink()
    (staging.settings.landing / "devices/devices.json").write_bytes(DUMP[:20])

    said = why(staging.run("devices_raw"))

    assert "landing/devices` is not complete: it has no `_SUCCESS`" in said
    assert (staging.root / "staging/devices_raw/devices.json").read_bytes() == DUMP


@pytest.mark.pattern("passthrough_replicator")
@pytest.mark.red_check("equals_its_source")
def test_a_changed_byte_in_the_replica_is_red_and_named(staging: Staging) -> None:
    assert staging.run("devices_raw").success
    copy = staging.root / "staging/devices_raw/devices.json"
    copy.write_bytes(DUMP.replace(b"1.10}", b"1.1}"))

    checked = verdicts(staging.run("devices_raw", checks_only=True), "equals_its_source")[None]

    assert not checked.passed
    assert checked.blocking
    assert checked.metadata["differing"].value == ["devices.json"]
    assert judged(staging.run("devices_raw")) == {None: True}


@pytest.mark.pattern("passthrough_replicator")
def test_the_table_comes_with_its_history(staging: Staging) -> None:
    before = staging.production()

    result = staging.run("devices")

    assert result.success
    assert judged(result) == {None: True}
    spark, uri = staging.engine.spark_session, str(staging.root / "staging/devices")
    travelled = [spark.read.format("delta").option("versionAsOf", v).load(uri).count() for v in (0, 1)]
    assert travelled == [2, 3]
    assert staging.table("devices").history() == DeltaTable(staging.lake / "silver/devices").history()
    (event,) = result.asset_materializations_for_node("staging__devices")
    assert event.metadata["delta/version"].value == 1
    assert staging.production() == before


@pytest.mark.pattern("passthrough_replicator")
def test_a_table_replica_without_log_is_red_and_one_with_a_foreign_commit_is_refused(staging: Staging) -> None:
    assert staging.run("devices").success
    log = staging.root / "staging/devices/_delta_log"
    log.rename(log.with_name("_away"))
    red = verdicts(staging.run("devices", checks_only=True), "equals_its_source")[None]
    assert not red.passed
    assert len(red.metadata["missing"].value) == 3  # two commits and the live file
    assert judged(staging.run("devices")) == {None: True}

    write_deltalake(staging.root / "staging/devices", rows_of(Devices, HOURS[:1]), mode="append")
    red = verdicts(staging.run("devices", checks_only=True), "equals_its_source")[None]
    assert f"_delta_log/{2:020}.json" in red.metadata["unexpected"].value
    assert "somebody else wrote to the replica" in why(staging.run("devices"))


@pytest.mark.pattern("passthrough_replicator")
def test_a_source_table_that_vanished_is_named_and_the_replica_stays(staging: Staging) -> None:
    assert staging.run("devices").success
    require_kept_when_the_source_vanished(staging, "devices")


def require_kept_when_the_source_vanished(staging: Staging, name: str) -> None:
    before = staging.rows(staging.root / "staging" / name)
    (staging.lake / "silver" / name).rename(staging.settings.home / "gone")

    said = why(staging.run(name))

    assert f"silver/{name}" in said or f"silver.{name}" in said
    assert staging.rows(staging.root / "staging" / name) == before


# Replicas by allow-list


@pytest.mark.pattern("transformation_replicator")
def test_what_leaves_is_what_was_reviewed() -> None:
    """A column that joins a source's contract without a tag leaves production: this list is where that is noticed."""
    assert Contract.of(StagingUsers).column_names == ("user_id", "country", "valid_from", "valid_to", "is_current")
    assert Contract.of(StagingVisits).column_names == (
        "visit_id",
        "event_time",
        "user_id",
        "page",
        "keep_private",
        "referral",
        "ad_id",
        "connected_since",
        "browser",
        "browser_version",
        "network_type",
        "device_type",
        "device_version",
        "is_bot",
        "event_hour",
    )


@pytest.mark.pattern("transformation_replicator")
def test_users_arrive_without_personal_columns_and_stay_where_a_source_is_unclassified_or_vanished(
    staging: Staging,
) -> None:
    before = staging.production()
    personal = Contract.of(Users).personal
    source = staging.rows(staging.lake / "silver/users")
    expected = sorted(({k: v for k, v in row.items() if k not in personal} for row in source), key=repr)

    for _ in range(2):
        result = staging.run("users")
        assert result.success
        assert judged(result) == {None: True}
        assert staging.rows(staging.root / "staging/users") == expected

    assert personal
    assert staging.leaked() == []
    assert staging.production() == before

    version = staging.table("users").version()
    wider = rows_of(Users, HOURS[:1]).append_column("phone", pa.array([CANARY], pa.string()))
    write_deltalake(staging.lake / "silver/users", wider, mode="append", schema_mode="merge")
    said = why(staging.run("users"))
    assert "does not classify: `phone`. Nothing was replicated" in said
    assert CANARY not in said
    assert staging.table("users").version() == version
    assert staging.rows(staging.root / "staging/users") == expected
    assert staging.leaked() == []

    require_kept_when_the_source_vanished(staging, "users")


@pytest.mark.pattern("transformation_replicator")
def test_an_hour_of_visits_is_replaced_and_the_others_stay(staging: Staging) -> None:
    result = staging.run("visits", *KEYS)
    assert result.success
    assert judged(result) == dict.fromkeys(KEYS, True)
    source = staging.lake / "silver/visits"
    DeltaTable(source).delete("visit_id IN ('visit_id 0', 'visit_id 7')")  # in the first hour and in the second

    assert staging.run("visits", KEYS[1]).success

    per_hour = [sum(r["event_hour"] == hour for r in staging.rows(staging.root / "staging/visits")) for hour in HOURS]
    assert per_hour == [5, 4, 5]
    assert staging.run("visits", *KEYS).success
    personal = Contract.of(Visits).personal
    expected = [{k: v for k, v in row.items() if k not in personal} for row in staging.rows(source)]
    assert staging.rows(staging.root / "staging/visits") == sorted(expected, key=repr)
    assert staging.leaked() == []


@pytest.mark.pattern("transformation_replicator")
@pytest.mark.red_check("holds_no_personal_column")
def test_a_personal_column_in_the_replica_is_red_even_where_no_reader_sees_it(staging: Staging) -> None:
    assert staging.run("users").success
    replica = staging.root / "staging/users"
    leaking = rows_of(Users, HOURS[:1])
    write_deltalake(replica, leaking, mode="append", schema_mode="merge")
    checked = verdicts(staging.run("users", checks_only=True), "holds_no_personal_column")[None]
    assert not checked.passed
    assert checked.blocking
    assert checked.metadata["columns"].value == dict.fromkeys(sorted(Contract.of(Users).personal), 1)

    # Out of the schema and out of every reader's sight, but one version back it is still there.
    clean = leaking.drop_columns(sorted(Contract.of(Users).personal))
    write_deltalake(replica, clean, mode="overwrite", schema_mode="overwrite")
    checked = verdicts(staging.run("users", checks_only=True), "holds_no_personal_column")[None]
    assert not checked.passed
    assert "(personal)" in str(checked.description)
    assert CANARY not in json.dumps({k: str(v) for k, v in checked.metadata.items()})

    shutil.rmtree(replica)
    assert staging.run("users").success
    again = verdicts(staging.run("users", checks_only=True), "holds_no_personal_column")[None]
    assert again.passed, again.description


@pytest.mark.pattern("passthrough_replicator", "transformation_replicator")
@pytest.mark.parametrize("name", ["devices_raw", "devices", "users"])
def test_staging_inside_production_is_refused_before_anything_is_written(staging: Staging, name: str) -> None:
    staging.settings = replace(staging.settings, staging_root=f"{staging.settings.lake_root}/staging")
    before = staging.production()

    assert "lie inside each other" in why(staging.run(name))

    assert staging.production() == before
