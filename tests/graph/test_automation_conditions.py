"""The named conditions on tiny graphs: what is requested, when, and how often. No engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from de_assets.automation.conditions import computed_once, gated, late_cascade
from de_assets.dataset import pattern_tags
from de_assets.partitions import day_before, hours_of_day
from de_checks.per_key import Target

# The first day has four hours only, as when a log begins in the evening.
hours = dg.HourlyPartitionsDefinition("2024-10-10-20:00", end_date="2024-10-12-00:00")
days = dg.DailyPartitionsDefinition("2024-10-10", end_date="2024-10-12")
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""When the daemon of a test is started: later than anything that the test does, as it would be."""
REFERENCE = dg.AssetSelection.assets("users")


@dg.asset
def users() -> None: ...


@dg.asset(partitions_def=hours, backfill_policy=dg.BackfillPolicy.single_run(), tags=pattern_tags("incremental_loader"))
def bronze() -> None: ...


@dg.asset_check(asset=bronze, partitions_def=hours, blocking=True)
def bronze_is_good(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed="gate" not in context.run.tags)


@dg.asset(
    partitions_def=hours,
    deps=[bronze, users],
    automation_condition=late_cascade(REFERENCE),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def silver(context: dg.AssetExecutionContext) -> None:
    if "breaks" in context.run.tags:
        raise dg.Failure("broken on purpose")


@dg.asset(
    partitions_def=days,
    deps=[dg.AssetDep(silver, partition_mapping=hours_of_day)],
    automation_condition=late_cascade(),
)
def gold() -> None: ...


@dg.asset(
    partitions_def=days,
    deps=[dg.AssetDep(bronze, partition_mapping=hours_of_day)],
    automation_condition=late_cascade(),
)
def daily_bronze() -> None: ...


@dg.asset(deps=[users], automation_condition=gated())
def user_report() -> None: ...


ASSETS = [users, bronze, silver, gold, daily_bronze, user_report]
DEFS = dg.Definitions(assets=ASSETS, asset_checks=[bronze_is_good])


def hour(day: int, of_day: int) -> str:
    return f"2024-10-{day:02}-{of_day:02}:00"


@dataclass
class Platform:
    """An instance, and the daemon's memory between its ticks."""

    instance: dg.DagsterInstance
    cursor: Any = None
    now: datetime = NOON
    definitions: dg.Definitions = DEFS

    def tick(self, after: timedelta = timedelta(seconds=30)) -> dict[str, set[str | None]]:
        """Evaluate all conditions once, that long after the last time; what is requested, by asset."""
        self.now += after
        result = dg.evaluate_automation_conditions(
            self.definitions, self.instance, cursor=self.cursor, evaluation_time=self.now
        )
        self.cursor = result.cursor
        assets = self.definitions.resolve_asset_graph().materializable_asset_keys
        wanted = {key.to_user_string(): set(result.get_requested_partitions(key)) for key in assets}
        return {name: keys for name, keys in wanted.items() if keys}

    def written(self, asset: dg.AssetsDefinition, *keys: str | None) -> None:
        """Record materialisations, each as a run of its own would have."""
        for key in keys or (None,):
            self.instance.report_runless_asset_event(dg.AssetMaterialization(asset.key, partition=key))

    def judged(self, *keys: str, passed: bool = True) -> None:
        """Record the gate's verdict on what is there now."""
        for key in keys:
            wanted = dg.AssetRecordsFilter(asset_key=bronze.key, asset_partitions=[key])
            at = self.instance.fetch_materializations(wanted, limit=1).records[0]
            evaluation = dg.AssetCheckEvaluation(
                asset_key=bronze.key,
                check_name="bronze_is_good",
                passed=passed,
                metadata={},
                partition=key,
                blocking=True,
                target_materialization_data=Target(storage_id=at.storage_id, run_id=at.run_id, timestamp=at.timestamp),
            )
            event = dg.DagsterEvent("ASSET_CHECK_EVALUATION", job_name="gate", event_specific_data=evaluation)
            self.instance.report_dagster_event(event, run_id=uuid4().hex)

    def landed(self, *keys: str) -> None:
        """Bronze is written and passes its gate."""
        self.written(bronze, *keys)
        self.judged(*keys)

    def planned(self, asset: dg.AssetsDefinition, key: str) -> dg.DagsterRun:
        """A run of one key that has been created and has not ended."""
        job = DEFS.resolve_implicit_global_asset_job_def().get_subset(asset_selection={asset.key})
        return self.instance.create_run_for_job(job, tags={"dagster/partition": key})


@pytest.fixture
def platform() -> Iterator[Platform]:
    """A day and the morning of the next, all computed and passed, and a daemon that has seen it."""
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(instance)
        platform.written(users)
        platform.written(user_report)
        there = hours.get_partition_keys()[:8]
        platform.landed(*there)
        platform.written(silver, *there)
        platform.written(gold, "2024-10-10")
        platform.written(daily_bronze, "2024-10-10")
        assert platform.tick() == {}
        yield platform


@pytest.mark.pattern("late_data_detector")
def test_late_hour_flows_to_exactly_its_hour_and_day(platform: Platform) -> None:
    platform.landed(hour(10, 21))  # six hours older than the newest one
    assert platform.tick() == {"silver": {hour(10, 21)}, "daily_bronze": {"2024-10-10"}}
    platform.written(silver, hour(10, 21))
    platform.written(daily_bronze, "2024-10-10")
    assert platform.tick() == {"gold": {"2024-10-10"}}
    platform.written(gold, "2024-10-10")
    assert platform.tick() == {}


def test_several_updates_before_a_tick_make_one_request(platform: Platform) -> None:
    for _ in range(3):
        platform.landed(hour(10, 21))
    platform.landed(hour(10, 22))
    assert platform.tick() == {"silver": {hour(10, 21), hour(10, 22)}, "daily_bronze": {"2024-10-10"}}
    assert platform.tick() == {}


def test_blocked_partition_is_held_and_released(platform: Platform) -> None:
    platform.written(bronze, hour(10, 21))
    platform.judged(hour(10, 21), passed=False)
    platform.landed(hour(10, 22))
    # The good hour goes on. The day waits for all its hours: one that did not pass is enough to hold it.
    assert platform.tick() == {"silver": {hour(10, 22)}}
    assert platform.tick() == {}
    platform.landed(hour(10, 21))
    assert platform.tick() == {"silver": {hour(10, 21)}, "daily_bronze": {"2024-10-10"}}


def test_partition_that_no_gate_has_judged_yet_is_held(platform: Platform) -> None:
    platform.written(bronze, hour(10, 21))  # the verdict on the previous content does not count
    assert platform.tick() == {}
    platform.judged(hour(10, 21))
    assert platform.tick() == {"silver": {hour(10, 21)}, "daily_bronze": {"2024-10-10"}}


def test_reference_is_neither_followed_nor_awaited(platform: Platform) -> None:
    platform.written(users)
    assert platform.tick() == {"user_report": {None}}
    platform.planned(users, "")
    platform.landed(hour(10, 21))
    assert platform.tick()["silver"] == {hour(10, 21)}


@pytest.mark.pattern("aligned_fan_in")
def test_day_is_requested_once_when_its_last_hour_is_there() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(instance)
        platform.tick()
        for several in (range(1), range(1, 12), range(13, 23), range(23, 24)):
            platform.written(silver, *(hour(11, of_day) for of_day in several))
            assert "gold" not in platform.tick()
        platform.written(silver, hour(11, 12))
        assert platform.tick()["gold"] == {"2024-10-11"}
        platform.written(gold, "2024-10-11")
        assert "gold" not in platform.tick()


def test_failed_run_is_not_requested_again_until_something_changes(platform: Platform) -> None:
    platform.landed(hour(10, 21))
    assert platform.tick()["silver"] == {hour(10, 21)}
    failed = dg.materialize(
        [silver], partition_key=hour(10, 21), tags={"breaks": ""}, instance=platform.instance, raise_on_error=False
    )
    assert not failed.success
    for _ in range(3):
        assert "silver" not in platform.tick()
    platform.landed(hour(10, 21))
    assert platform.tick()["silver"] == {hour(10, 21)}


def test_change_while_the_downstream_is_computed_is_not_forgotten(platform: Platform) -> None:
    platform.landed(hour(10, 21))
    assert platform.tick()["silver"] == {hour(10, 21)}
    run = platform.planned(silver, hour(10, 21))
    assert platform.tick() == {}
    platform.landed(hour(10, 21))  # the run has read the previous content
    assert "silver" not in platform.tick()
    platform.written(silver, hour(10, 21))
    platform.instance.report_run_canceled(run)
    assert platform.tick()["silver"] == {hour(10, 21)}
    platform.written(silver, hour(10, 21))
    assert "silver" not in platform.tick()


def test_change_right_after_a_request_asks_again(platform: Platform) -> None:
    platform.landed(hour(10, 21))
    assert platform.tick()["silver"] == {hour(10, 21)}
    platform.landed(hour(10, 21))
    platform.written(silver, hour(10, 21))
    assert platform.tick()["silver"] == {hour(10, 21)}
    assert "silver" not in platform.tick()


def test_keys_that_a_range_run_skipped_are_computed_later(platform: Platform) -> None:
    """One bad hour fails the gate of a range, and the run skips silver for all its hours."""
    first, bad, last = (hour(10, h) for h in (20, 21, 22))

    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last, "gate": "red"}
    job = DEFS.resolve_implicit_global_asset_job_def()
    run = job.execute_in_process(
        asset_selection=[bronze.key, silver.key], tags=tags, instance=platform.instance, raise_on_error=False
    )
    assert not run.success
    platform.judged(first, last)
    platform.judged(bad, passed=False)
    assert platform.tick()["silver"] == {first, last}
    platform.landed(bad)
    assert platform.tick()["silver"] == {bad}


