"""The IO manager of immutable versions: runs, reruns, readers, crashes before the switch, the way back, retention."""

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from dagster_delta import LocalConfig
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.maintenance.lake_tables import KeepsNoVersions, KeepsVersions
from de_assets.automation.maintenance.nightly import maintenance_job
from de_assets.automation.maintenance.restore import restore_job
from de_assets.automation.maintenance.versions import version_jobs
from de_checks.contract import contract_check
from de_checks.volume import volume_check
from de_resources.delta.table import TableMissing
from de_resources.delta.write.crash_points import at
from de_resources.errors import PlatformError
from de_resources.lake import Lake
from de_resources.proxy.catalogue_view import CatalogueViewIOManager, NewestPartition
from de_resources.proxy.io_manager import NotAVersion, ProxyDeltaIOManager
from de_resources.proxy.store import NoSuchManifest, VersionStore
from de_resources.proxy.table import NoImmutableStore, NotVersioned, ProxiedTable, VersionOutdated
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("proxy")

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-06")
D1, D2, D3 = "2026-01-01", "2026-01-02", "2026-01-03"


class Plans(pa.DataFrameModel):
    """Plans of customers at the end of a day."""

    customer: T.LongType = pa.Field(nullable=False, ge=0, description="Who")
    day: T.DateType = pa.Field(nullable=False, description="Which day")
    plan: T.StringType = pa.Field(nullable=True, description="What")

    class Config:
        """The dataset as a whole."""

        name = "gold.plans"
        metadata = {"owner": "team:shop", "key": ["customer", "day"], "partitioned_by": ["day"]}  # noqa: RUF012


class PlansAndPrices(Plans):
    """The same, later, with a column more."""

    price: T.DoubleType = pa.Field(nullable=True, description="How much")

    class Config:
        """The dataset as a whole."""

        name = "gold.plans"
        metadata = {"owner": "team:shop", "key": ["customer", "day"], "partitioned_by": ["day"]}  # noqa: RUF012


class PlansByNumber(Plans):
    """The same, with another type."""

    plan: T.LongType = pa.Field(nullable=True, description="What")  # type: ignore[assignment]

    class Config:
        """The dataset as a whole."""

        name = "gold.plans"
        metadata = {"owner": "team:shop", "key": ["customer", "day"], "partitioned_by": ["day"]}  # noqa: RUF012


