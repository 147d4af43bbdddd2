"""A small graph for tests of checks: daily visits with a contract on real Delta tables, and runs of parts of it."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from dagster_delta import LocalConfig
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

CANARY = "canary.person@example.org"
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
AC = dg.AutomationCondition
GATED = (
    AC.any_deps_updated().since_last_handled()
    & ~AC.any_deps_missing()
    & ~AC.any_deps_in_progress()
    & ~AC.in_progress()
    & AC.all_deps_blocking_checks_passed()
)


class Visits(pa.DataFrameModel):
    """One row per visit."""

    visit_id: T.StringType = pa.Field(nullable=False, description="Identity")
    email: T.StringType = pa.Field(nullable=True, str_contains="@", description="Who", metadata={"personal": True})
    pages: T.IntegerType = pa.Field(nullable=False, ge=0, description="Pages read")
    day: T.DateType = pa.Field(nullable=False, description="Day of the visit")
    region: T.StringType = pa.Field(nullable=True, description="Where")

    class Config:
        name = "silver.visits"
        metadata = {"owner": "team:web", "key": ["visit_id"], "partitioned_by": ["day"]}  # noqa: RUF012


def days(count: int, first: str = "2024-01-01") -> list[str]:
    """The keys of `count` days."""
    start = date.fromisoformat(first)
    return [str(start + timedelta(days=n)) for n in range(count)]


Row = tuple[str | None, str | None, int | None, str | None]


def good(day: str, rows: int = 2) -> list[Any]:
    """Rows that keep the contract: visit, e-mail, pages, region."""
    return [(f"{day}/{n}", CANARY, n, "eu") for n in range(rows)]


@dataclass
class World:
    """A lake and an instance of their own; `data` says what each day's source holds, and may change between runs."""

    spark: SparkSession
    engine: SparkEngine
    root: Path
    data: dict[str | None, list[Row]] = field(default_factory=dict)
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)
    definitions: dg.Definitions = field(default_factory=dg.Definitions)

    def visits(self, partitions: dg.PartitionsDefinition | None = DAYS, **metadata: Any) -> dg.AssetsDefinition:
        """The asset `silver/visits`, whose rows are those that `data` has for the run's keys."""
        expression = {"partition_expr": "day"} if partitions else {}

        @dg.asset(
            key=["silver", "visits"],
            partitions_def=partitions,
            backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
            metadata={"contract": f"{__name__}:Visits", **expression, **metadata},
        )
        def visits(context: dg.AssetExecutionContext) -> DataFrame:
            return self.frame(list(context.partition_keys) if partitions else [None])

        return visits

    def frame(self, keys: Sequence[Any]) -> DataFrame:
        """The rows of the keys; a key's day is its first ten characters (`2024-01-01|eu`)."""
        rows = [
            (visit, email, pages, date.fromisoformat(str(key)[:10]) if key else date(2024, 1, 1), region)
            for key in keys
            for visit, email, pages, region in self.data[None if key is None else str(key)]
        ]
        schema = "visit_id string, email string, pages int, day date, region string"
        return self.spark.createDataFrame(rows, schema).coalesce(1)

    def define(self, *parts: dg.AssetsDefinition | dg.AssetSpec | dg.AssetChecksDefinition) -> None:
        """Make a code location of assets and checks."""
        checks = [p for p in parts if isinstance(p, dg.AssetChecksDefinition)]
        self.definitions = dg.Definitions(
            assets=[p for p in parts if not isinstance(p, dg.AssetChecksDefinition)],
            asset_checks=checks,
            resources=self.resources(),
        )

    def resources(self) -> dict[str, Any]:
        """The IO manager and the lake."""
        config = LocalConfig()
        return {
            "io_manager": SparkDeltaIOManager(root_uri=str(self.root), storage_options=config, spark=self.engine),
            "lake": Lake(root_uri=str(self.root), storage_options=config, spark=self.engine),
        }

    def run(
        self, *keys: str, only: str = "", checks: bool = True, tags: dict[str, str] | None = None
    ) -> dg.ExecuteInProcessResult:
        """Materialise and check in one run: a key, or the range from the first to the last key.

        `only="checks"` runs the checks alone, `only="<asset name>"` that asset and its checks.
        """
        job = self.definitions.resolve_implicit_global_asset_job_def()
        layer = job.asset_layer
        assets = {k for k in layer.executable_asset_keys if only in ("", k.path[-1])}
        chosen = {c for c in layer.asset_graph.asset_check_keys if only == "checks" or c.asset_key in assets}
        subset = job.get_subset(asset_selection=assets, asset_check_selection=chosen if checks else set())
        ends = (
            {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
            if keys
            else {}
        )
        return subset.execute_in_process(
            instance=self.instance,
            partition_key=keys[0] if len(keys) == 1 else None,
            tags={**(ends if len(keys) > 1 else {}), **(tags or {})},
            raise_on_error=False,
        )

    def everything_recorded(self) -> str:
        """All events of all runs as text: what anybody can read in the UI."""
        runs = self.instance.get_run_ids()
        return "\n".join(str(entry) for run in runs for entry in self.instance.all_logs(run))


def verdicts(result: dg.ExecuteInProcessResult, name: str) -> dict[str | None, dg.AssetCheckEvaluation]:
    """The evaluations of one check by partition."""
    return {e.partition: e for e in result.get_asset_check_evaluations() if e.check_name == name}


def red(result: dg.ExecuteInProcessResult, name: str) -> list[str | None]:
    """The partitions that failed a check."""
    return [key for key, evaluation in verdicts(result, name).items() if not evaluation.passed]


def jobs_run(spark: SparkSession) -> int:
    """How many jobs the classic engine of this process ever started."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def clock(text: str) -> Callable[[], datetime]:
    """A clock that stands still."""
    return lambda: datetime.fromisoformat(text)


def queries_of(patch: pytest.MonkeyPatch, module: str) -> list[str]:
    """From now on, the functions of a module of ours that fetch a frame, once for each time they do.

    Asked of the client's calls: what the engine's own lists say about where a query came from depends on its other threads.
    """
    fetched: list[str] = []
    collect = ClassicDataFrame.collect

    def noted(frame: DataFrame) -> list[Any]:
        caller = inspect.currentframe().f_back
        if Path(caller.f_code.co_filename).name == module:
            fetched.append(caller.f_code.co_name)
        return collect(frame)

    patch.setattr(ClassicDataFrame, "collect", noted)
    return fetched
