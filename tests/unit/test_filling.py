"""Filling a lake by what its graph declares: order, ranges, what is left out, what a bad partition holds back."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import dagster as dg
import pytest
from instances import silent_instance
from waiting import PATIENCE

from de_assets.filling import UnitOutcome, UpToDate, fill, units
from de_assets.filling.keys import FillState
from de_assets.filling.units import external_assets, longest_ways
from de_checks.per_key import Verdict, evaluate, spec_for

# Every third hour of two days: each key is a row of events for each run.
HOURLY = dg.TimeWindowPartitionsDefinition(
    "2024-10-10-00:00", end="2024-10-12-00:00", fmt="%Y-%m-%d-%H:%M", cron_schedule="0 */3 * * *"
)
DAILY = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-12")
HOURS = HOURLY.get_partition_keys()
FOUR_DAYS = dg.HourlyPartitionsDefinition("2024-10-10-00:00", end_date="2024-10-14-00:00")
SINGLE_RUN = dg.BackfillPolicy.single_run()


class Broker(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A resource that says which service it talks to."""

    services: ClassVar[tuple[str, ...]] = ("kafka",)


class Runs:
    """What was computed, in order."""

    def __init__(self) -> None:
        self.computed: list[tuple[str, tuple[str, ...]]] = []

    def note(self, context: dg.AssetExecutionContext) -> None:
        keys = tuple(context.partition_keys) if context.has_partition_key or context.has_partition_key_range else ()
        self.computed.append((context.asset_key.to_user_string(), keys))

    def of(self, name: str) -> list[tuple[str, ...]]:
        return [keys for asset, keys in self.computed if asset == name]


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def everything(_key: dg.AssetKey) -> FillState:
    return FillState()


def filled(
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    *,
    look: Callable[[dg.AssetKey], FillState] = everything,
    absent: dict[str, str] | None = None,
    up_to_date: UpToDate | None = None,
    tags: dict[str, str] | None = None,
) -> dict[str, UnitOutcome]:
    outcomes = fill(units([definitions]), instance, look, absent=absent or {}, up_to_date=up_to_date, tags=tags or {})
    return {key.to_user_string(): outcome for outcome in outcomes for key in outcome.unit.assets}


