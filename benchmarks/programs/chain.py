"""A code location of four small assets in a chain. `BENCH_EXECUTOR=multiprocess` leaves the executor to Dagster's default."""

import os

import dagster as dg
from dagster_delta import LocalConfig
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

ROWS = 10_000


@dg.asset(key_prefix="chain")
def first(spark: SparkEngine) -> DataFrame:
    """Numbers."""
    return spark.spark_session.range(ROWS).withColumn("bucket", F.col("id") % 100)


@dg.asset(key_prefix="chain", ins={"first": dg.AssetIn(["chain", "first"])})
def second(first: DataFrame) -> DataFrame:
    """A column more."""
    return first.withColumn("square", F.col("id") * F.col("id"))


@dg.asset(key_prefix="chain", ins={"second": dg.AssetIn(["chain", "second"])})
def third(second: DataFrame) -> DataFrame:
    """One row per bucket."""
    return second.groupBy("bucket").agg(F.sum("square").alias("squares"))


@dg.asset(key_prefix="chain", ins={"third": dg.AssetIn(["chain", "third"])})
def fourth(third: DataFrame) -> DataFrame:
    """One row."""
    return third.agg(F.sum("squares").alias("total"))


engine = SparkEngine()
defs = dg.Definitions(
    assets=[first, second, third, fourth],
    resources={
        "spark": engine,
        "io_manager": SparkDeltaIOManager(
            root_uri=Settings.from_environment().lake_root, storage_options=LocalConfig(), spark=engine
        ),
    },
    executor=None if os.environ.get("BENCH_EXECUTOR") == "multiprocess" else dg.in_process_executor,
)
