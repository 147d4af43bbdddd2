"""The plan that is asked of a Connect server: of no rows, so that it tells the same and the server looks at no table for it.

The server is played by the engine of these tests: both explain a frame by the same code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from de_resources.compat.plans import analysed_plan
from de_resources.lineage.resolver import lineage_of_plan

pytestmark = pytest.mark.pattern("fine_grained_tracker")


class Remote:
    """A frame that is no classic one, as far as its plan is asked for."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame

    @property
    def isStreaming(self) -> bool:  # noqa: N802 - Spark's name
        return self.frame.isStreaming

    def limit(self, number: int) -> Remote:
        return Remote(self.frame.limit(number))

    def _explain_string(self, *, extended: bool) -> str:
        assert extended
        jvm: Any = self.frame.sparkSession._jvm
        mode = jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")
        return str(self.frame._jdf.queryExecution().explainString(mode))


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, DataFrame]]:
    """Of two Delta tables, as assets read them."""
    root = tmp_path_factory.mktemp("read")
    visits, users = (_table(spark, root, name).alias(f"silver/{name}") for name in ("visits", "users"))
    joined = visits.join(users, "id", "left").select(
        "id", F.col("`silver/users`.text").alias("who"), "`silver/visits`.day"
    )
    newest = F.row_number().over(Window.partitionBy("day").orderBy("id"))
    visits.createOrReplaceTempView("seen")
    yield {
        "join": joined,
        "cached": joined.persist(),
        "counted": joined.where("id > 1").groupBy("day").agg(F.countDistinct("who").alias("people")),
        "union": visits.unionByName(users).distinct(),
        "window": visits.withColumn("place", newest).where("place = 1"),
        "text": spark.sql("WITH a AS (SELECT id, text FROM seen) SELECT * FROM a WHERE id IN (SELECT max(id) FROM a)"),
        "some": visits.limit(3).select("text"),
    }
    joined.unpersist()


def _table(spark: SparkSession, root: Path, name: str) -> DataFrame:
    write_deltalake(root / name, pa.table({"id": [1, 2, 3], "text": ["a\nb", "] ", "c"], "day": ["x", "x", "y"]}))
    return spark.read.format("delta").load(str(root / name))


@pytest.mark.parametrize("kind", ["join", "cached", "counted", "union", "window", "text", "some"])
def test_it_tells_the_same_and_starts_no_job(spark: SparkSession, frames: dict[str, DataFrame], kind: str) -> None:
    frame, sources = frames[kind], frozenset({"silver/visits", "silver/users"})
    scheduler: Any = spark._jsc.sc().dagScheduler()  # type: ignore[attr-defined]
    before = scheduler.numTotalJobs()
    plan = analysed_plan(cast("DataFrame", Remote(frame)))
    assert scheduler.numTotalJobs() == before
    told = lineage_of_plan(plan, frame.columns, sources)
    assert told == lineage_of_plan(analysed_plan(frame), frame.columns, sources)
    assert told.complete
    assert told.inputs