def test_run_that_computed_both_asks_for_what_follows_only(platform: Platform) -> None:
    dg.materialize([bronze, bronze_is_good, silver], partition_key=hour(10, 21), instance=platform.instance)
    assert platform.tick() == {"gold": {"2024-10-10"}, "daily_bronze": {"2024-10-10"}}
    assert platform.tick() == {}


def test_runs_by_hand_in_the_right_order_ask_for_nothing(platform: Platform) -> None:
    platform.landed(hour(10, 21))
    platform.written(silver, hour(10, 21))
    platform.written(gold, "2024-10-10")
    platform.written(daily_bronze, "2024-10-10")
    assert platform.tick() == {}


def test_run_by_hand_before_the_change_is_outdated(platform: Platform) -> None:
    platform.written(silver, hour(10, 21))
    platform.landed(hour(10, 21))
    assert platform.tick()["silver"] == {hour(10, 21)}


def test_never_computed_partitions_are_caught_up_once() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(instance)
        platform.landed(hour(10, 21), hour(10, 22))
        assert platform.tick() == {"silver": {hour(10, 21), hour(10, 22)}}
        assert platform.tick() == {}


NIGHT = timedelta(hours=12)


@pytest.mark.pattern("aligned_fan_in")
def test_an_hour_that_no_source_brings_is_done_without_after_a_quiet_time() -> None:
    """Of the second day the hour 11 never lands: the day is computed without it, once, and again if it comes after all."""
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(instance)
        platform.tick()
        there = [hour(11, of_day) for of_day in range(24) if of_day != 11]
        platform.landed(*there)
        assert platform.tick() == {"silver": set(there)}
        platform.written(silver, *there)
        assert platform.tick() == {}, "it may still be landing"
        assert platform.tick(NIGHT) == {"gold": {"2024-10-11"}, "daily_bronze": {"2024-10-11"}}, "not the empty day"
        platform.written(gold, "2024-10-11")
        platform.written(daily_bronze, "2024-10-11")
        assert [platform.tick(), platform.tick(NIGHT)] == [{}, {}], "settled"

        platform.landed(hour(11, 11))
        assert platform.tick() == {"silver": {hour(11, 11)}, "daily_bronze": {"2024-10-11"}}
        platform.written(silver, hour(11, 11))
        assert platform.tick() == {"gold": {"2024-10-11"}}