def hours_and_days(
    runs: Runs,
    *,
    failing: Sequence[str] = (),
    raising: Sequence[str] = (),
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.Definitions:
    """Landed hours, hours with a gate, days of them, a running total over days, and one table over all."""

    @dg.asset(partitions_def=HOURLY, backfill_policy=SINGLE_RUN, deps=["landed"])
    def hours(context: dg.AssetExecutionContext) -> None:
        runs.note(context)
        if wrong := set(context.partition_keys) & set(raising):
            raise ValueError(f"unreadable: {sorted(wrong)}")

    gate = spec_for(hours.get_asset_spec(), "complete", description="", blocking=True, metadata={})

    @dg.multi_asset_check(specs=[gate])
    def complete(
        context: dg.AssetCheckExecutionContext,
    ) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        verdicts = {key: Verdict(key not in failing, "", severity=severity) for key in HOURS}
        yield from evaluate(context, gate, lambda found: {key: verdicts[key] for key in found if key})

    @dg.asset(partitions_def=DAILY, backfill_policy=SINGLE_RUN, deps=[hours])
    def days(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True)

    @dg.asset(partitions_def=DAILY, deps=[days, dg.AssetDep("total", partition_mapping=before)])
    def total(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    @dg.asset(deps=[days])
    def report(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    landed = dg.AssetSpec("landed", partitions_def=HOURLY)
    return dg.Definitions(
        [report, total, days, hours, landed], asset_checks=[complete], executor=dg.in_process_executor
    )


def test_order_and_ranges_come_from_the_graph_and_every_run_has_the_tags_that_were_asked_for(
    instance: dg.DagsterInstance, runs: Runs
) -> None:
    outcomes = filled(instance, hours_and_days(runs), tags={"de/volume_accepted": "moved"})
    assert {run.tags.get("de/volume_accepted") for run in instance.get_runs()} == {"moved"}
    order = [name for name, _ in runs.computed]
    assert order[:2] == ["hours", "days"]
    assert sorted(order[2:]) == ["report", "total", "total"]
    assert runs.of("hours") == [tuple(HOURS)], "one run over all of them"
    assert runs.of("days") == [("2024-10-10", "2024-10-11")]
    assert runs.of("total") == [("2024-10-10",), ("2024-10-11",)], "each builds on the one before"
    assert outcomes["hours"].written == set(HOURS)
    assert (outcomes["hours"].checks_passed, outcomes["hours"].runs) == (16, 1)
    assert not any(outcome.left_out or outcome.failures or outcome.bad for outcome in outcomes.values())


def test_only_what_the_source_has_is_computed(instance: dg.DagsterInstance, runs: Runs) -> None:
    there = {*HOURS[1:3], *HOURS[10:]}
    filled(instance, hours_and_days(runs), look=lambda _: FillState(HOURLY, there))
    assert runs.of("hours") == [tuple(HOURS[1:3]), tuple(HOURS[10:])]
    assert runs.of("days") == [("2024-10-10", "2024-10-11")], "a day consists of the hours that are there"


def test_what_reads_a_whole_that_has_no_partition_yet_is_left_out(instance: dg.DagsterInstance, runs: Runs) -> None:
    outcomes = filled(instance, hours_and_days(runs), look=lambda _: FillState(HOURLY, set()))
    assert outcomes["report"].left_out == "`days` has no partition that can be computed yet"
    assert (outcomes["days"].left_out, outcomes["days"].runs, runs.computed) == (None, 0, [])


def test_a_bad_hour_holds_back_its_day_and_what_builds_on_it_and_nothing_else(
    instance: dg.DagsterInstance, runs: Runs
) -> None:
    outcomes = filled(instance, hours_and_days(runs, failing=["2024-10-10-06:00"]))
    assert outcomes["hours"].checks_failed == ["hours: complete [2024-10-10-06:00]"]
    assert not outcomes["hours"].failures, "a gate is told as a check"
    assert runs.of("days") == [("2024-10-11",)]
    assert outcomes["days"].held_back == {"2024-10-10": "the check hours: complete failed"}
    assert runs.of("total") == [], "the second day's total would lack the first"
    assert outcomes["total"].held_back["2024-10-11"] == "it builds on 2024-10-10"
    assert runs.of("report") == []


def four_days(runs: Runs, failing: str = "") -> dg.Definitions:
    """Hours of four days, what each day leaves open for the next one, and what is over: both in runs over ranges."""
    of_days = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-14")
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @dg.asset(partitions_def=FOUR_DAYS, deps=["landed"])
    def hours(context: dg.AssetExecutionContext) -> None:
        if context.partition_key == failing:
            raise ValueError(failing)

    deps = [hours, dg.AssetDep("pending", partition_mapping=before)]

    @dg.asset(partitions_def=of_days, backfill_policy=SINGLE_RUN, deps=deps)
    def pending(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    @dg.asset(partitions_def=of_days, backfill_policy=SINGLE_RUN, deps=deps)
    def closed(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    landed = dg.AssetSpec("landed", partitions_def=FOUR_DAYS)
    return dg.Definitions([hours, pending, closed, landed], executor=dg.in_process_executor)


@pytest.mark.pattern("incremental_sessionizer")
def test_what_is_carried_passes_through_a_day_for_which_nothing_came(instance: dg.DagsterInstance, runs: Runs) -> None:
    """Nothing before the first day with something, and nothing after the last."""
    there = {"2024-10-11-05:00", "2024-10-13-23:00"}
    filled(instance, four_days(runs), look=lambda _: FillState(FOUR_DAYS, there))
    days = ("2024-10-11", "2024-10-12", "2024-10-13")
    assert (runs.of("pending"), runs.of("closed")) == ([days], [days])


@pytest.mark.pattern("incremental_sessionizer")
def test_all_days_of_a_range_that_builds_on_a_bad_day_are_held_back(instance: dg.DagsterInstance, runs: Runs) -> None:
    bad, there = "2024-10-11-05:00", {f"2024-10-{day}-05:00" for day in range(10, 14)}
    outcomes = filled(instance, four_days(runs, failing=bad), look=lambda _: FillState(FOUR_DAYS, there))
    assert (runs.of("pending"), runs.of("closed")) == ([("2024-10-10",)], [("2024-10-10",)])
    for name in ("pending", "closed"):
        assert set(outcomes[name].held_back) == {"2024-10-11", "2024-10-12", "2024-10-13"}


def test_an_error_is_told_beside_a_failed_check(instance: dg.DagsterInstance, runs: Runs) -> None:
    """Two ranges: the gate of one fails, the other cannot be read."""
    gap = {*HOURS[:3], *HOURS[8:]}
    definitions = hours_and_days(runs, failing=[HOURS[2]], raising=[HOURS[10]])
    outcomes = filled(instance, definitions, look=lambda _: FillState(HOURLY, gap))
    assert outcomes["hours"].checks_failed == [f"hours: complete [{HOURS[2]}]"]
    assert outcomes["hours"].failures == [f"hours: ValueError: unreadable: ['{HOURS[10]}']"]
    assert set(outcomes["hours"].bad) == {HOURS[2], *HOURS[8:]}
    assert set(outcomes["days"].held_back) == {"2024-10-10", "2024-10-11"}
    assert runs.of("days") == []


def test_a_run_that_ends_before_its_first_step_is_a_failure(instance: dg.DagsterInstance, runs: Runs) -> None:
    """No step has failed: a resource was not to be had."""

    class Away(dg.ConfigurableResource):  # type: ignore[type-arg]
        def setup_for_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002
            raise ValueError("nobody answers")

    @dg.asset
    def records(away: Away) -> None:
        pass

    @dg.asset(deps=[records])
    def counts(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    definitions = dg.Definitions([records, counts], resources={"away": Away()}, executor=dg.in_process_executor)
    outcomes = filled(instance, definitions)
    assert outcomes["records"].failures == ["records: ValueError: nobody answers"]
    assert outcomes["counts"].held_back == {"": "ValueError: nobody answers"}
    assert runs.of("counts") == []


def test_a_warning_holds_nothing_back_and_is_told_apart(instance: dg.DagsterInstance, runs: Runs) -> None:
    definitions = hours_and_days(runs, failing=[HOURS[2]], severity=dg.AssetCheckSeverity.WARN)
    outcomes = filled(instance, definitions)
    assert outcomes["hours"].checks_warned == [f"hours: complete [{HOURS[2]}]"]
    assert (outcomes["hours"].checks_failed, outcomes["hours"].bad, outcomes["days"].held_back) == ([], {}, {})
    assert outcomes["days"].written == {"2024-10-10", "2024-10-11"}


def test_the_last_run_has_the_last_word_about_what_it_completes(instance: dg.DagsterInstance) -> None:
    """A check about all days is red until the last of them is there."""
    seen: list[str] = []

    @dg.asset(partitions_def=DAILY)
    def days(context: dg.AssetExecutionContext) -> None:
        seen.append(context.partition_key)

    @dg.asset_check(asset=days)
    def all_days_are_there() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=len(seen) == 2)

    definitions = dg.Definitions([days], asset_checks=[all_days_are_there], executor=dg.in_process_executor)
    outcome = filled(instance, definitions)["days"]
    assert (outcome.runs, outcome.checks_passed, outcome.checks_failed) == (2, 1, [])


def services_and_sources(runs: Runs) -> dg.Definitions:
    @dg.asset(deps=["topic"])
    def records(context: dg.AssetExecutionContext, broker: Broker) -> None:
        runs.note(context)

    @dg.asset(deps=[records])
    def counts(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    @dg.asset(ins={"extra": dg.AssetIn("records", metadata={"if_missing": "empty"}, dagster_type=dg.Nothing)})
    def enriched(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    systems = [dg.AssetSpec("table"), dg.AssetSpec("topic", deps=["table"])]
    return dg.Definitions(
        [counts, enriched, records, *systems], resources={"broker": Broker()}, executor=dg.in_process_executor
    )


def test_what_needs_an_absent_service_is_left_out_with_all_behind_it(instance: dg.DagsterInstance, runs: Runs) -> None:
    outcomes = filled(instance, services_and_sources(runs), absent={"kafka": "not started"})
    assert outcomes["records"].left_out == outcomes["counts"].left_out == "kafka: not started"
    assert outcomes["enriched"].left_out is None, "its input declares that it may be missing"
    assert runs.of("enriched") == [()]


def test_what_has_no_source_is_left_out_with_all_behind_it(instance: dg.DagsterInstance, runs: Runs) -> None:
    outcomes = filled(
        instance, services_and_sources(runs), look=lambda key: FillState(absent=f"no {key.to_user_string()}")
    )
    assert outcomes["records"].left_out == outcomes["counts"].left_out == "no topic"
    assert [name for name, _ in runs.computed] == ["enriched"]


def test_an_absent_service_of_nobody_is_no_reason(instance: dg.DagsterInstance, runs: Runs) -> None:
    outcomes = filled(instance, services_and_sources(runs), absent={"postgres": "not started"})
    assert not any(outcome.left_out for outcome in outcomes.values())


def test_units_know_what_follows_them_and_what_is_outside(runs: Runs) -> None:
    definitions = hours_and_days(runs)
    chosen = units([definitions])
    assert {unit.name: way for unit, way in longest_ways(chosen).items()} == {
        "hours": 3,
        "days": 2,
        "total": 1,
        "report": 1,
    }
    assert [unit.name for unit in chosen if unit.chained] == ["total"]
    assert {key.to_user_string() for key in external_assets([definitions])} == {"landed"}


def test_what_one_location_writes_is_read_by_the_other_after_it(instance: dg.DagsterInstance, runs: Runs) -> None:
    @dg.asset(deps=["days"])
    def chart(context: dg.AssetExecutionContext) -> None:
        runs.note(context)

    consumer = dg.Definitions([chart, dg.AssetSpec("days")], executor=dg.in_process_executor)
    outcomes = list(fill(units([consumer, hours_and_days(runs)]), instance, everything, absent={}))
    names = [name for name, _ in runs.computed]
    assert names.index("chart") > names.index("days")
    assert len(outcomes) == 5


def test_what_does_not_depend_on_each_other_runs_side_by_side() -> None:
    """Each waits for the other one; run one after the other, neither would end."""
    meeting = threading.Barrier(2, timeout=PATIENCE)

    def meets(name: str) -> dg.AssetsDefinition:
        @dg.asset(name=name)
        def asset() -> None:
            meeting.wait()

        return asset

    definitions = dg.Definitions([meets("one"), meets("other")], executor=dg.in_process_executor)
    # Output would be captured by exchanging descriptors, which threads share.
    with silent_instance() as instance:
        outcomes = list(fill(units([definitions]), instance, everything, absent={}, at_once=2))
    assert [outcome.failures for outcome in outcomes] == [[], []]


@pytest.mark.pattern("isolated_sequencer")
class TestUpToDate:
    """A second fill computes what is missing, what reads something newer, and what was not judged good; nothing else."""

    def again(
        self,
        instance: dg.DagsterInstance,
        definitions: dg.Definitions,
        looks: dict[str, str] | None = None,
        lost: Sequence[str] = (),
    ) -> dict[str, UnitOutcome]:
        """Fill what is outdated, where the landed hours look so."""
        found = dict.fromkeys(HOURS, "as landed") | (looks or {})

        def look(_key: dg.AssetKey) -> FillState:
            return FillState(HOURLY, set(found), looks=found)

        current = UpToDate(instance, lambda key: key.to_user_string() not in lost)
        return filled(instance, definitions, look=look, up_to_date=current)

    def test_what_changed_is_followed_to_the_end_and_nothing_else_is_computed(
        self, instance: dg.DagsterInstance, runs: Runs
    ) -> None:
        """One lake, filled again and again."""
        definitions = hours_and_days(runs)
        self.again(instance, definitions)

        runs.computed.clear()
        outcomes = self.again(instance, definitions)
        assert runs.computed == [("report", ())], "nothing changed: what has no partitions decides by itself"
        assert outcomes["hours"].up_to_date == set(HOURS)
        assert outcomes["total"].up_to_date == {"2024-10-10", "2024-10-11"}

        looks = {"2024-10-11-06:00": "one file more"}
        runs.computed.clear()
        self.again(instance, definitions, looks=looks)
        assert runs.of("hours") == [("2024-10-11-06:00",)]
        assert runs.of("days") == [("2024-10-11",)]
        assert runs.of("total") == [("2024-10-11",)]
        runs.computed.clear()
        self.again(instance, definitions, looks=looks)
        assert runs.of("hours") == [], "it is known by now"

        looks |= {"2024-10-10-06:00": "changed"}
        runs.computed.clear()
        self.again(instance, definitions, looks=looks)
        assert runs.of("days") == [("2024-10-10",)]
        assert runs.of("total") == [("2024-10-10",), ("2024-10-11",)], "what builds on it, from there on"

        runs.computed.clear()
        self.again(instance, definitions, looks=looks, lost=["days"])
        assert runs.of("hours") == []
        assert runs.of("days") == [("2024-10-10", "2024-10-11")], "a dataset that is gone"

    def test_what_somebody_else_computed_counts(self, instance: dg.DagsterInstance, runs: Runs) -> None:
        definitions = hours_and_days(runs)
        self.again(instance, definitions)
        dg.materialize(
            [definitions.get_assets_def("hours")],
            instance=instance,
            partition_key="2024-10-10-09:00",
            selection=[definitions.get_assets_def("hours")],
        )
        runs.computed.clear()
        self.again(instance, definitions)
        assert runs.of("hours") == [("2024-10-10-09:00",)], "nobody has judged it"
        assert runs.of("days") == [("2024-10-10",)]

    def test_what_a_check_did_not_let_pass_is_tried_again(self, instance: dg.DagsterInstance, runs: Runs) -> None:
        bad = ["2024-10-10-03:00"]
        self.again(instance, hours_and_days(runs, failing=bad))
        runs.computed.clear()
        outcomes = self.again(instance, hours_and_days(runs, failing=bad))
        assert runs.of("hours") == [("2024-10-10-03:00",)]
        assert outcomes["hours"].checks_failed == ["hours: complete [2024-10-10-03:00]"], "it is told again"
        assert runs.of("days") == []
        runs.computed.clear()
        self.again(instance, hours_and_days(runs))
        assert runs.of("hours") == [("2024-10-10-03:00",)]
        assert runs.of("days") == [("2024-10-10",)], "which waited for it"

    def test_what_a_check_warns_of_is_not_computed_again(self, instance: dg.DagsterInstance, runs: Runs) -> None:
        """A warning holds nothing back: how long a step took, or how the hours are spread, comes out the same again."""
        definitions = hours_and_days(runs, failing=HOURS[:3], severity=dg.AssetCheckSeverity.WARN)

        @dg.asset_check(asset="days")
        def is_quick() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN)

        definitions = dg.Definitions.merge(definitions, dg.Definitions(asset_checks=[is_quick]))
        first = self.again(instance, definitions)
        assert first["days"].checks_warned == ["days: is_quick"]
        runs.computed.clear()
        outcomes = self.again(instance, definitions)
        assert runs.computed == [("report", ())]
        assert outcomes["hours"].up_to_date == set(HOURS)

    def test_what_failed_is_tried_again(self, instance: dg.DagsterInstance, runs: Runs) -> None:
        self.again(instance, hours_and_days(runs, raising=["2024-10-10-03:00"]))
        runs.computed.clear()
        self.again(instance, hours_and_days(runs))
        assert runs.of("hours") == [tuple(HOURS)]

    def test_a_source_that_tells_nobody_is_always_read(self, instance: dg.DagsterInstance, runs: Runs) -> None:
        definitions, current = hours_and_days(runs), UpToDate(instance, lambda _key: True)
        for _ in range(2):
            runs.computed.clear()
            filled(instance, definitions, look=everything, up_to_date=current)
            assert runs.of("hours") == [tuple(HOURS)]