@dataclass
class Office:
    """A lake with one proxied asset, whose rows a test sets, and readers of it."""

    engine: SparkEngine
    root: Path
    model: type[pa.DataFrameModel] = Plans
    extra: dict[str, Any] = field(default_factory=dict)
    plan: Any = "basic"
    customers: int = 2
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)
    read: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def definitions(self) -> dg.Definitions:
        metadata = {
            "contract": f"{__name__}:{self.model.__name__}",
            "partition_expr": "day",
            "versions": ProxiedTable.VERSIONS,
            "dagster/table_name": "gold.plans",
            **self.extra,
        }

        @dg.asset(
            key=["gold", "plans"],
            kinds={"deltalake"},
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            retry_policy=dg.RetryPolicy(max_retries=1),
            io_manager_key="proxy_io_manager",
            metadata=metadata,
        )
        def plans(context: dg.AssetExecutionContext) -> DataFrame:
            return self.frame([date.fromisoformat(key) for key in context.partition_keys])

        def reader(name: str, partitions: Any) -> dg.AssetsDefinition:
            @dg.asset(name=name, ins={"plans": dg.AssetIn(["gold", "plans"])}, partitions_def=partitions)
            def definition(plans: DataFrame) -> None:
                self.read[name] = sorted((r["day"].isoformat(), r["customer"], r["plan"]) for r in plans.collect())

            return definition

        @dg.asset(is_virtual=True, io_manager_key="view_io_manager", deps=[plans])
        def newest() -> NewestPartition:
            return NewestPartition("gold/plans", ("customer", "plan"))

        @dg.asset
        def of_newest(newest: DataFrame) -> None:
            self.read["of_newest"] = sorted(map(tuple, newest.collect()))

        assets = [plans, reader("of_a_day", DAYS), reader("of_all", None), newest, of_newest]
        config: dict[str, Any] = {"root_uri": str(self.root), "storage_options": LocalConfig(), "spark": self.engine}
        return dg.Definitions(
            assets=assets,
            asset_checks=[contract_check(plans), volume_check(plans)],
            jobs=[maintenance_job(assets), restore_job(assets), *version_jobs(assets)],
            resources={
                "proxy_io_manager": ProxyDeltaIOManager(**config),
                "view_io_manager": CatalogueViewIOManager(root_uri=str(self.root), spark=self.engine),
                "io_manager": dg.mem_io_manager,
                "lake": Lake(**config),
            },
            executor=dg.in_process_executor,
        )

    def frame(self, days: list[date]) -> DataFrame:
        rows = [(c, day, self.plan) for day in days for c in range(self.customers)]
        frame = self.engine.spark_session.createDataFrame(
            [(c, day, None if callable(p) else p) for c, day, p in rows],
            f"customer long, day date, plan {'long' if isinstance(self.plan, int) else 'string'}",
        )
        if callable(self.plan):
            frame = frame.withColumn("plan", self.plan())
        return frame.withColumn("price", F.lit(1.5)) if self.model is PlansAndPrices else frame

    def run(self, first: str, last: str | None = None, *assets: str, plan: Any = None) -> dg.ExecuteInProcessResult:
        """Materialise days, with everybody on the plan; other assets where they are named."""
        self.plan = self.plan if plan is None else plan
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last or first}
        job = self.definitions().resolve_implicit_global_asset_job_def()
        keys = [dg.AssetKey(name.split("/")) for name in assets or ("gold/plans",)]
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=keys,
            tags={} if assets and assets[0] in ("of_all", "newest", "of_newest") else tags,
            raise_on_error=False,
        )

    def job(self, name: str, op: str, **config: Any) -> dg.ExecuteInProcessResult:
        return (
            self.definitions()
            .resolve_job_def(name)
            .execute_in_process(
                run_config={"ops": {op: {"config": config}}}, instance=self.instance, raise_on_error=False
            )
        )

    def roll_back(self, manifest: int, **config: Any) -> dg.ExecuteInProcessResult:
        return self.job("roll_back", "roll_back_to", table="gold/plans", manifest=manifest, **config)

    @property
    def table(self) -> ProxiedTable:
        spec = self.definitions().resolve_asset_graph().get(dg.AssetKey(["gold", "plans"]))
        table = Lake(root_uri=str(self.root), storage_options=LocalConfig(), spark=self.engine).table(
            spec.key, spec.metadata
        )
        assert isinstance(table, ProxiedTable)
        return table

    @property
    def store(self) -> VersionStore:
        return self.table.store

    def plans(self) -> dict[str, set[str]]:
        """The plans of each day, as a reader of the whole dataset sees them."""
        found: dict[str, set[str]] = {}
        for row in self.table.read(self.engine.spark_session).collect():
            found.setdefault(row["day"].isoformat(), set()).add(row["plan"])
        return found


@pytest.fixture
def office(engine: SparkEngine, tmp_path: Path) -> Office:
    return Office(engine, tmp_path / "lake")


def told(result: dg.ExecuteInProcessResult, node: str = "gold__plans") -> dict[str | None, dict[str, Any]]:
    """Metadata of the materialisations by partition."""
    assert result.success
    events = result.asset_materializations_for_node(node)
    return {e.partition: {k: v.value for k, v in e.metadata.items()} for e in events}


def cause(result: dg.ExecuteInProcessResult) -> str:
    """The class of the platform's error that ended the run."""
    assert not result.success
    (event, *_) = result.get_step_failure_events()
    error, names = event.step_failure_data.error, []
    while error is not None:
        names.append(error.cls_name)
        error = error.cause
    return next(n for n in names if n in {c.__name__ for c in _errors(PlatformError)})


def _errors(base: type) -> set[type]:
    return {base, *(d for c in base.__subclasses__() for d in _errors(c))}


