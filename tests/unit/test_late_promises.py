"""Up to what age late rows are taken in: said in contracts, read by the machinery, shown and exported."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest

from de_assets.automation.late_data.runs import AgeUnsaid, Consumer
from de_assets.automation.late_data.visits import OF_DAYS, OF_HOURS, OF_TOTALS
from de_assets.contracts.traffic import UserActivity
from de_assets.contracts.visits import Visits
from de_assets.definitions import defs
from de_assets.gold.referral_stats import referral_stats
from de_assets.late_days import LOOK_BACK, NoWholeDays, window_days
from de_assets.late_promises import LatePromiseBroken, require_late_promises
from de_resources.contract import Contract, ContractModel
from de_resources.contract.lateness import UnusableLateness
from de_resources.contract.odcs import Surroundings, document

pytestmark = pytest.mark.pattern("dynamic_late_data_integrator")

GRAPH = defs.resolve_asset_graph()
SPECS = {spec.key: spec for spec in defs.resolve_all_asset_specs()}
HOURS = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-03-00:00")
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-03")


def model(name: str, said: Any) -> type[ContractModel]:
    class Sold(ContractModel):
        """Something sold."""

        id: T.LongType = pa.Field(nullable=False, description="Which")

        class Config:
            """Of the test."""

            metadata = {"owner": "team:shop"} | ({} if said is None else {"late_for": said})

    Sold.__qualname__ = Sold.__name__ = name.replace(".", "_")
    globals()[Sold.__name__] = Sold
    return Sold


def said_by(key: dg.AssetKey) -> timedelta | None:
    return Contract.load(str(SPECS[key].metadata["contract"])).late_for


def test_every_answer_made_of_landed_visits_says_up_to_what_age_it_takes_them_in() -> None:
    """Derived: gold, behind `bronze/visits`. What follows a stream has no day that could be asked for again."""
    landed = dg.AssetKey(["bronze", "visits"])
    behind = dg.AssetSelection.assets(landed).downstream().resolve(GRAPH)
    gold = {key for key in behind if key.path[0] == "gold"}
    assert {key.to_user_string() for key in gold if said_by(key) is None} == set()
    assert {key.to_user_string() for key in gold if not GRAPH.get(key).is_partitioned} == set(), "no day to ask for"
    assert len(gold) == 8, "those that the selection is to find"


@pytest.mark.parametrize("key", {**OF_HOURS, **OF_DAYS, **OF_TOTALS}, ids=lambda key: key.to_user_string())
def test_the_machinery_asks_for_days_up_to_the_age_of_the_contract(key: dg.AssetKey) -> None:
    assert Consumer(key, OF_HOURS[next(iter(OF_HOURS))], GRAPH).late_for(timedelta(days=999)) == said_by(key)


def test_without_a_contract_the_policy_says_it_and_without_both_nobody_does() -> None:
    @dg.asset(partitions_def=DAYS)
    def plain() -> None: ...

    consumer = Consumer(plain.key, plain.key, dg.Definitions([plain]).resolve_asset_graph())
    assert consumer.late_for(timedelta(days=3)) == timedelta(days=3)
    with pytest.raises(AgeUnsaid, match=r"`plain`.*late_for"):
        consumer.late_for()


@pytest.mark.parametrize("said", [timedelta(0), -timedelta(days=1), 31, "31 days"], ids=repr)
def test_an_age_that_nothing_can_have_is_refused_when_the_contract_is_loaded(said: Any) -> None:
    with pytest.raises(UnusableLateness, match=r"late rows for .*positive timedelta"):
        Contract.of(model("gold.never", said))


def test_it_is_shown_with_the_asset_and_exported() -> None:
    spec = SPECS[dg.AssetKey(["gold", "visits_cube_daily"])]
    assert spec.metadata["late_for"] == "31 d"
    contract = Contract.load(str(spec.metadata["contract"]))
    told = {each["property"]: each["value"] for each in document(contract, Surroundings("1.0.0"))["customProperties"]}
    assert told["lateFor"] == {"value": 31, "unit": "d"}
    silent = document(Contract.of(Visits), Surroundings("1.0.0"))["customProperties"]
    assert "lateFor" not in {each["property"] for each in silent}
    assert "late_for" not in SPECS[dg.AssetKey(["silver", "visits"])].metadata


def sold(name: str, said: Any, partitions: dg.PartitionsDefinition[str] | None, *deps: str) -> dg.AssetSpec:
    path = Contract.of(model(name, said)).path
    return dg.AssetSpec(
        name.split("."),
        partitions_def=partitions,
        deps=[dep.split(".") for dep in deps],  # type: ignore[arg-type]
        metadata={"contract": path},
    )


@pytest.mark.parametrize(
    ("of_hours", "kept"),
    [
        (timedelta(days=10), False),
        (timedelta(days=10, hours=22), False),
        (timedelta(days=10, hours=23), True),
        (None, True),
    ],
)
def test_a_day_takes_in_no_more_than_its_first_hour_does(of_hours: timedelta | None, kept: bool) -> None:
    hours = sold("silver.hours", of_hours, HOURS)
    days = sold("gold.days", timedelta(days=10), DAYS, "silver.hours", "gold.days")
    if kept:
        require_late_promises([hours, days])
    else:
        with pytest.raises(LatePromiseBroken, match=r"`gold/days`.*`silver/hours`.*10 days, 23:00:00"):
            require_late_promises([hours, days])


def test_days_have_their_length_before_the_first_of_them_is_over() -> None:
    """A log of this morning makes a calendar in which no day is over: its weeks are not seven days longer than its days."""
    days = sold("silver.days", timedelta(days=31), dg.DailyPartitionsDefinition("2999-01-01"))
    weeks = sold("gold.weeks", timedelta(days=25), dg.WeeklyPartitionsDefinition("2024-01-01"), "silver.days")
    require_late_promises([days, weeks])


def test_the_totals_are_corrected_no_longer_than_their_earlier_versions_are_kept() -> None:
    totals = Contract.of(UserActivity)
    kept = totals.properties["delta.deletedFileRetentionDuration"].split()
    assert totals.late_for is not None
    assert totals.late_for <= timedelta(**{kept[2]: int(kept[1])})


@pytest.mark.parametrize("said", [None, timedelta(hours=36)])
def test_a_look_back_is_of_whole_days(said: timedelta | None) -> None:
    with pytest.raises(NoWholeDays, match="late_for"):
        window_days(Contract.of(model("gold.ragged", said)))


def test_the_look_back_of_referrals_is_that_of_their_contract() -> None:
    spec = referral_stats.get_asset_spec()
    assert timedelta(days=spec.metadata[LOOK_BACK]) == said_by(spec.key)
