"""Run as a program by the tests: one process may not have a classic and a Connect session at once.

Arguments: `sc://` address with its token in SPARK_CONNECT_AUTHENTICATE_TOKEN, a folder. Writes a table under observation,
looks at it from outside, and prints one JSON document.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pandera.pyspark as pa
import pyspark.sql.types as T
from pyspark.sql import SparkSession

from de_resources.contract import Contract
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.modes import write_table
from de_resources.delta.write.request import WriteRequest
from de_resources.observers.offline import OfflineObserver
from de_resources.observers.online import OnlineObserver


class Rows(pa.DataFrameModel):
    """Any rows."""

    v: T.DoubleType = pa.Field(nullable=True)
    at: T.TimestampType = pa.Field(nullable=True)
    who: T.StringType = pa.Field(nullable=True, metadata={"personal": True})

    class Config:
        name = "silver.rows"


def main(url: str, folder: str) -> None:
    """A hundred rows, then none."""
    session = SparkSession.builder.remote(url).getOrCreate()
    table = Table("silver.rows", f"{folder}/rows", contract=Contract.of(Rows))
    rows = session.range(100).selectExpr(
        "CAST(id AS DOUBLE) v", "timestamp_seconds(id) at", "IF(id > 9, 'ann', NULL) who"
    )
    told = []
    for frame in (rows, rows.where("v < 0")):
        stamp = CommitInfo("silver.rows", "silver/rows", "all", *(uuid4().hex for _ in range(3)))
        request, observer = WriteRequest(session, frame, table, None, stamp), OnlineObserver()
        metadata = observer.record(request, observer.write(request, write_table))
        told.append({name: value for name, value in metadata.items() if isinstance(value, int | float | str)})
        look = OfflineObserver(Path(folder) / "profiles").look(lambda: session, "silver/rows", table, datetime.now(UTC))
        told[-1]["profiled"] = look.newest.figures.rows if look else None
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
