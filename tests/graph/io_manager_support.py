"""Shared by the IO manager's tests: small contracts, an asset in one line, runs whose outcome is easy to ask for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
from dagster_delta import LocalConfig
from other_reader import rows_of
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from seeding import named, seed

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.log import TableLog
from de_resources.errors import PlatformError
from de_resources.lake import Lake
from de_resources.spark import SparkEngine


class Orders(pa.DataFrameModel):
    """Orders of a shop, one row each."""

    id: T.LongType = pa.Field(nullable=False, description="Identity of the order")
    day: T.DateType = pa.Field(nullable=True, description="Local day of the order")
    amount: T.DoubleType = pa.Field(nullable=True, ge=0, description="Price")
    email: T.StringType = pa.Field(nullable=True, description="Who ordered", metadata={"personal": True})

    class Config:
        """The dataset as a whole."""

        name = "silver.orders"
        metadata = {"owner": "team:shop", "key": ["id"], "rules": {"small": "amount < 1000"}}  # noqa: RUF012


class NotedOrders(Orders):
    """Orders under a later contract, which has gained an optional column."""

    note: T.StringType = pa.Field(nullable=True, ne="", description="What was said")

    class Config:
        """The dataset as a whole."""

        name = "silver.orders"
        metadata = Orders.Config.metadata


class SealedOrders(Orders):
    """Orders under a contract that requires what no earlier row has."""

    note: T.StringType = pa.Field(nullable=False, description="What was said")

    class Config:
        """The dataset as a whole."""

        name = "silver.orders"
        metadata = Orders.Config.metadata


class OrderChanges(pa.DataFrameModel):
    """Changes of orders: `seq` says which one is the last, `gone` marks a soft delete."""

    id: T.LongType = pa.Field(nullable=False, description="Identity of the order")
    seq: T.LongType = pa.Field(nullable=True, description="Position of the change")
    email: T.StringType = pa.Field(nullable=True, description="Who ordered", metadata={"personal": True})
    gone: T.BooleanType = pa.Field(nullable=True, description="Soft-deleted")

    class Config:
        """The dataset as a whole."""

        name = "silver.changes"
        metadata = {"key": ["id"]}  # noqa: RUF012


ORDERS = f"{__name__}:Orders"
NOTED, SEALED = f"{__name__}:NotedOrders", f"{__name__}:SealedOrders"
CHANGES = f"{__name__}:OrderChanges"

ORDER = "id long, day date, amount double, email string"
"""The columns of `Orders`."""
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
OBSERVER = "de_resources.observers.online:OnlineObserver"

Make = Callable[[dg.AssetExecutionContext], DataFrame | None]


def asset(
    name: str, make: Make, *, partitions: Any = None, retries: int | dg.RetryPolicy = 0, **metadata: Any
) -> dg.AssetsDefinition:
    """The asset `silver/<name>` whose frame is `make(context)`."""

    @dg.asset(
        key=["silver", name],
        partitions_def=partitions,
        metadata=metadata,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
        retry_policy=dg.RetryPolicy(max_retries=retries) if isinstance(retries, int) and retries else retries or None,
    )
    def definition(context: dg.AssetExecutionContext) -> DataFrame:
        return make(context)  # type: ignore[return-value]

    return definition


def counting(column: str, seen: Path) -> Column:
    """A column of numbers; each computation of a row leaves one byte in `seen`."""

    def witness(number: int) -> int:
        with seen.open("a") as file:
            file.write(".")
        return number

    return F.udf(witness, "long").asNondeterministic()(column)


@dataclass
class Shop:
    """A lake of its own with an instance of its own."""

    engine: SparkEngine
    root: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    @property
    def spark(self) -> SparkSession:
        return self.engine.spark_session

    @property
    def manager(self) -> SparkDeltaIOManager:
        return SparkDeltaIOManager(
            root_uri=str(self.root), storage_options=LocalConfig(), spark=self.engine, **self.config
        )

    @property
    def lake(self) -> Lake:
        return Lake(root_uri=str(self.root), storage_options=LocalConfig(), spark=self.engine)

    def frame(self, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
        return self.spark.createDataFrame(rows, schema)

    def seed(
        self,
        name: str,
        rows: list[tuple[Any, ...]],
        schema: str,
        partitioned_by: str | None = "day",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """A table that is there before, written without the engine: what a test does not ask about costs milliseconds."""
        columns = self.frame([], schema).schema
        by = [partitioned_by] if partitioned_by else []
        seed(self.uri(name), named(rows, columns), columns, partitioned_by=by, properties=properties)

    def run(
        self,
        *assets: Any,
        key: str | None = None,
        keys: tuple[str, str] | None = None,
        select: Any = None,
        tags: Mapping[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Materialise one partition, a range of partitions, or an unpartitioned asset."""
        tags = dict(tags or {})
        if keys:
            tags |= {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
        return dg.materialize(
            list(assets),
            instance=self.instance,
            resources={"io_manager": self.manager, "lake": self.lake},
            partition_key=key,
            tags=tags,
            selection=select,
        )

    def judged(
        self, check: dg.AssetChecksDefinition, asset: dg.AssetsDefinition, key: str
    ) -> list[dg.AssetCheckEvaluation]:
        """What a check says of a partition, in a run of the check alone."""
        resources = {"io_manager": self.manager, "lake": self.lake}
        job = dg.Definitions([asset], asset_checks=[check], resources=resources).resolve_implicit_global_asset_job_def()
        alone = job.get_subset(asset_selection=set(), asset_check_selection=set(check.check_keys))
        done = alone.execute_in_process(instance=self.instance, partition_key=key, raise_on_error=False)
        return list(done.get_asset_check_evaluations())

    def failure(self, *assets: Any, **options: Any) -> PlatformError:
        """The platform's own error that ends the run."""
        try:
            self.run(*assets, **options)
        except Exception as error:  # whatever wraps it, the cause is looked for
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, PlatformError):
                cause = cause.__cause__
            if cause is None:
                raise
            return cause
        raise AssertionError("the run succeeded")

    def uri(self, name: str) -> str:
        return str(self.root / "silver" / name)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The live rows, as a reader sees them, sorted."""
        return rows_of(self.uri(name))

    def rows_by_the_engine(self, name: str) -> list[tuple[Any, ...]]:
        """The same by Spark, for columns whose names the other reader does not find: it would say null."""
        found = self.spark.read.format("delta").load(self.uri(name)).collect()
        return sorted((tuple(row) for row in found), key=repr)

    def log(self, name: str) -> TableLog:
        log = TableLog.open(self.uri(name))
        assert log is not None
        return log

    def version(self, name: str) -> int:
        return self.log(name).version

    def metadata(self, result: dg.ExecuteInProcessResult, name: str) -> dict[str, Any]:
        """The metadata of the first materialisation of an asset in a run, as plain values."""
        (first, *_) = result.asset_materializations_for_node(f"silver__{name}")
        return {k: v.value for k, v in first.metadata.items()}

    def rows_per_key(self, result: dg.ExecuteInProcessResult, name: str) -> dict[str | None, Any]:
        """`dagster/partition_row_count` by partition key."""
        events = result.asset_materializations_for_node(f"silver__{name}")
        return {str(e.partition): e.metadata["dagster/partition_row_count"].value for e in events}
