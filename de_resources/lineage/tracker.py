"""The entrance: a frame's analysed plan, and the lineage that it tells."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame

from de_resources.compat.plans import analysed_plan
from de_resources.lineage.model import Lineage
from de_resources.lineage.resolver import lineage_of_plan


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
