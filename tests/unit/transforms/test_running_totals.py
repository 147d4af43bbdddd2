"""Totals that grow: only the keys of the batch come back, and nulls are no numbers."""

import pytest
from pyspark.sql import SparkSession

from de_assets.transforms.idempotency.running_totals import add_to

pytestmark = pytest.mark.pattern("stateful_merger")


def test_a_batch_is_added_to_the_totals_of_its_keys(spark: SparkSession) -> None:
    schema = "id string, n long, low int, high int"
    before = spark.createDataFrame([("a", 3, 5, 5), ("b", 1, 1, 1), ("c", 2, None, None)], schema)
    batch = spark.createDataFrame([("a", 4, 2, 9), ("c", 1, 7, 7), ("d", 1, 6, 6)], schema)
    added = add_to(before, batch, "id", sums=["n"], lowest=["low"], highest=["high"])
    assert added.columns == ["id", "n", "low", "high"]
    assert sorted(map(tuple, added.collect())) == [("a", 7, 2, 9), ("c", 3, 7, 7), ("d", 1, 6, 6)]
