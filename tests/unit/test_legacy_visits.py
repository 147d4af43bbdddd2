"""The times that legacy visits may have: the contract says them, and the load leaves out exactly what breaks it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from de_assets.bronze.legacy_visits import CONDITIONS
from de_assets.contracts.visits import CurrentLegacyVisits, LegacyVisits
from de_resources.contract import Contract

pytestmark = pytest.mark.pattern("incremental_loader")

TIMES = {
    "0001-01-01 00:00:00": False,
    "1969-12-31 23:59:59.999999": False,
    "1970-01-01 00:00:00": True,
    "2024-10-10 12:00:00": True,
    "2261-12-31 23:59:59.999999": True,
    "2262-01-01 00:00:00": False,
    "9999-12-31 23:59:59": False,
}


@pytest.mark.parametrize("model", [LegacyVisits, CurrentLegacyVisits])
def test_contracts_bound_the_time_of_the_event(spark: SparkSession, model: type) -> None:
    rules = [rule for rule in Contract.of(model).rules if "event_time" in rule.predicate]
    kept = " AND ".join(f"({rule.predicate})" for rule in rules)
    rows = spark.createDataFrame([(time,) for time in TIMES], "said STRING")
    judged = rows.selectExpr("said", "CAST(said AS TIMESTAMP) AS event_time").selectExpr("said", f"{kept} AS kept")
    assert {row.said: row.kept for row in judged.collect()} == TIMES


def test_a_row_that_breaks_them_is_left_out_and_does_not_stop_its_hour() -> None:
    judged = {rule.name: rule.predicate for rule in Contract.of(LegacyVisits).rules}
    assert CONDITIONS.items() <= judged.items(), "one place for each fact"
    assert all("event_time" in condition for condition in CONDITIONS.values())
    assert CONDITIONS
