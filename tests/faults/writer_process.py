"""A run worker for tests: materialises what its JSON argument says, in a process that may be killed.

`python writer_process.py '{"root": …, "steps": [{"name": "events", …}, …]}'`; tests call `materialise` in their own
process for the undisturbed run. A step may wait for its twin in another process (`meet`), or block while its files are
being written (`block`).
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_delta import LocalConfig
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.spark import SparkEngine

KEYS = dg.StaticPartitionsDefinition(["a", "b"])
DEADLINE = 240.0


def wait_for(path: Path, deadline: float = DEADLINE) -> None:
    """Until the file is there."""
    end = time.monotonic() + deadline
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{path.name} did not come")
        time.sleep(0.02)


def _blocking(session: SparkSession, rows: int, folder: Path) -> DataFrame:
    """Two tasks: one writes its file, the other says that it started and then waits."""

    def block(number: int) -> int:
        if number == rows // 2 + 10:
            (folder / "writing").touch()
            wait_for(folder / "release")
        return number

    numbers = session.range(0, rows, 1, 2).withColumn("id", F.udf(block, "long")("id"))
    return numbers.withColumn("k", F.lit("a"))


def materialise(
    engine: SparkEngine,
    root: Path,
    *,
    name: str,
    rows: list[int] | int,
    key: str | None = None,
    mode: str = "overwrite",
    block: str | None = None,
    **metadata: Any,
) -> dg.ExecuteInProcessResult:
    """One run that writes ids (`rows`, or as many as it says) into `silver/<name>`, partition `key` of column `k`."""
    session = engine.spark_session

    @dg.asset(
        key=["silver", name],
        partitions_def=KEYS if key else None,
        metadata={"mode": mode, "partition_expr": "k", "merge_keys": ["id"], **metadata},
    )
    def written() -> DataFrame:
        if block:
            return _blocking(session, int(str(rows)), Path(block))
        ids = session.range(rows) if isinstance(rows, int) else session.createDataFrame([(r,) for r in rows], "id long")
        return ids.coalesce(1).withColumn("k", F.lit(key or "a"))

    manager = SparkDeltaIOManager(root_uri=str(root), storage_options=LocalConfig(), spark=engine)
    return dg.materialize([written], partition_key=key, resources={"io_manager": manager})


def meet(folder: Path, place: str, me: str, other: str) -> None:
    """Wait until the other process is at the same place."""
    (folder / f"{place}-{me}").touch()
    wait_for(folder / f"{place}-{other}")


def main(work: dict[str, Any]) -> None:
    """Run the steps one after another; print one JSON line per step with its version."""
    engine = SparkEngine(url="local[2]", spark_config={"spark.log.level": "OFF"})
    engine.spark_session.sql("SELECT 1").collect()
    if work.get("file_limit"):
        # Of the running JVM, since its start copies jars that are larger.
        jvm = engine.spark_session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        resource.prlimit(jvm, resource.RLIMIT_FSIZE, (work["file_limit"], work["file_limit"]))
    for number, step in enumerate(work["steps"]):
        repeat = step.pop("repeat", 1)
        if "me" in work:
            meet(Path(work["meeting"]), str(number), work["me"], work["other"])
        for turn in range(repeat):
            ids = [r + turn for r in step["rows"]] if isinstance(step["rows"], list) else step["rows"]
            materialise(engine, Path(work["root"]), **(step | {"rows": ids}))
            print(json.dumps({"step": number, "turn": turn}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main(json.loads(sys.argv[1]))
