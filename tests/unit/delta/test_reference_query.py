"""The proof that a compaction changed nothing notices where something changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from de_resources.delta.overwrite import append
from de_resources.delta.reference_query import ContentChanged, compare
from de_resources.delta.table import Stamp, Table

pytestmark = pytest.mark.pattern("compactor")


def test_versions_with_other_rows_are_told_apart_and_named(
    spark: SparkSession, table: Callable[..., Table], stamp: Callable[..., Stamp]
) -> None:
    rows = table()
    for values in (["a", "b"], ["c"]):
        append(spark, rows, spark.createDataFrame([(v,) for v in values], "text string"), stamp(), slice_=None)
    spark.sql(f"UPDATE {rows.sql} SET text = 'd' WHERE text = 'c'").collect()
    spark.sql(f"OPTIMIZE {rows.sql}").collect()
    assert compare(spark, rows, 3, 4, 1).runs == 1, "only files were rewritten"
    for before, after in ((1, 2), (2, 3)):
        with pytest.raises(ContentChanged, match=f"version {after} than in version {before}.*restore version {before}"):
            compare(spark, rows, before, after, 1)
