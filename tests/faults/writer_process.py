"""Run workers for tests: materialises what it is told line by line, each time in a process that may be killed.

A line of its input is `{"root": …, "steps": [{"name": "events", …}, …], "answer": FILE}`, or with `"migrate"`, the kind and
the step of a migration, in place of the steps. A fork of the process does it, so
that an engine is started once for many deaths, and its exit status (negative: the signal that ended it) is written to the
file. Tests call `follow` and `materialise` in their own process for the twin and for the undisturbed run. A step may wait
for its twin in another process (`meet`), or block while its files are being written (`block`).
"""

import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import dagster as dg
from dagster_delta import LocalConfig
from migration_walk import CHANGES, Walk
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.delta.publish import Rows
from de_resources.spark import SparkEngine

KEYS = dg.StaticPartitionsDefinition(["a", "b"])
AUDITS = [Rows(at_least=1)]
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


def follow(engine: SparkEngine, work: dict[str, Any]) -> None:
    """Run the steps one after another, or take the one step of a migration."""
    if "migrate" in work:
        kind, step = work["migrate"]
        Walk(engine.spark_session, Path(work["root"]), CHANGES[kind]).step(step)
        return
    for number, step in enumerate(work["steps"]):
        once = {name: value for name, value in step.items() if name != "repeat"}
        if "me" in work:
            meet(Path(work["meeting"]), str(number), work["me"], work["other"])
        for turn in range(step.get("repeat", 1)):
            ids = [r + turn for r in step["rows"]] if isinstance(step["rows"], list) else step["rows"]
            materialise(engine, Path(work["root"]), **(once | {"rows": ids}))


def _fork(engine: SparkEngine, work: dict[str, Any]) -> int:
    """The process that does it. Its parent may hold no thread of the table format's library, so that it writes nothing."""
    child = os.fork()
    if child:
        return child
    os.environ.update(work.get("environment", {}))
    ended = []

    def act() -> None:
        try:
            follow(engine, work)
            ended.append(0)
        except BaseException:  # noqa: BLE001 - a fork must not return into its parent's code
            traceback.print_exc()

    # In a thread, which gets a connection of its own to the virtual machine.
    thread = Thread(target=act)
    thread.start()
    thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended[0] if ended else 1)


@contextmanager
def _limited(engine: SparkEngine, size: int | None) -> Iterator[None]:
    """No file may become larger. Of the running JVM, since its start copies jars that are larger."""
    jvm = engine.spark_session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    before = resource.prlimit(jvm, resource.RLIMIT_FSIZE)
    resource.prlimit(jvm, resource.RLIMIT_FSIZE, (size or before[0], before[1]))
    yield
    resource.prlimit(jvm, resource.RLIMIT_FSIZE, before)


def main() -> None:
    """Follow what is told until there is no more."""
    engine = SparkEngine(url="local[2]", spark_config={"spark.log.level": "OFF"})
    engine.spark_session.sql("SELECT 1").collect()
    for line in sys.stdin:
        work = json.loads(line)
        with _limited(engine, work.get("file_limit")):
            status = os.waitstatus_to_exitcode(os.waitpid(_fork(engine, work), 0)[1])
        answer = Path(work["answer"])
        draft = answer.with_suffix(".draft")
        draft.write_text(str(status))
        draft.replace(answer)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