def test_runs_switch_their_own_days_and_readers_follow_and_read_nothing_that_was_forced_in(office: Office) -> None:
    first = told(office.run(D1, D3, plan="basic"))
    assert {k: m["dagster/partition_row_count"] for k, m in first.items()} == {D1: 2, D2: 2, D3: 2}
    assert {m["delta/version"] for m in first.values()} == {1}
    again = told(office.run(D2, plan="gold"))
    assert again[D2]["delta/version"] == 2
    assert again[D2]["proxy/versions_live"] == 2
    assert office.plans() == {D1: {"basic"}, D2: {"gold"}, D3: {"basic"}}
    assert office.run(D1, None, "of_all").success
    assert [plan for _, _, plan in office.read["of_all"]] == ["basic"] * 2 + ["gold"] * 2 + ["basic"] * 2
    assert office.run(D2, None, "of_a_day").success
    assert office.read["of_a_day"] == [(D2, 0, "gold"), (D2, 1, "gold")]
    # Both versions are there as they were written, and an earlier state can still be read.
    versions = [DeltaTable(office.store.versions_folder / v.id) for v in office.store.complete_versions()]
    assert [t.to_pyarrow_table().num_rows for t in versions] == [6, 2]
    assert {r["plan"] for r in office.table.read(office.engine.spark_session, 1).collect()} == {"basic"}

    # What root forces into a published version is not read.
    forced = office.store.versions_folder / office.store.complete_versions()[-1].id
    for place in (forced, forced / "_delta_log", forced / f"day={D2}"):
        place.chmod(0o755)
    write_deltalake(forced, DeltaTable(forced).to_pyarrow_table(), mode="append")
    assert office.run(D2, None, "of_a_day").success
    assert office.read["of_a_day"] == [(D2, 0, "gold"), (D2, 1, "gold")]


def test_a_crash_before_the_switch_is_made_up_for_without_computing_again(office: Office) -> None:
    assert office.run(D1, plan="basic").success
    failed: list[str] = []

    def lose_power(_: str) -> None:
        if not failed:
            failed.append("once")
            # Whoever computes the frame again ends here.
            office.plan = lambda: F.raise_error(F.lit("computed again")).cast("string")
            assert dict(office.store.live().live)[D1] == office.store.complete_versions()[0].id  # type: ignore[union-attr]
            raise OSError("no power")

    with at("before_switch", lose_power):
        result = office.run(D1, plan="gold")
    assert failed
    assert "nothing was computed again" in told(result)[D1]["skipped"]
    assert office.plans() == {D1: {"gold"}}
    assert len(office.store.complete_versions()) == 2


def test_a_switch_that_never_happened_is_a_job(office: Office) -> None:
    assert office.run(D1, plan="basic").success

    def lose_power(_: str) -> None:
        raise OSError("no power")

    with at("before_switch", lose_power):
        assert not office.run(D1, plan="gold").success
    assert office.plans() == {D1: {"basic"}}
    waiting = office.store.complete_versions()[-1].id
    switched = office.job("switch_version", "switch_to", table="gold/plans", version=waiting)
    assert told(switched, "switch_to")[D1]["proxy/version"] == waiting
    assert office.plans() == {D1: {"gold"}}
    assert told(office.job("switch_version", "switch_to", table="gold/plans", version=waiting), "switch_to") == {}


def test_the_way_back_is_one_action_and_retention_in_maintenance_keeps_what_is_live(office: Office) -> None:
    office.run(D1, D2, plan="basic")
    office.run(D1, D3, plan="wrong")
    back = told(office.roll_back(1), "roll_back_to")
    assert {k: (m["delta/version"], m["dagster/partition_row_count"]) for k, m in back.items()} == {
        D1: (3, 2),
        D2: (3, 2),
    }
    assert office.plans() == {D1: {"basic"}, D2: {"basic"}}
    assert told(office.roll_back(1), "roll_back_to") == {}
    assert office.roll_back(2, partitions=[D3]).success
    assert office.plans() == {D1: {"basic"}, D2: {"basic"}, D3: {"wrong"}}
    assert cause(office.roll_back(99)) == NoSuchManifest.__name__

    # All of what the second run wrote was gone back from or replaced.
    assert office.run(D3, plan="third").success
    config = {"ops": {"retain_versions": {"config": {"keep": 1, "days": 0}}}}
    job = office.definitions().resolve_job_def("maintenance")
    result = job.execute_in_process(run_config=config, instance=office.instance)
    (observation,) = result.get_asset_observation_events()
    figures = {k: v.value for k, v in observation.asset_observation_data.asset_observation.metadata.items()}
    assert figures["versions/removed"] == 1
    assert figures["versions/stored"] == 2
    assert "| 5 | live |" in str(figures["states"])
    assert office.plans() == {D1: {"basic"}, D2: {"basic"}, D3: {"third"}}
    assert "immutable" in _output(result, "maintain_tables")["report"]
    assert cause(office.roll_back(2)) == NoSuchManifest.__name__


