"""The rows of an input that belong to rows at hand, so that the engine opens no file which cannot hold one.

What is looked for is known. Of one row its values stand in the condition: a filter, by which the table's log tells the files.
Of several a join decides; the partitions that they can come from are filtered first, as a join tells no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import pyspark.sql.types as T
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from de_resources.sql.identifiers import identifier
from de_resources.tracing.condition import RowCondition

_LITERAL = (T.StringType, T.BooleanType, T.IntegralType, T.FractionalType, T.DateType, T.TimestampType)
"""Types whose values can stand in a condition as they came."""


def matching(
    session: SparkSession,
    rows: DataFrame,
    condition: RowCondition,
    known: Sequence[Mapping[str, Any]],
    schema: StructType,
    partitioned_by: Sequence[str],
) -> DataFrame:
    """Those of `rows` that belong to one of the `known` ones, which have this schema. The condition has to have its SQL."""
    used = [field for field in schema if _uses(condition, field.name)] or list(schema)
    if len(known) == 1 and all(isinstance(field.dataType, _LITERAL) for field in used):
        return _of_one(rows, condition, known[0], used)
    for own, theirs in condition.equal.items():
        kind = schema[own].dataType
        if theirs in partitioned_by and rows.schema[theirs].dataType == kind and isinstance(kind, _LITERAL):
            rows = rows.where(_one_of(F.col(identifier(theirs)), [row[own] for row in known]))
    # More than the few columns of the condition would only be carried along.
    told = session.createDataFrame([tuple(row[field.name] for field in used) for row in known], StructType(used))
    return rows.alias("s").join(F.broadcast(told.alias("o")), F.expr(str(condition.sql)), "left_semi")


def _of_one(
    rows: DataFrame, condition: RowCondition, row: Mapping[str, Any], used: Sequence[T.StructField]
) -> DataFrame:
    """Both rows as structs, which the planner resolves: what is left is a filter of columns by literals."""
    values = [F.lit(row[field.name]).cast(field.dataType).alias(field.name) for field in used]
    both = rows.select(F.struct("*").alias("s"), F.struct(*values).alias("o"))
    return both.where(F.expr(str(condition.sql))).select("s.*")


def _one_of(column: Column, values: Sequence[Any]) -> Column:
    return reduce(or_, (column.eqNullSafe(F.lit(value)) for value in dict.fromkeys(values)))


def _uses(condition: RowCondition, name: str) -> bool:
    """Whether its name is in the condition at all, which a column needs to be used."""
    text = str(condition.sql).lower()
    return name.lower() in text or identifier(name).lower() in text
