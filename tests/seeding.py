"""Tables that are there before a test asks: written without the engine, what it does not ask about costs milliseconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
import pyspark.sql.types as T
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from de_resources.delta.table import CHECKS, CommitInfo, Table
from de_resources.delta.write.merge_state import MergedPartition, facts

Rows = Iterable[Mapping[str, Any]]


def named(rows: Iterable[Sequence[Any]], columns: T.StructType) -> Rows:
    """Rows that are told by the order of the columns."""
    return (dict(zip(columns.names, row, strict=True)) for row in rows)


def seed(
    uri: str,
    rows: Rows,
    columns: T.StructType,
    *,
    partitioned_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    stamp: CommitInfo | None = None,
) -> None:
    """Append rows to a Delta table in one commit, or begin it; a column that a row does not name is null. Times are in UTC.

    With a stamp the commit says who wrote, and is the one of its application, as those of the platform.
    """
    by = list(partitioned_by) or None
    settings = dict(properties) if properties else None
    told = _told(stamp) if stamp else None
    write_deltalake(
        uri, _arrow(rows, columns), partition_by=by, mode="append", configuration=settings, commit_properties=told
    )


def seed_day(
    uri: str,
    rows: Rows,
    columns: T.StructType,
    *,
    writer: str,
    key: str,
    mode: Literal["append", "overwrite"] = "append",
) -> None:
    """The version that the first run of a stateful merge's partition leaves, behind all partitions that are in the table."""
    before = DeltaTable(uri).version() if DeltaTable.is_deltatable(uri) else None
    after = None if before is None else MergedPartition("", before, "")
    run = uuid4().hex
    stamp = CommitInfo("", writer, key, run, run, run, facts=facts("merge", after, ()))
    write_deltalake(uri, _arrow(rows, columns), mode=mode, commit_properties=signed(stamp))


def constrain(uri: str, conditions: Mapping[str, str]) -> None:
    """Let a table of one commit have had these constraints from the first, as the platform creates it."""
    (first,) = (Path(uri) / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    (about,) = (action["metaData"] for action in actions if "metaData" in action)
    about["configuration"] |= {f"{CHECKS}{name}": condition for name, condition in conditions.items()}
    (protocol,) = (action["protocol"] for action in actions if "protocol" in action)
    protocol["minWriterVersion"] = 3
    first.write_text("\n".join(map(json.dumps, actions)))


def signed(stamp: CommitInfo) -> CommitProperties:
    """By which a commit of delta-rs says who wrote, as those of the platform."""
    return CommitProperties(custom_metadata={"userMetadata": stamp.text()})


def restored(_: SparkSession, table: Table, version: int, stamp: CommitInfo) -> None:
    """In place of the engine's RESTORE: the same commit. The statement takes dozens of jobs: `graph/test_full_loader.py`."""
    DeltaTable(table.uri).restore(version, commit_properties=signed(stamp))


def _told(stamp: CommitInfo) -> CommitProperties:
    options = stamp.options()
    once = Transaction(options["txnAppId"], int(options["txnVersion"]))
    return CommitProperties(custom_metadata={"userMetadata": options["userMetadata"]}, app_transactions=[once])


def _arrow(rows: Rows, columns: T.StructType) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], to_arrow_schema(columns, timezone="UTC"))