def test_columns_may_change_from_version_to_version(office: Office) -> None:
    assert office.run(D1, plan="basic").success
    pinned = office.table.read_pinned(office.engine.spark_session)
    office.model = PlansAndPrices
    assert office.run(D2, plan="gold").success
    assert {str(row["day"]) for row in pinned.collect()} == {D1}
    rows = office.table.read(office.engine.spark_session).collect()
    assert sorted((str(r["day"]), r["price"]) for r in rows if r["customer"] == 0) == [(D1, None), (D2, 1.5)]
    # And back, by the contract and by the switch.
    office.model = Plans
    assert office.table.read(office.engine.spark_session).columns == ["customer", "day", "plan"]
    office.model = PlansByNumber
    with pytest.raises(VersionOutdated, match="Materialise these partitions again"):
        office.table.read(office.engine.spark_session)


def test_a_virtual_asset_shows_the_newest_live_partition_without_a_run_of_its_own(office: Office) -> None:
    assert cause(office.run(D1, None, "of_newest")) == TableMissing.__name__
    assert office.run(D1, None, "newest").success
    assert cause(office.run(D1, None, "of_newest")) == TableMissing.__name__
    assert [p.name for p in (office.root / "newest").iterdir()] == ["view.json"]
    office.run(D1, plan="basic")
    office.run(D2, plan="gold")
    assert office.run(D1, None, "of_newest").success
    assert office.read["of_newest"] == [(0, "gold"), (1, "gold")]
    assert office.roll_back(1).success
    assert office.run(D1, None, "of_newest").success
    assert office.read["of_newest"] == [(0, "basic"), (1, "basic")]


def test_checks_judge_what_is_live(office: Office) -> None:
    keys = ("gold/plans",)
    office.run(D1, None, *keys, plan="basic")
    office.customers = 50
    result = office.run(D2, None, *keys)
    verdicts = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    assert verdicts == {"rows_meet_contract": True, "volume_is_stable": False}
    # A state that was gone back to has no counters, and is read.
    office.run(D1, plan="other")
    assert office.roll_back(2, partitions=[D1]).success
    job = office.definitions().resolve_implicit_global_asset_job_def()
    checks = list(job.asset_layer.asset_graph.asset_check_keys)
    judged = job.get_subset(asset_selection=set(), asset_check_selection=set(checks)).execute_in_process(
        instance=office.instance, partition_key=D1, raise_on_error=False
    )
    by_name = {e.check_name: e for e in judged.get_asset_check_evaluations()}
    assert by_name["rows_meet_contract"].passed
    assert by_name["rows_meet_contract"].metadata["evidence"].value == "a scan of the slice"


def test_an_empty_day_is_a_version_as_well(office: Office) -> None:
    office.run(D1, plan="basic")
    office.customers = 0
    assert told(office.run(D1))[D1]["dagster/partition_row_count"] == 0
    assert office.plans() == {}


def test_a_lake_from_before_is_left_alone_and_named(office: Office) -> None:
    rows = office.frame([date(2026, 1, 1)]).toArrow()
    write_deltalake(office.root / "gold" / "plans", rows)
    assert cause(office.run(D1)) == NotVersioned.__name__
    assert cause(office.run(D1, None, "of_a_day")) == NotVersioned.__name__
    assert DeltaTable(office.root / "gold" / "plans").version() == 0
    maintained = office.definitions().resolve_job_def("maintenance").execute_in_process(instance=office.instance)
    assert "left alone" in str(_output(maintained, "retain_versions")["gold/plans"])


@pytest.mark.parametrize("extra", [{"mode": "append"}, {"schema_mode": "merge"}], ids=["mode", "schema_mode"])
def test_ways_of_writing_that_change_a_table_are_refused(office: Office, extra: dict[str, str]) -> None:
    office.extra = extra
    assert cause(office.run(D1)) == NotAVersion.__name__
    assert not (office.root / "gold" / "plans" / "versions").exists()


def test_an_object_store_is_refused(office: Office) -> None:
    with pytest.raises(NoImmutableStore, match="Nothing was written"):
        _ = ProxiedTable("gold.plans", "s3a://bucket/gold/plans").store


def test_jobs_on_plain_tables_name_the_way_for_versions(office: Office) -> None:
    restored = office.job("restore_table", "restore_to_version", table="gold/plans", version=0)
    assert cause(restored) == KeepsVersions.__name__
    other = office.job("roll_back", "roll_back_to", table="bronze/devices", manifest=1)
    assert cause(other) == KeepsNoVersions.__name__


def _output(result: dg.ExecuteInProcessResult, op: str) -> dict[str, Any]:
    (event,) = [e for e in result.events_for_node(op) if e.is_successful_output]
    return {k: v.value for k, v in event.step_output_data.metadata.items()}
