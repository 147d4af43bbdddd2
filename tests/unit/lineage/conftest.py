"""Two small inputs, read the way the platform reads them: filtered, selected, aliased."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from de_resources.lineage import column_lineage

SHORT = {"bronze.visits": "v", "silver.users": "u"}


class Trace(NamedTuple):
    """Lineage in a form that reads well in an assertion; `v` is `bronze.visits` and `u` is `silver.users`."""

    columns: dict[str, str]
    dependencies: set[str]


@pytest.fixture(scope="session")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files of the two inputs; without rows, as only plans are looked at."""
    root = tmp_path_factory.mktemp("lineage")
    schema = "id long, user_id long, page string, seconds int, tags array<string>, geo struct<city:string,zip:string>"
    spark.createDataFrame([], schema).write.parquet(f"{root}/visits")
    spark.createDataFrame([], "user_id long, name string").write.parquet(f"{root}/users")
    return str(root)


@pytest.fixture(scope="session")
def visits(spark: SparkSession, folder: str) -> DataFrame:
    """The first input; its filter is the reader's choice of partitions. Opened once: a frame is never changed."""
    frame = spark.read.parquet(f"{folder}/visits").where("id > 0")
    return frame.select("id", "user_id", "page", "seconds", "tags", "geo").alias("bronze.visits")


@pytest.fixture(scope="session")
def users(spark: SparkSession, folder: str) -> DataFrame:
    """The second input."""
    return spark.read.parquet(f"{folder}/users").alias("silver.users")


@pytest.fixture
def trace() -> Callable[[DataFrame], Trace]:
    """Lineage of a frame that must be understood completely."""

    def read(frame: DataFrame) -> Trace:
        found = column_lineage(frame, SHORT)
        assert found.complete, found.reasons
        columns = {
            name: ", ".join(sorted(f"{SHORT[by.source]}.{by.column} {by.kind.label}" for by in origins))
            for name, origins in found.columns.items()
        }
        return Trace(columns, {f"{by.kind} {SHORT[by.source]}.{by.column}" for by in found.dependencies})

    return read
