"""A throw-away graph for tests over Spark Connect: `silver/users` as it is, but its merge can be held in the engine.

Where SCRATCH_BLOCK names a folder with a file `merging`, whoever computes the versions says so by a file `writing`, and waits
there for a file `release`.
"""

import os
from collections.abc import Iterator

import dagster as dg
from pyspark.sql import DataFrame
from scratch_assets import _io_manager

from de_assets.contracts.users import Users
from de_assets.dataset import dataset
from de_assets.silver.users import users as real
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(Users, patterns=["merger"], mode="merge", merge_vanished="delete"),
    ins={"changes": dg.AssetIn(["bronze", "users_changes"])},
)
def users(changes: DataFrame) -> DataFrame:
    """The real versions, slowly."""
    folder = os.environ["SCRATCH_BLOCK"]

    # Defined here and not in the module: the engine's Python workers get it by value, they cannot import this file.
    def blocking(batches: Iterator[object]) -> Iterator[object]:
        import time
        from pathlib import Path

        for batch in batches:
            if (Path(folder) / "merging").exists():
                (Path(folder) / "writing").touch()
                deadline = time.monotonic() + 120
                while not (Path(folder) / "release").exists() and time.monotonic() < deadline:
                    time.sleep(0.02)
            yield batch

    versions: DataFrame = real.op.compute_fn.decorated_fn(changes)  # type: ignore[union-attr]
    return versions.mapInPandas(blocking, versions.schema)  # type: ignore[arg-type]


defs = dg.Definitions(
    assets=[users, dg.AssetSpec(["bronze", "users_changes"])],
    resources={"spark": SparkEngine(), "io_manager": _io_manager()},
    executor=dg.in_process_executor,
)