@pytest.mark.pattern("aligned_fan_in")
def test_news_begin_the_quiet_time_anew() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(instance, now=NOON + timedelta(hours=3))
        platform.tick()
        platform.written(silver, hour(11, 0))
        assert "gold" not in platform.tick()
        platform.written(silver, hour(11, 1))
        platform.written(bronze, hour(11, 0), hour(11, 1))
        assert "gold" not in platform.tick(), "nothing is quiet between two ticks of the clock"
        assert platform.tick(NIGHT)["gold"] == {"2024-10-11"}
        platform.written(silver, hour(11, 2))
        assert "gold" not in platform.tick()
        assert platform.tick(NIGHT)["gold"] == {"2024-10-11"}


@pytest.mark.pattern("aligned_fan_in")
@pytest.mark.parametrize("passed", [True, False], ids=["failed", "held back"])
def test_an_hour_that_landed_and_was_not_computed_is_awaited_for_as_long_as_it_takes(passed: bool) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(instance)
        platform.tick()
        platform.landed(*(hour(11, of_day) for of_day in range(23)))
        platform.written(bronze, hour(11, 23))
        platform.judged(hour(11, 23), passed=passed)
        platform.tick()
        platform.written(silver, *(hour(11, of_day) for of_day in range(23)))
        for _ in range(3):
            assert "gold" not in platform.tick(NIGHT)


