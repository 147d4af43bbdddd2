"""A throw-away graph for tests over Spark Connect: an asset that is slow on purpose, and one with odd partition keys."""

import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster_delta import LocalConfig
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from waiting import PATIENCE

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

ROWS = 20_000
LETTERS = dg.StaticPartitionsDefinition(["a", "b"])
ODD_KEYS = [
    "'; DROP TABLE odd; --",
    "' OR '1'='1",
    '"; DELETE FROM odd; "',
    "`odd`",
    "../../outside",
    "%2e%2e%2foutside",
    "x" * 300,
    "{changes}",
    "ключ",
]
ODD = dg.StaticPartitionsDefinition(ODD_KEYS)


@dg.asset(key=["scratch", "slow"], partitions_def=LETTERS, metadata={"partition_expr": "letter"})
def slow(context: dg.AssetExecutionContext, spark: SparkEngine) -> DataFrame:
    """Two tasks: where SCRATCH_BLOCK names a folder, one writes its file, and the other says so and waits there."""
    folder = os.environ.get("SCRATCH_BLOCK")
    numbers = spark.spark_session.range(0, ROWS, 1, 2)
    if folder:
        # Defined here and not in the module: the engine's Python workers get it by value, they cannot import this file.
        def blocking(batches: Iterator[object]) -> Iterator[object]:
            import time
            from pathlib import Path

            for batch in batches:
                if int(batch["id"].iloc[0]) >= 10_000:  # type: ignore[index]
                    (Path(folder) / "writing").touch()
                    deadline = time.monotonic() + PATIENCE
                    while not (Path(folder) / "release").exists() and time.monotonic() < deadline:
                        time.sleep(0.02)
                yield batch

        numbers = numbers.mapInPandas(blocking, "id long")  # type: ignore[arg-type]
    return numbers.withColumn("letter", F.lit(context.partition_key))


@dg.asset(key=["scratch", "odd"], partitions_def=ODD, metadata={"partition_expr": "key"})
def odd(context: dg.AssetExecutionContext, spark: SparkEngine) -> DataFrame:
    """As many rows as the key's place in the list says, plus one."""
    count = ODD_KEYS.index(context.partition_key) + 1
    return spark.spark_session.range(count).withColumn("key", F.lit(context.partition_key))


@dg.asset(
    key=["scratch", "read_back"], partitions_def=ODD, ins={"odd": dg.AssetIn(["scratch", "odd"])},
    metadata={"partition_expr": "key"},
)  # fmt: skip
def read_back(odd: DataFrame) -> DataFrame:
    """The partition as the IO manager reads it."""
    return odd


def _io_manager() -> SparkDeltaIOManager:
    return SparkDeltaIOManager(
        root_uri=str(Path(Settings.from_environment().lake_root)), storage_options=LocalConfig(), spark=SparkEngine()
    )


defs = dg.Definitions(
    assets=[slow, odd, read_back],
    resources={"spark": SparkEngine(), "io_manager": _io_manager()},
    executor=dg.in_process_executor,
)
