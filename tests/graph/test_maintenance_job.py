"""The job `maintenance` over a small lake: what is in order, what is not, and what nobody may ask for."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster_delta import LocalConfig
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.maintenance.lake_tables import LakeTables
from de_assets.automation.maintenance.nightly import maintenance_job, schedule
from de_assets.bronze import devices
from de_assets.definitions import assets as all_assets
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.log.retention import OVERRIDE
from de_resources.delta.write.lock import commit_lock
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("compactor")

LETTERS = dg.StaticPartitionsDefinition(["a", "b"])


def dataset(name: str, **options: Any) -> dict[str, Any]:
    metadata = {"dagster/table_name": f"silver.{name}", **options.pop("metadata", {})}
    return {"key": ["silver", name], "kinds": {"deltalake"}, "metadata": metadata, **options}


@dataclass
class Warehouse:
    """A partitioned table written in many small appends, and tables that are in no state to be maintained."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        @dg.asset(**dataset("events", partitions_def=LETTERS, metadata={"partition_expr": "k", "mode": "append"}))
        def events(context: dg.AssetExecutionContext) -> DataFrame:
            frame = self.engine.spark_session.range(10).coalesce(1)
            return frame.withColumn("k", F.lit(context.partition_key))

        def bare(name: str) -> dg.AssetsDefinition:
            @dg.asset(**dataset(name))
            def definition() -> None: ...

            return definition

        @dg.asset(**dataset("elsewhere", io_manager_key="other_io_manager"))
        def elsewhere() -> None: ...

        @dg.asset(**dataset("report", kinds={"html"}))
        def report() -> None: ...

        self.assets = [events, *map(bare, ("vanished", "odd", "never", "blank")), elsewhere, report]
        config: dict[str, Any] = {"root_uri": str(self.root), "storage_options": LocalConfig(), "spark": self.engine}
        self.definitions = dg.Definitions(
            assets=self.assets,
            jobs=[maintenance_job(self.assets)],
            resources={
                "io_manager": SparkDeltaIOManager(**config),
                "other_io_manager": dg.mem_io_manager,
                "lake": Lake(**config),
            },
        )

    def fill(self) -> None:
        """Without an engine: two files for each letter, one table that is gone, one broken log, one table of no rows."""
        folder = self.root / "silver"
        for key in ["a", "b"] * 2:
            rows = pa.table({"id": range(10), "k": [key] * 10})
            write_deltalake(str(folder / "events"), rows, partition_by=["k"], mode="append")
        DeltaTable.create(str(folder / "blank"), pa.schema([("id", pa.int64())]))
        self.instance.report_runless_asset_event(dg.AssetMaterialization(["silver", "vanished"]))
        (folder / "odd" / "_delta_log").mkdir(parents=True)
        (folder / "odd" / "_delta_log" / f"{0:020}.json").write_text("no log of Delta\n")

    def maintain(self, **config: Any) -> dg.ExecuteInProcessResult:
        return self.definitions.resolve_job_def("maintenance").execute_in_process(
            run_config={"ops": {"maintain_tables": {"config": config}}}, instance=self.instance, raise_on_error=False
        )

    def rows(self) -> list[tuple[int, str]]:
        found = DeltaTable(str(self.root / "silver" / "events")).to_pyarrow_table().to_pylist()
        return sorted((row["id"], row["k"]) for row in found)


