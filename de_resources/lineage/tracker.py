"""The entrance: a frame's analysed plan, and the lineage that it tells."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from de_resources.lineage.model import Lineage
from de_resources.lineage.resolver import lineage_of_plan

if TYPE_CHECKING:
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame


def analysed_plan(df: DataFrame) -> str:
    """The analysed logical plan as text. Over Spark Connect one round trip of analysis and planning; starts no job."""
    if isinstance(df, ClassicDataFrame):
        return str(df._jdf.queryExecution().analyzed().toString())
    # The public `explain` prints; capturing standard output would mix up the threads of a process.
    explained = str(cast("ConnectDataFrame", df)._explain_string(extended=True))
    analysed = explained.partition("== Analyzed Logical Plan ==\n")[2].partition("\n== Optimized Logical Plan ==\n")[0]
    _schema, _, plan = analysed.partition("\n")
    return plan


def column_lineage(df: DataFrame, sources: Collection[str]) -> Lineage:
    """Say where each column of `df` comes from, in terms of the inputs that were read as `df.alias(source)`.

    Only the columns of relations below such an alias are sources; other relations count as literals. What happens below
    the alias (the choice of partitions while reading) is no dependency. Where `spark.sql.debug.maxToStringFields` is
    below the number of a frame's columns the result is incomplete and says so. Reads no rows and changes nothing, so
    a rerun gives the same answer.
    """
    names: list[str] = []
    try:
        names = df.columns
        return lineage_of_plan(analysed_plan(df), names, sources)
    except Exception as error:  # noqa: BLE001  Lineage describes a write; no plan, however strange, may fail the write.
        return Lineage(
            dict.fromkeys(names, ()), complete=False, reasons=(f"The plan could not be read: {type(error).__name__}.",)
        )
