"""Figures that a write has measured are held against the accepted partitions before, and a person may accept others."""

from dataclasses import dataclass, field

import dagster as dg
import pytest

from de_checks.usual_figures import ACCEPT_TAG, usual_figures_check

pytestmark = pytest.mark.pattern("online_observer")

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
KEYS = DAILY.get_partition_keys()


@dataclass
class Loads:
    """An asset that tells a median per day, as the observer does, and writes nothing."""

    medians: dict[str, float] = field(default_factory=dict)
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        @dg.asset(partitions_def=DAILY, backfill_policy=dg.BackfillPolicy.single_run())
        def loads(context: dg.AssetExecutionContext) -> None:
            for key in context.partition_keys:
                if key in self.medians:
                    context.add_asset_metadata({"observer/amount/median": self.medians[key]}, partition_key=key)

        checks = [usual_figures_check(loads, ["amount/median"])]
        self.job = dg.Definitions(assets=[loads], asset_checks=checks).resolve_implicit_global_asset_job_def()

    def load(self, medians: dict[str, float], tags: dict[str, str] | None = None) -> dict[str | None, bool]:
        """Load these days in one run; the verdicts by day."""
        self.medians |= medians
        first, *_, last = [*medians, *medians]
        span = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        result = self.job.execute_in_process(instance=self.instance, tags=span | (tags or {}))
        return {e.partition: e.passed for e in result.get_asset_check_evaluations()}


def test_an_unusual_day_warns_and_is_not_learnt_from() -> None:
    loads = Loads()
    week = dict.fromkeys(KEYS[:7], 50.0)
    assert all(loads.load(week).values())
    assert loads.load(dict.fromkeys(KEYS[7:10], 80.0)) == dict.fromkeys(KEYS[7:10], False)
    assert loads.load({KEYS[10]: 50.5}) == {KEYS[10]: True}


@pytest.mark.red_check("figures_are_usual")
def test_a_level_that_a_person_accepts_is_learnt() -> None:
    loads = Loads()
    loads.load(dict.fromkeys(KEYS[:7], 50.0))
    assert loads.load({KEYS[7]: 80.0}) == {KEYS[7]: False}
    accepted = loads.load(dict.fromkeys(KEYS[7:14], 80.0), {ACCEPT_TAG: "a new tariff"})
    assert accepted == dict.fromkeys(KEYS[7:14], True)
    assert loads.load({KEYS[14]: 81.0}) == {KEYS[14]: True}


def test_a_day_that_was_not_measured_passes() -> None:
    loads = Loads()
    loads.load(dict.fromkeys(KEYS[:7], 50.0))
    result = loads.job.execute_in_process(instance=loads.instance, partition_key=KEYS[8])
    assert [e.passed for e in result.get_asset_check_evaluations()] == [True]
