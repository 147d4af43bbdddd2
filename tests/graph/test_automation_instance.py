"""The files that start the platform: `dagster.yaml`, `workspace.yaml`, and what is on from the first start."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_module
from dagster._core.workspace.load_target import WorkspaceFileTarget

from de_assets.automation.pipelines import LANDING
from de_assets.catalogue import LOCATIONS
from de_assets.dashboards.definitions import defs as dashboards
from de_assets.definitions import defs
from de_resources.launcher import ForkingRunLauncher
from de_resources.run_queue.coordinator import LIMITS
from de_resources.run_queue.pools import POOL

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def instance(tmp_path: Path) -> dg.DagsterInstance:
    shutil.copy(PROJECT / "dagster.yaml", tmp_path)
    return dg.DagsterInstance.from_config(str(tmp_path))


def test_instance_is_what_the_file_says(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    with instance:
        assert instance.telemetry_enabled is False
        assert instance.run_retries_enabled
        assert instance.run_retries_max_retries == 2
        assert instance.run_retries_retry_on_asset_or_op_failure is False
        assert instance.run_monitoring_enabled
        concurrency = instance.get_concurrency_config()
        assert concurrency.run_queue_config.max_concurrent_runs == 4
        assert instance.run_coordinator.dequeue_interval_seconds == 1
        assert {"key": "dagster/backfill", "limit": 2} in concurrency.run_queue_config.tag_concurrency_limits
        assert {"key": f"{POOL}/{LANDING}", "limit": 3} in concurrency.run_queue_config.tag_concurrency_limits
        assert [dict(limit) for limit in LIMITS] == list(concurrency.run_queue_config.tag_concurrency_limits)[2:]
        assert concurrency.pool_config.default_pool_limit == 1
        assert Path(instance.root_directory) == tmp_path
        assert "Sqlite" in type(instance.run_storage).__name__


def test_run_queue_is_not_configured_twice() -> None:
    """Limits by tag in `concurrency` would replace those of the coordinator."""
    configured = yaml.safe_load((PROJECT / "dagster.yaml").read_text())
    assert "run_queue" not in configured
    assert "tag_concurrency_limits" not in configured["concurrency"]["runs"]


def test_runs_are_forked(instance: dg.DagsterInstance) -> None:
    with instance:
        assert isinstance(instance.run_launcher, ForkingRunLauncher)
        assert instance.run_launcher.supports_check_run_worker_health


def test_workspace_has_two_locations() -> None:
    origins = WorkspaceFileTarget([str(PROJECT / "workspace.yaml")]).create_origins()
    modules = {origin.location_name: origin.loadable_target_origin.module_name for origin in origins}
    assert modules == {"de_assets": "de_assets.definitions", "dashboards": "de_assets.dashboards.definitions"}


def test_locations_load() -> None:
    for location in (defs, dashboards):
        dg.Definitions.validate_loadable(location)


@pytest.mark.parametrize("module", LOCATIONS)
def test_a_code_server_finds_one_object_in_each_module(module: str) -> None:
    """By Dagster's own search, which refuses a module with a second one."""
    (found,) = loadable_targets_from_python_module(module, working_directory=None)
    assert found.attribute == "defs"


def test_automation_is_on_from_the_first_start() -> None:
    sensors = {s.name: s.default_status for location in (defs, dashboards) for s in location.sensors or []}
    triggers = {
        "visits_hour_landed",
        "visits_outside_calendar",
        "feature_released",
        "legacy_hours_due",
        "legacy_hours_grown",
        "daily_report_due",
        "late_hours",
        "late_days",
        "late_totals",
        "silent_flows",
        "written_around",
        "waiting_partitions",
    }
    assert set(sensors) == {"cascade", "cascade_in_order", "alerts", "news_from_gold", "openlineage_events"} | triggers
    assert set(sensors.values()) == {dg.DefaultSensorStatus.RUNNING}
    schedules = {s.name: s.default_status for s in defs.schedules or []}
    assert {"devices_reload", "referral_stats_daily", "maintenance_nightly", "bronze_users_changes_poll"} <= set(
        schedules
    )
    assert set(schedules.values()) == {dg.DefaultScheduleStatus.RUNNING}


def test_no_asset_relies_on_eager() -> None:
    """`eager` ignores late partitions and gates: the named conditions are used instead."""
    graph = defs.resolve_asset_graph()
    labels = {
        condition.get_label()
        for key in graph.materializable_asset_keys
        if (condition := graph.get(key).automation_condition) is not None
    }
    assert labels <= {"gated", "late_cascade", "computed_once"}
