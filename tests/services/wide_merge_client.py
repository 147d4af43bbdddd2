"""Run as a program by the tests: one process may not have a classic and a Connect session at once.

Arguments: `sc://` address with its token in SPARK_CONNECT_AUTHENTICATE_TOKEN, a folder for Delta tables, number of columns,
writers. Writes a table by each, and prints what each write did, or how many rows the table has then, as JSON.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from uuid import uuid4

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write import stateful_merge
from de_resources.delta.write.merge import merge
from de_resources.delta.write.merge_rule import MergeRule
from de_resources.delta.write.overwrite import append, replace
from de_resources.delta.write.stateful_plan import PartitionRun
from de_resources.delta.write.stream import run_available_now

KEYS, MANY_KEYS = 4, 60
DAYS = ("2024-10-10", "2024-10-11")


def rule(keys: int) -> MergeRule:
    """Rows are told apart by so many columns."""
    return MergeRule(key=tuple(f"key_{n}" for n in range(keys)))


def frame(session: SparkSession, width: int, changed: int, keys: int = KEYS) -> DataFrame:
    """Ten rows; in the first `changed` of them the last column is another one."""
    identity = [F.col("id").alias(f"key_{n}") for n in range(keys)]
    values = [(F.col("id") + n).alias(f"value_{n}") for n in range(width)]
    last = F.when(F.col("id") < changed, -1).otherwise(F.col("id")).alias("last")
    return session.range(10).select(*identity, *values, last)


def stamp() -> CommitInfo:
    """Of a run of its own."""
    run = uuid4().hex
    return CommitInfo("silver.wide", "wide", "all", run, run, run)


def count(table: Table) -> int:
    """Rows, by their files' statistics."""
    return DeltaTable(table.uri).to_pyarrow_dataset().count_rows()


def merged(session: SparkSession, table: Table, width: int, keys: int = KEYS) -> list[object]:
    """Insert, change three rows in their last column, and nothing."""
    frames = (frame(session, width, changed, keys) for changed in (0, 3, 3))
    return [merge(session, table, each, stamp(), rule=rule(keys), slice_=None).changes for each in frames]


def overwritten(session: SparkSession, table: Table, width: int) -> list[object]:
    """Write, and replace."""
    done: list[object] = []
    for changed in (0, 3):
        replace(session, table, frame(session, width, changed), stamp(), slice_=None)
        done.append(count(table))
    return done


def appended(session: SparkSession, table: Table, width: int) -> list[object]:
    """Write, and add."""
    done: list[object] = []
    for changed in (0, 3):
        append(session, table, frame(session, width, changed), stamp(), slice_=None)
        done.append(count(table))
    return done


def merged_with_state(session: SparkSession, table: Table, width: int) -> list[object]:
    """A day that inserts, and one that changes three rows in their last column."""
    return [
        stateful_merge.merge(
            session, table, frame(session, width, changed), stamp(), rule=rule(KEYS), turn=PartitionRun(day, DAYS)
        ).changes
        for day, changed in zip(DAYS, (0, 3), strict=True)
    ]


def streamed(session: SparkSession, table: Table, width: int) -> list[object]:
    """What was appended."""
    source = str(Path(table.uri).with_name("append"))
    run_available_now(session, table, session.readStream.format("delta").load(source), stamp())
    return [count(table)]


WRITERS = {
    "merge": merged,
    "merge_by_many": partial(merged, keys=MANY_KEYS),
    "overwrite": overwritten,
    "append": appended,
    "stateful_merge": merged_with_state,
    "stream": streamed,
}


def main(url: str, folder: str, width: int, *writers: str) -> None:
    """Each writer into a table of its own."""
    session = SparkSession.builder.remote(url).getOrCreate()
    done = {writer: WRITERS[writer](session, Table("silver.wide", f"{folder}/{writer}"), width) for writer in writers}
    print(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
