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

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
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


def frame(session: SparkSession, width: int, keys: int = KEYS) -> DataFrame:
    """Twelve rows; three of the ten that are there before have another last column."""
    identity = [F.col("id").alias(f"key_{n}") for n in range(keys)]
    values = [(F.col("id") + n).alias(f"value_{n}") for n in range(width)]
    last = F.when(F.col("id") < 3, -1).otherwise(F.col("id")).alias("last")
    return session.range(12).select(*identity, *values, last)


def seed(table: Table, width: int, keys: int = KEYS) -> None:
    """Ten rows that are there before, written without the engine."""
    ids = range(10)
    identity = {f"key_{n}": list(ids) for n in range(keys)}
    values = {f"value_{n}": [id_ + n for id_ in ids] for n in range(width)}
    write_deltalake(table.uri, pa.table({**identity, **values, "last": list(ids)}))


def stamp() -> CommitInfo:
    """Of a run of its own."""
    run = uuid4().hex
    return CommitInfo("silver.wide", "wide", "all", run, run, run)


def count(table: Table) -> int:
    """Rows, by their files' statistics."""
    return DeltaTable(table.uri).to_pyarrow_dataset().count_rows()


def merged(session: SparkSession, table: Table, width: int, keys: int = KEYS) -> object:
    """Insert two rows, and change three in their last column."""
    seed(table, width, keys)
    return merge(session, table, frame(session, width, keys), stamp(), rule=rule(keys), slice_=None).changes


def overwritten(session: SparkSession, table: Table, width: int) -> object:
    """Replace what is there."""
    seed(table, width)
    replace(session, table, frame(session, width), stamp(), slice_=None)
    return count(table)


def appended(session: SparkSession, table: Table, width: int) -> object:
    """Into a table that this begins."""
    append(session, table, frame(session, width), stamp(), slice_=None)
    return count(table)


def merged_with_state(session: SparkSession, table: Table, width: int) -> object:
    """A first day."""
    turn = PartitionRun(DAYS[0], DAYS)
    return stateful_merge.merge(session, table, frame(session, width), stamp(), rule=rule(KEYS), turn=turn).changes


def streamed(session: SparkSession, table: Table, width: int) -> object:
    """What was appended."""
    source = str(Path(table.uri).with_name("append"))
    run_available_now(session, table, session.readStream.format("delta").load(source), stamp())
    return count(table)


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
