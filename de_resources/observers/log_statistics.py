"""What a commit's own statistics say of its columns: nulls, and the lowest and the highest value, at no cost.

Delta measures them of every file that it writes, for the first columns of a table. Bounds are taken for whole numbers, days,
moments (to the millisecond), and measurements where all of them are numbers, for NaN is greater than any: of texts they have
a part only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegralType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from de_resources.delta.log import TableLog
from de_resources.delta.table import Table
from de_resources.observers.measures import MAX, MIN, NULLS, Figure

_INDEXED, _CHOSEN = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_MAPPING = "delta.columnMapping.mode"
_COLLECT, _INDEXED_BY_DEFAULT = "spark.databricks.delta.stats.collect", "32"
_COUNTED = (NumericType, DateType, TimestampType, TimestampNTZType, StringType, BooleanType, BinaryType)


def told_columns(session: SparkSession, table: Table, schema: StructType) -> frozenset[str]:
    """The columns of which a commit of such a frame will tell how many nulls they have, and their bounds."""
    if session.conf.get(_COLLECT, "true") != "true":
        return frozenset()
    properties = {**(table.contract.properties if table.contract else {}), **table.properties, **table.properties_now()}
    if _CHOSEN in properties or properties.get(_MAPPING, "none") != "none":
        # Chosen columns are not looked for, and the statistics of mapped ones go by other names.
        return frozenset()
    most = int(properties.get(_INDEXED, _INDEXED_BY_DEFAULT))
    log = table.log()
    stored = [] if log is None else list(log.stored_names())
    by_name = {field.name: field for field in schema.fields}
    order = [*(name for name in stored if name in by_name), *(name for name in by_name if name not in stored)]
    told, leaves = [], 0
    for name in order:
        if name in table.partitioned_by:
            continue
        leaves += _leaves(by_name[name].dataType)
        if (most < 0 or leaves <= most) and isinstance(by_name[name].dataType, _COUNTED):
            told.append(name)
    return frozenset(told)


def _leaves(type_: DataType) -> int:
    return sum(_leaves(f.dataType) for f in type_.fields) if isinstance(type_, StructType) else 1


@dataclass(frozen=True)
class StatedStatistics:
    """What the files of one key tell: rows, and by column nulls and bounds. A bound that a file lacks is left out."""

    rows: int
    columns: Mapping[str, Mapping[str, Figure]]


def told_by(
    log: TableLog,
    version: int,
    fields: Sequence[StructField],
    key_of: Callable[[Mapping[str, Any]], str | None],
    bounded: Container[str],
) -> dict[str | None, StatedStatistics] | None:
    """What a commit tells of these columns, by the key of its files; None where a file has no statistics.

    Bounds are told of the `bounded` columns only: they are values.
    """
    files: dict[str | None, list[Mapping[str, Any]]] = {}
    for action in log.actions(version):
        added = action.get("add")
        if added is None:
            continue
        statistics = json.loads(added.get("stats") or "{}")
        if "numRecords" not in statistics:
            return None
        files.setdefault(key_of(added.get("partitionValues") or {}), []).append(statistics)
    return {key: _together(own, fields, bounded) for key, own in files.items()}


def _together(
    files: Sequence[Mapping[str, Any]], fields: Sequence[StructField], bounded: Container[str]
) -> StatedStatistics:
    columns = {}
    for field in fields:
        nulls = [file.get("nullCount", {}).get(field.name) for file in files]
        if None in nulls:
            continue
        own: dict[str, Figure] = {NULLS: sum(int(count) for count in nulls)}
        filled = [f for f, count in zip(files, nulls, strict=True) if int(count) < int(f["numRecords"])]
        for name, bound, choose in ((MIN, "minValues", min), (MAX, "maxValues", max)):
            values = [_value(file.get(bound, {}).get(field.name), field.dataType) for file in filled]
            if field.name in bounded and values and None not in values:
                own[name] = choose(values)
        if MIN not in own or MAX not in own:
            # One bound is no number: the other one is not that of the numbers alone.
            own = {NULLS: own[NULLS]}
        columns[field.name] = own
    return StatedStatistics(sum(int(file["numRecords"]) for file in files), columns)


def _value(value: object, type_: DataType) -> Any:
    """The value as a look at the rows would tell it: a number, or a moment as text, which sorts as moments do."""
    if isinstance(type_, IntegralType):
        return value if isinstance(value, int) else None
    if isinstance(type_, DoubleType | DecimalType):
        return float(value) if isinstance(value, int | float) and isfinite(value) else None
    if isinstance(type_, DateType):
        return value if isinstance(value, str) and len(value) == len("2024-01-01") else None
    if isinstance(type_, TimestampType | TimestampNTZType) and isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        return f"{at.replace(tzinfo=None):%Y-%m-%d %H:%M:%S.%f}".removesuffix(".000000")
    return None