@pytest.mark.pattern("aligned_fan_in")
def test_what_is_looked_up_and_has_to_be_there_is_awaited() -> None:
    @dg.asset(deps=[users], automation_condition=gated(reference=REFERENCE, there=REFERENCE))
    def served() -> None: ...

    definitions, cursor = dg.Definitions(assets=[users, served]), None
    with dg.DagsterInstance.ephemeral() as instance:
        requested = []
        for written in (False, False, True, True):
            if written:
                instance.report_runless_asset_event(dg.AssetMaterialization(users.key))
            result = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
            cursor = result.cursor
            requested.append(result.get_num_requested(served.key))
    assert requested == [0, 0, 1, 0], "when it is there; that it changes is followed elsewhere"


PENDING = dg.AssetKey("pending")
CARRIED = late_cascade(carried=dg.AssetSelection.assets(PENDING))
OF_DAY_AND_DAY_BEFORE = [
    dg.AssetDep(silver, partition_mapping=hours_of_day),
    dg.AssetDep(PENDING, partition_mapping=day_before),
]


@dg.asset(partitions_def=days, deps=OF_DAY_AND_DAY_BEFORE, automation_condition=CARRIED)
def pending() -> None: ...


@dg.asset(partitions_def=days, deps=OF_DAY_AND_DAY_BEFORE, automation_condition=CARRIED)
def closed() -> None: ...


@pytest.mark.pattern("incremental_sessionizer")
class TestCarriedFromDayToDay:
    """What a day leaves open is read by the day after it, which is asked for when it changed."""

    CHAIN = dg.Definitions(assets=[bronze, silver, users, pending, closed], asset_checks=[bronze_is_good])

    def test_a_day_that_was_run_again_asks_for_the_day_after_it_and_only_then(self) -> None:
        with dg.DagsterInstance.ephemeral() as instance:
            platform = Platform(instance, definitions=self.CHAIN)
            there = hours.get_partition_keys()
            platform.landed(*there)
            platform.written(silver, *there)
            for day in ("2024-10-10", "2024-10-11"):
                platform.written(pending, day)
                platform.written(closed, day)
            assert platform.tick() == {}
            platform.written(silver, hour(10, 21))
            assert platform.tick() == {"pending": {"2024-10-10"}, "closed": {"2024-10-10"}}
            platform.written(closed, "2024-10-10")
            assert platform.tick() == {}, "the second day reads what is open, and that is not there yet"
            platform.written(pending, "2024-10-10")
            assert platform.tick() == {"pending": {"2024-10-11"}, "closed": {"2024-10-11"}}

    def test_a_day_waits_for_what_the_day_before_leaves_open(self) -> None:
        with dg.DagsterInstance.ephemeral() as instance:
            platform = Platform(instance, definitions=self.CHAIN)
            platform.tick()
            there = hours.get_partition_keys()
            platform.landed(*there)
            platform.written(silver, *there)
            assert platform.tick() == {"pending": {"2024-10-10"}, "closed": {"2024-10-10"}}
            platform.written(closed, "2024-10-10")
            assert [platform.tick(), platform.tick(NIGHT)] == [{}, {}]
            platform.written(pending, "2024-10-10")
            assert platform.tick() == {"pending": {"2024-10-11"}, "closed": {"2024-10-11"}}

    def test_a_day_without_a_single_hour_is_done_after_the_quiet_time(self) -> None:
        """Otherwise what was open before it would stay open for ever."""
        with dg.DagsterInstance.ephemeral() as instance:
            platform = Platform(instance, definitions=self.CHAIN)
            platform.tick()
            there = [key for key in hours.get_partition_keys() if key < "2024-10-11"]
            platform.landed(*there)
            platform.written(silver, *there)
            platform.tick()
            platform.written(pending, "2024-10-10")
            platform.written(closed, "2024-10-10")
            assert platform.tick() == {}, "its hours may still be landing"
            assert platform.tick(NIGHT) == {"pending": {"2024-10-11"}, "closed": {"2024-10-11"}}


