"""The entrance: a frame's analysed plan, and the lineage that it tells.

PySpark is imported with the first frame: who only tells or reads lineage needs no engine.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from de_resources.lineage.model import Lineage
from de_resources.lineage.reads import placed
from de_resources.lineage.resolver import lineage_of_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def column_lineage(df: DataFrame, sources: Collection[str]) -> Lineage:
    """Say where each column of `df` comes from, in terms of the inputs that were read as `df.alias(source)`.

    Only the columns of relations below such an alias are sources; other relations count as literals. What happens below
    the alias (the choice of partitions while reading) is no dependency. Where `spark.sql.debug.maxToStringFields` is
    below the number of a frame's columns the result is incomplete and says so. Reads no rows and changes nothing, so
    a rerun gives the same answer.
    """
    names: list[str] = []
    try:
        from de_resources.compat.plans import analysed_plan, formatted_plan

        names = df.columns
        found = lineage_of_plan(analysed_plan(df), names, sources)
        # What nobody named is rare, and only then the physical plan is asked, which knows the folders.
        return replace(found, unnamed=placed(found.unnamed, formatted_plan(df))) if found.unnamed else found
    except Exception as error:  # noqa: BLE001  Lineage describes a write; no plan, however strange, may fail the write.
        return Lineage(
            dict.fromkeys(names, ()), complete=False, reasons=(f"The plan could not be read: {type(error).__name__}.",)
        )
