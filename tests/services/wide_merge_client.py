"""Run as a program by the tests: one process may not have a classic and a Connect session at once.

Arguments: `sc://` address with its token in SPARK_CONNECT_AUTHENTICATE_TOKEN, folder of a Delta table, number of columns.
Merges three times and prints what each merge did as JSON.
"""

from __future__ import annotations

import json
import sys
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.merge import merge
from de_resources.delta.write.merge_rule import MergeRule

KEYS = 4


def frame(session: SparkSession, width: int, changed: int) -> DataFrame:
    """Ten rows; in the first `changed` of them the last column is another one."""
    keys = [F.col("id").alias(f"key_{n}") for n in range(KEYS)]
    values = [(F.col("id") + n).alias(f"value_{n}") for n in range(width)]
    last = F.when(F.col("id") < changed, -1).otherwise(F.col("id")).alias("last")
    return session.range(10).select(*keys, *values, last)


def main(url: str, folder: str, width: int) -> None:
    """Insert, change three rows in their last column, and nothing."""
    session = SparkSession.builder.remote(url).getOrCreate()
    table = Table("silver.wide", folder)
    rule = MergeRule(key=tuple(f"key_{n}" for n in range(KEYS)))
    done = []
    for changed in (0, 3, 3):
        stamp = CommitInfo("silver.wide", "wide", "all", "run", "run", uuid4().hex)
        done.append(merge(session, table, frame(session, width, changed), stamp, rule=rule, slice_=None).changes)
    print(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