TOTALS = dg.AssetKey("totals")


@dg.asset(partitions_def=days, deps=[users], automation_condition=computed_once())
def snapshot() -> None: ...


@dg.asset(
    partitions_def=days,
    deps=[
        dg.AssetDep(silver, partition_mapping=hours_of_day),
        dg.AssetDep(TOTALS, partition_mapping=day_before),
    ],
    automation_condition=computed_once(carried=dg.AssetSelection.assets(TOTALS)),
)
def totals(context: dg.AssetExecutionContext) -> None:
    if "breaks" in context.run.tags:
        raise dg.Failure("broken on purpose")


@pytest.mark.pattern("proxy")
class TestSnapshotOfEachDay:
    """Computed once its time is over, though the daemon was away when it ended, and never again by itself."""

    CHAIN = dg.Definitions(assets=[users, snapshot])

    def test_every_missed_day_is_requested_once(self) -> None:
        with dg.DagsterInstance.ephemeral() as instance:
            platform = Platform(instance, definitions=self.CHAIN)
            assert platform.tick() == {}, "there are no users yet"
            platform.written(users)
            assert platform.tick() == {"snapshot": {"2024-10-10", "2024-10-11"}}, "not the newest one only"
            assert platform.tick() == {}
            platform.written(snapshot, "2024-10-10", "2024-10-11")
            platform.written(users)
            assert platform.tick() == {}, "a day that is over does not change"


@pytest.mark.pattern("stateful_merger")
class TestTotalsFromDayToDay:
    """New days one after the other; what changed before is for the sensor `late_totals`."""

    CHAIN = dg.Definitions(assets=[bronze, silver, users, totals], asset_checks=[bronze_is_good])

    @pytest.fixture
    def platform(self) -> Iterator[Platform]:
        """Two days of hours, of which nobody has made totals."""
        with dg.DagsterInstance.ephemeral() as instance:
            platform = Platform(instance, definitions=self.CHAIN)
            there = hours.get_partition_keys()
            platform.landed(*there)
            platform.written(silver, *there)
            yield platform

    def test_a_day_is_requested_when_the_day_before_it_is_in(self, platform: Platform) -> None:
        assert platform.tick() == {"totals": {"2024-10-10"}}
        assert [platform.tick(), platform.tick(NIGHT)] == [{}, {}]
        platform.written(totals, "2024-10-10")
        assert platform.tick() == {"totals": {"2024-10-11"}}
        platform.written(totals, "2024-10-11")
        assert [platform.tick(), platform.tick(NIGHT)] == [{}, {}]

    def test_a_late_hour_asks_for_no_day_that_is_in(self, platform: Platform) -> None:
        platform.tick()
        platform.written(totals, "2024-10-10")
        platform.tick()
        platform.written(totals, "2024-10-11")
        platform.tick()
        platform.landed(hour(10, 21))
        assert platform.tick() == {"silver": {hour(10, 21)}}
        platform.written(silver, hour(10, 21))
        assert platform.tick() == {}

    def test_a_day_that_was_refused_is_tried_again_when_the_day_before_it_was_replayed(
        self, platform: Platform
    ) -> None:
        """While the first day is out of the table, the second one cannot be added to it."""
        platform.tick()
        platform.written(totals, "2024-10-10")
        assert platform.tick() == {"totals": {"2024-10-11"}}
        refused = dg.materialize(
            [totals], partition_key="2024-10-11", tags={"breaks": ""}, instance=platform.instance, raise_on_error=False
        )
        assert not refused.success
        assert [platform.tick(), platform.tick(NIGHT)] == [{}, {}], "nothing changed"
        platform.written(totals, "2024-10-10")
        assert platform.tick() == {"totals": {"2024-10-11"}}
