"""Run as a program by the tests: one process may not have a classic and a Connect session at once.

Arguments: `sc://` address with its token in SPARK_CONNECT_AUTHENTICATE_TOKEN, folder of a Delta table. Maintains the table and
restores it, and prints one JSON document.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from uuid import uuid4

from pyspark.sql import SparkSession

from de_resources.delta.log.retention import OVERRIDE
from de_resources.delta.maintenance import maintain
from de_resources.delta.maintenance.restore import restore
from de_resources.delta.table import CommitInfo, Table


def stamp() -> CommitInfo:
    """A stamp of its own for each step."""
    return CommitInfo("silver.rows", "maintenance", "all", "run", "run", uuid4().hex)


def main(url: str, folder: str) -> None:
    """Four appends, maintenance, an overwrite, and back."""
    session = SparkSession.builder.remote(url).getOrCreate()
    table = Table("silver.rows", folder)
    for turn in range(4):
        session.range(turn * 10, turn * 10 + 10).coalesce(1).write.format("delta").mode("append").save(folder)
    report = maintain(session, table, stamp(), retention=timedelta(), override=OVERRIDE, query_runs=1)
    rows = table.read(session).count()
    session.range(3).coalesce(1).write.format("delta").mode("overwrite").save(folder)
    restored = restore(session, table, report.oldest_readable, stamp())
    answer = {
        "files": [report.stored_before.files, report.stored_after.files],
        "lost": report.lost,
        "rows": [rows, table.read(session).count()],
        "stamped": restored.commit is not None,
        "metadata_left": session.conf.get("spark.databricks.delta.commitInfo.userMetadata", "none"),
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
