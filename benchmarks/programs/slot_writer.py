"""One of several processes that write to the same table, on the Spark Connect server of DE_HOME or without an engine.

Arguments: the writer's number. Each line of the standard input is `<way> <table's folder> <round> <commits>`; the answer is one
line of JSON, once all commits are made: which slots this writer believes to have committed, and how often it began again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from uuid import uuid4

import dagster as dg
import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession

from de_resources.delta.slices import make_slice
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write import overwrite
from de_resources.delta.write.lock import commit_lock
from de_resources.engine.errors import ENGINE_ERRORS
from de_resources.spark import SparkEngine, close_connections

ROWS = 100
RETRIES = 50


def main(number: str) -> None:
    """Answer until the input ends."""
    session = SparkEngine().spark_session
    session.sql("SELECT 1").collect()
    print(json.dumps("ready"), flush=True)
    try:
        for line in sys.stdin:
            way, uri, round_, commits = line.split()
            slots = [f"w{number}r{round_}c{n}" for n in range(int(commits))]
            again = sum(WAYS[way](session, uri, slot) for slot in slots)
            print(json.dumps({"slots": slots, "again": again}), flush=True)
    finally:
        close_connections()


def ours(session: SparkSession, uri: str, slot: str) -> int:
    """As a run writes its partition: under the table's lock, stamped, confirmed in the log."""
    table = Table(name="bench.slots", uri=uri, partitioned_by=("slot",))
    run = uuid4().hex
    stamp = CommitInfo(table=table.name, writer="slots", slice=slot, run=run, origin=run, attempt=run)
    slice_ = make_slice([slot], dg.StaticPartitionsDefinition([slot]), "slot")
    with commit_lock(uri, table=table.name, shared=True):
        overwrite.replace(session, table, _frame(session, slot), stamp, slice_=slice_)
    return 0


def plain(session: SparkSession, uri: str, slot: str) -> int:
    """Delta's writer, again after a conflict."""
    where = f"slot = '{slot}'"
    frame = _frame(session, slot)
    return _again(
        lambda: frame.write.format("delta").mode("overwrite").option("replaceWhere", where).save(uri), ENGINE_ERRORS
    )


def delta_rs(session: SparkSession, uri: str, slot: str) -> int:  # noqa: ARG001 - needs no engine
    """delta-rs' writer, again after a conflict."""
    rows = pa.table({"slot": [slot] * ROWS, "number": range(ROWS)})
    where = f"slot = '{slot}'"
    return _again(
        lambda: write_deltalake(uri, rows, mode="overwrite", predicate=where, partition_by=["slot"]),
        (CommitFailedError,),
    )


def _again(write: Callable[[], object], conflicts: tuple[type[Exception], ...]) -> int:
    for again in range(RETRIES):
        try:
            write()
        except conflicts as error:
            if again == RETRIES - 1 or not _is_conflict(error):
                raise
            time.sleep(0.05)
        else:
            return again
    return RETRIES


def _is_conflict(error: Exception) -> bool:
    said = f"{type(error).__name__} {error}".lower()
    return "concurrent" in said or "conflict" in said


def _frame(session: SparkSession, slot: str) -> DataFrame:
    return session.range(0, ROWS, 1, 1).selectExpr(f"'{slot}' AS slot", "id AS number")


WAYS = {"ours": ours, "plain": plain, "delta-rs": delta_rs}

if __name__ == "__main__":
    main(*sys.argv[1:])