def observed(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """The metadata of each table's observation."""
    events = [
        e.asset_observation_data.asset_observation
        for e in result.all_events
        if e.event_type_value == "ASSET_OBSERVATION"
    ]
    return {e.asset_key.to_user_string(): {k: v.value for k, v in e.metadata.items()} for e in events}


def summary(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of the op's one output."""
    (output,) = [e for e in result.events_for_node("maintain_tables") if e.is_successful_output]
    return {k: v.value for k, v in output.step_output_data.metadata.items()}


def reason(result: dg.ExecuteInProcessResult) -> str:
    error = result.get_step_failure_events()[0].step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message if error else ""


@pytest.fixture(scope="module")
def warehouse(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    filled = Warehouse(engine, tmp_path_factory.mktemp("warehouse"))
    filled.fill()
    return filled


@pytest.fixture(scope="module")
def maintained(warehouse: Warehouse) -> dg.ExecuteInProcessResult:
    """One run over all tables that removes everything that is not live."""
    refused = warehouse.maintain(retention_hours=1)
    assert "a retention of 1 hours is refused" in reason(refused)
    assert OVERRIDE in reason(refused)
    assert not observed(refused)
    return warehouse.maintain(retention_hours=0, retention_override=OVERRIDE, query_runs=1)


def test_deleted_rows_are_forgotten_after_the_days_that_their_asset_says(engine: SparkEngine, lake: Path) -> None:
    metadata = {
        "mode": "merge",
        "merge_keys": ["id"],
        "merge_order": "at",
        "merge_deleted": "gone",
        "merge_deleted_days": 2,
    }

    @dg.asset(**dataset("accounts", metadata=metadata))
    def accounts() -> DataFrame:
        rows = [(1, datetime(2024, 1, 1, tzinfo=UTC), True), (2, datetime(2024, 1, 2, tzinfo=UTC), True)]
        return engine.spark_session.createDataFrame(rows, "id int, at timestamp, gone boolean")

    config: dict[str, Any] = {"root_uri": str(lake), "storage_options": LocalConfig(), "spark": engine}
    resources = {"io_manager": SparkDeltaIOManager(**config), "lake": Lake(**config)}
    instance = dg.DagsterInstance.ephemeral()
    dg.materialize([accounts], resources=resources, instance=instance)
    job = maintenance_job([accounts], clock=lambda: datetime(2024, 1, 3, 12, tzinfo=UTC))
    done = dg.Definitions([accounts], jobs=[job], resources=resources).resolve_job_def("maintenance")
    done.execute_in_process(instance=instance)
    assert DeltaTable(str(lake / "silver" / "accounts")).to_pyarrow_table()["id"].to_pylist() == [2]
    (seen,) = instance.fetch_observations(dg.AssetKey(["silver", "accounts"]), 1).records
    observation = seen.asset_observation
    assert observation is not None
    assert observation.metadata["rows/forgotten"].value == 1


def test_each_table_has_its_figures_as_numbers_on_its_own_page(
    warehouse: Warehouse, maintained: dg.ExecuteInProcessResult
) -> None:
    assert maintained.success
    figures = observed(maintained)["silver/events"]
    assert figures["maintenance/state"] == "maintained"
    names = ("files/live_before", "files/live_after", "files/stored_before", "files/stored_after")
    assert [figures[name] for name in names] == [4, 2, 4, 2]
    stored = [p for p in (warehouse.root / "silver" / "events").rglob("*.parquet") if "_delta_log" not in p.parts]
    assert figures["bytes/stored_after"] == sum(p.stat().st_size for p in stored) < figures["bytes/stored_before"]
    assert (figures["versions/lost"], figures["versions/lost_list"]) == (4, "0-3")
    saved = figures["seconds/query_before"] - figures["seconds/query_after"]
    assert figures["seconds/query_saved"] == pytest.approx(saved, abs=0.001)
    assert warehouse.rows() == sorted((n, k) for n in range(10) for k in "ab" for _ in range(2))


def test_tables_in_no_state_to_be_maintained_are_named_and_the_others_go_on(
    maintained: dg.ExecuteInProcessResult,
) -> None:
    states = {name: figures["maintenance/state"] for name, figures in observed(maintained).items()}
    assert states == {
        "silver/blank": "empty",
        "silver/events": "maintained",
        "silver/never": "missing",
        "silver/odd": "foreign",
        "silver/vanished": "vanished",
    }
    said = summary(maintained)
    assert said["not_maintained"] == (
        "silver/blank (empty), silver/never (missing), silver/odd (foreign), silver/vanished (vanished), "
        "silver/elsewhere (foreign)"
    )
    assert "kept by another environment" in said["report"]
    assert (said["tables"], said["files/stored_before"], said["files/stored_after"]) == (1, 4, 2)


def test_a_table_of_the_selection_only_and_nothing_to_do_the_second_time(
    warehouse: Warehouse, maintained: dg.ExecuteInProcessResult
) -> None:
    before = DeltaTable(str(warehouse.root / "silver" / "events")).version()
    again = observed(warehouse.maintain(tables=["silver/events"]))
    assert list(again) == ["silver/events"]
    assert again["silver/events"]["maintenance/state"] == "in order"
    assert "seconds/query_saved" not in again["silver/events"]
    assert DeltaTable(str(warehouse.root / "silver" / "events")).version() == before
    unknown = warehouse.maintain(tables=["silver/report"])
    assert "`silver/report` is no table of this lake. There are: silver/blank, silver/events" in reason(unknown)


def test_a_table_that_is_being_written_is_left_alone_and_told(
    warehouse: Warehouse, maintained: dg.ExecuteInProcessResult
) -> None:
    job = warehouse.definitions.resolve_implicit_global_asset_job_def()
    selection = [dg.AssetKey(["silver", "events"])]
    assert job.execute_in_process(asset_selection=selection, partition_key="a", instance=warehouse.instance).success
    rows = warehouse.rows()
    with commit_lock(str(warehouse.root / "silver" / "events"), table="silver.events", shared=True):
        result = warehouse.maintain(tables=["silver/events"], lock_seconds=0)
    assert result.success
    assert observed(result)["silver/events"]["maintenance/state"] == "busy"
    assert summary(result)["not_maintained"] == "silver/events (busy)"
    assert warehouse.rows() == rows


def test_the_tables_are_those_that_the_assets_declare() -> None:
    tables = LakeTables.of(all_assets)
    assert {"bronze/devices", "silver/users", "gold/sessions", "bronze/visits_stream"} <= set(tables.own)
    assert "staging/devices" in tables.foreign
    assert not {name for name in tables.own if name.startswith("staging/")}


def test_the_schedule_is_outside_the_loading_windows() -> None:
    minute, hour = str(schedule.cron_schedule).split()[:2]
    (loading,) = (str(asked.cron_schedule).split() for asked in devices.polls)
    assert int(minute) not in range(20)  # hours land at full hours
    assert abs(int(hour) - int(loading[1])) >= 1
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING


def test_maintenance_starts_nothing_downstream() -> None:
    """An observation is no new data: automation does not compute what hangs on the table."""

    @dg.asset(key=["silver", "events"])
    def events() -> None: ...

    @dg.asset(key=["gold", "counts"], deps=[events], automation_condition=dg.AutomationCondition.eager())
    def counts() -> None: ...

    defs, instance = dg.Definitions([events, counts]), dg.DagsterInstance.ephemeral()
    dg.materialize([events, counts], instance=instance)
    first = dg.evaluate_automation_conditions(defs, instance)
    instance.report_runless_asset_event(dg.AssetObservation(["silver", "events"], metadata={"files/live_after": 1}))
    second = dg.evaluate_automation_conditions(defs, instance, cursor=first.cursor)
    assert second.total_requested == 0
