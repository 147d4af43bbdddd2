"""A contract bounds its timestamps: what other readers cannot hold is in no table, whoever wrote it.

A parser makes a record with such a time a dead letter; the rule of the contract is what holds where a parser was forgotten.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampNTZType, TimestampType

from de_assets.contract_versions import contracts_of
from de_assets.graph_assets import assets
from de_resources.contract import Contract

pytestmark = [pytest.mark.pattern("constraints_enforcer"), pytest.mark.pattern("dead_letter")]

CONTRACTS = {contract.name: contract for contract in contracts_of(assets).values()}
TIMES = {
    "0001-01-01 00:00:00": False,
    "1969-12-31 23:59:59.999999": False,
    "1970-01-01 00:00:00": True,
    "2261-12-31 23:59:59.999999": True,
    "2262-01-01 00:00:00": False,
    "9999-12-31 23:59:59": False,
    "+10000-01-01 00:00:00": False,
}
_LANDING = "the hour that is run: by the folder in which a file landed, which the calendar has"
_BROKER = "the broker's own clock: its topics have `LogAppendTime`, and a topic with another setting is refused"
EXCUSED = {
    "bronze.visits.landing_hour": _LANDING,
    "bronze.visits_dead_letter.landing_hour": _LANDING,
    "bronze.visits_stream.append_time": _BROKER,
    "bronze.ads_stream.append_time": _BROKER,
    "bronze.users_changes.append_time": _BROKER,
    "bronze.features_dead_letter.append_time": _BROKER,
    "bronze.legacy_visits.ingestion_time": "rows are read by it, of the hours that are run",
    "bronze.legacy_visits.ingestion_hour": "the hour of `ingestion_time`, by another rule",
}
"""Times that no record states itself, and why none of them can lie outside."""


def _times(contract: Contract) -> list[str]:
    return [column.name for column in contract.columns if isinstance(column.type, TimestampType | TimestampNTZType)]


STATED = sorted(
    f"{name}.{column}"
    for name, contract in CONTRACTS.items()
    if name.startswith("bronze.")
    for column in _times(contract)
)


def test_every_time_of_bronze_is_bounded_or_excused_by_name() -> None:
    assert {place.removeprefix("bronze.") for place in STATED if place not in EXCUSED} == {
        *("visits.event_time", "visits.connected_since", "visits_stream.event_time", "visits_stream.connected_since"),
        *("users_changes.changed_at", "users_changes.commit_time", "legacy_visits.event_time"),
        *("ads_stream.shown_at", "features.event_time"),
    }
    assert EXCUSED.keys() <= set(STATED)


@pytest.mark.parametrize("place", [place for place in STATED if place not in EXCUSED])
def test_a_time_that_a_record_states_is_bounded_by_its_contract(spark: SparkSession, place: str) -> None:
    name, _, column = place.rpartition(".")
    about = [rule for rule in CONTRACTS[name].rules if rule.about(_times(CONTRACTS[name])) == (column,)]
    rows = spark.createDataFrame([(time,) for time in TIMES], "said STRING")
    timed = rows.selectExpr("said", f"CAST(said AS TIMESTAMP) AS {column}")
    violated = " OR ".join(f"({rule.violated})" for rule in about)
    judged = timed.selectExpr("said", f"{column} IS NULL AS unknown", f"{violated} AS broken").collect()
    assert not any(row.unknown for row in judged), "the engine knows all of these times"
    assert {row.said: not row.broken for row in judged} == TIMES
