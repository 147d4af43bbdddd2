"""Columns that a contract has gained and a table does not have yet: the next write adds them, a reader finds nulls until then.

Only an optional column can come so: of a required one nobody knows what rows that are there should hold. A frame that has one
is refused as every frame with other columns than its table's.

Source: pattern *Schema Compatibility Enforcer*; Delta's `ALTER TABLE … ADD COLUMNS`, a commit that writes no file.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from de_resources.contract import Contract
from de_resources.contract.contract import Column
from de_resources.delta.table import Table
from de_resources.delta.write.lock import creation_lock
from de_resources.delta.write.refusals import explained
from de_resources.sql.identifiers import column_texts
from de_resources.sql.literals import literal


def gain_optional_columns(session: SparkSession, table: Table, contract: Contract | None) -> tuple[str, ...]:
    """Give a table the columns that its contract has and it lacks, last and in their declared order; the names of these.

    Rows that are there have nulls in them. One commit, and none where nothing is missing, where there is no table, or where one
    of the missing columns is required or one by which the table would be stored. A rerun does nothing.
    Raises `UnquotableName`, `UnstorableName` and `ConcurrentWrite`.
    """
    if contract is None or not _gained(table, contract):
        return ()
    with creation_lock(table.uri, table=table.name), explained(table):
        # Another writer of the same engine may have been faster.
        missing = _gained(table, contract)
        if missing:
            mapped = (table.properties_now().get("delta.columnMapping.mode") or "none") != "none"
            texts = column_texts(StructType([StructField(c.name, c.type) for c in missing]), mapped=mapped)
            columns = ", ".join(f"{texts[c.name]} COMMENT {literal(c.description)}" for c in missing)
            session.sql(f"ALTER TABLE {table.sql} ADD COLUMNS ({columns})")
    return tuple(c.name for c in missing)


def with_optional_columns(frame: DataFrame, contract: Contract | None) -> DataFrame:
    """The frame with a null for each optional column of the contract that it lacks: what an older contract stored.

    These come last. A column that is required and missing stays missing, so that whoever asks for it is told.
    """
    missing = _optional(contract, frame.columns) if contract else []
    return frame.select("*", *(F.lit(None).cast(c.type).alias(c.name) for c in missing)) if missing else frame


def _gained(table: Table, contract: Contract) -> list[Column]:
    """What the table is to gain: nothing, unless all that it lacks can be gained."""
    log = table.log()
    if log is None or type(table) is not Table:
        return []
    present = log.column_names()
    missing = _optional(contract, present)
    lacks = {c.name for c in contract.columns} - set(present)
    gained = {c.name for c in missing} - {*table.partitioned_by, *contract.partitioned_by}
    return missing if gained == lacks else []


def _optional(contract: Contract, present: Collection[str]) -> list[Column]:
    known = {name.lower() for name in present}
    return [c for c in contract.columns if c.nullable and c.name.lower() not in known]
