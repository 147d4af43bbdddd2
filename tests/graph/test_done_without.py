"""A day that was computed without an hour says so: its materialisation, a check and `de waits`, until the hour comes."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from de_assets.filling.waits import Cause, Reason, Waits
from de_checks.fan_in import fan_in_check
from de_checks.per_key import latest_materializations
from de_resources.gathering import completeness_of, tell_completeness
from de_resources.held_back import HELD, LEFT_OUT, own_keys
from de_resources.told import already_told, tell

pytestmark = pytest.mark.pattern("aligned_fan_in")

BEGIN, END = datetime(2026, 1, 5), datetime(2026, 1, 8)
hours = dg.HourlyPartitionsDefinition(BEGIN, end_date=END)
days = dg.DailyPartitionsDefinition(BEGIN, end_date=END)
KEYS = [f"{BEGIN + timedelta(hours=n):%Y-%m-%d-%H:%M}" for n in range(48)]
THIRD = [f"{BEGIN + timedelta(hours=n):%Y-%m-%d-%H:%M}" for n in range(48, 72)]
FIRST, SECOND, LAST = "2026-01-05", "2026-01-06", "2026-01-07"
ONE_RUN = dg.BackfillPolicy.single_run()


class Tables(dg.IOManager):
    """Stores nothing; an input is read as the tables of the platform are."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None: ...

    def load_input(self, context: dg.InputContext) -> int:
        tell_completeness(context)
        return 1


@dg.asset(key=["silver", "sales"], partitions_def=hours, backfill_policy=ONE_RUN)
def sales() -> int:
    return 1


@dg.asset_check(asset=sales, partitions_def=hours, blocking=True)
def adds_up(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed="wrong" not in context.run.tags)


@dg.asset(key=["silver", "returns"], partitions_def=hours, backfill_policy=ONE_RUN)
def returned() -> int:
    return 1


@dg.asset(
    key=["gold", "sales"],
    partitions_def=days,
    ins={"sold": dg.AssetIn(sales.key)},
    metadata={HELD: LEFT_OUT},
    backfill_policy=ONE_RUN,
)
def per_day(sold: int) -> int:
    return 1


@dg.asset(
    key=["gold", "balance"],
    partitions_def=days,
    ins={"sold": dg.AssetIn(sales.key), "back": dg.AssetIn(returned.key)},
    backfill_policy=ONE_RUN,
)
def balance(sold: int, back: int) -> int:
    return 1


@dg.asset(key=["gold", "hourly"], partitions_def=hours, ins={"sold": dg.AssetIn(sales.key)}, backfill_policy=ONE_RUN)
def per_hour(sold: int) -> int:
    return 1


@dg.asset(
    key=["gold", "week"],
    partitions_def=dg.WeeklyPartitionsDefinition(BEGIN, day_offset=1, end_date=BEGIN + timedelta(days=7)),
    ins={"sold": dg.AssetIn(per_day.key, partition_mapping=dg.TimeWindowPartitionMapping(0, 0, True))},
)
def per_week(sold: int) -> int:
    return 1


@dg.asset(key=["gold", "copy"], partitions_def=days, ins={"sold": dg.AssetIn(per_day.key)}, backfill_policy=ONE_RUN)
def copied(sold: int) -> int:
    return 1


def carried(name: str, **metadata: bool) -> dg.AssetsDefinition:
    """A day of hours that goes on from the day before."""
    key = dg.AssetKey(["gold", name])
    before = dg.AssetIn(key, partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1))

    @dg.asset(
        key=key,
        partitions_def=days,
        ins={"sold": dg.AssetIn(sales.key), "before": before},
        metadata=metadata,
        backfill_policy=ONE_RUN,
    )
    def going_on(sold: int, before: int) -> int:
        return 1

    return going_on


@dg.op(out=dg.Out(dg.Nothing))
def write_files(context: dg.AssetExecutionContext, sold: int) -> Iterator[dg.Output[None]]:
    """A step that tells of each day itself."""
    for key in own_keys(context):
        tell(context, FILES, key, completeness_of(context, key))
    yield already_told()


FILES = dg.AssetKey(["serving", "files"])


@dg.graph_asset(
    key=FILES,
    partitions_def=days,
    ins={"sold": dg.AssetIn(sales.key)},
    backfill_policy=ONE_RUN,
    metadata={HELD: LEFT_OUT},
)
def files(sold):  # type: ignore[no-untyped-def]  # a place in a graph
    return write_files(sold)


still_open, so_far = carried("open"), carried("so_far", stateful=True)
complete, whole = (fan_in_check(each, pattern="aligned_fan_in") for each in (per_day, per_week))
ASSETS = [sales, returned, per_day, balance, per_hour, per_week, copied, files, still_open, so_far]
ALL = [*ASSETS, adds_up, complete, whole]
TABLES = {"io_manager": Tables()}
DEFS = dg.Definitions(ASSETS, asset_checks=[adds_up, complete, whole], resources=TABLES)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def land(instance: dg.DagsterInstance, asset: dg.AssetsDefinition, *keys: str) -> None:
    for key in keys:
        instance.report_runless_asset_event(dg.AssetMaterialization(asset.key, partition=key))


def compute(instance: dg.DagsterInstance, asset: dg.AssetsDefinition, first: str, last: str, **tags: str) -> None:
    ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    run = {**tags, **({"dagster/partition": first} if first == last else ends)}
    dg.materialize(ALL, instance=instance, selection=[asset], resources=TABLES, tags=run, raise_on_error=False)


def told(instance: dg.DagsterInstance, asset: dg.AssetsDefinition, key: str) -> dict[str, Any]:
    return dict(latest_materializations(instance, asset.key, [key])[key].metadata)


def verdict(instance: dg.DagsterInstance, check: dg.AssetChecksDefinition = complete) -> tuple[bool, str]:
    (record,) = instance.event_log_storage.get_asset_check_execution_history(next(iter(check.check_keys)), limit=1)
    assert record.evaluation is not None
    return record.evaluation.passed, record.evaluation.severity.value


def causes(instance: dg.DagsterInstance, key: str = FIRST) -> list[Cause]:
    return Waits(instance, [DEFS]).causes("gold/sales", key)


def test_a_day_that_is_done_without_an_hour_says_so_until_the_hour_comes(instance: dg.DagsterInstance) -> None:
    land(instance, sales, *KEYS[:7], *KEYS[8:24])
    compute(instance, per_day, FIRST, FIRST)
    made = told(instance, per_day, FIRST)
    assert (made["completeness"], made["is_approximate"]) == (23 / 24, True)
    assert made["missing_inputs"] == {KEYS[7]: "never computed"}
    assert verdict(instance) == (False, "WARN")
    assert causes(instance) == [
        Cause("gold/sales", (KEYS[7],), Reason.DONE_WITHOUT),
        Cause("silver/sales", (KEYS[7],), Reason.NOT_BROUGHT),
    ]

    compute(instance, sales, KEYS[7], KEYS[7])
    assert [cause.reason for cause in causes(instance)] == [Reason.DONE_WITHOUT], (
        "the hour is there, the day is not redone"
    )
    compute(instance, per_day, FIRST, FIRST)
    made = told(instance, per_day, FIRST)
    assert (made["completeness"], made["is_approximate"], made["missing_inputs"]) == (1.0, False, {})
    assert verdict(instance) == (True, "ERROR")
    assert causes(instance) == []


def test_each_day_of_a_range_tells_its_own(instance: dg.DagsterInstance) -> None:
    land(instance, sales, *KEYS[1:])
    compute(instance, per_day, FIRST, SECOND)
    assert [told(instance, per_day, key)["completeness"] for key in (FIRST, SECOND)] == [23 / 24, 1.0]
    assert [cause.reason for cause in causes(instance, SECOND)] == []


def test_an_hour_that_a_gate_refuses_is_named_as_such(instance: dg.DagsterInstance) -> None:
    land(instance, sales, *KEYS[:23])
    compute(instance, sales, KEYS[23], KEYS[23], wrong="yes")
    compute(instance, per_day, FIRST, FIRST)
    assert told(instance, per_day, FIRST)["missing_inputs"] == {KEYS[23]: "refused by adds_up"}


def test_what_gathers_two_assets_needs_an_hour_of_both(instance: dg.DagsterInstance) -> None:
    land(instance, sales, *KEYS[:23])
    land(instance, returned, *KEYS[1:24])
    compute(instance, balance, FIRST, FIRST)
    made = told(instance, balance, FIRST)
    assert sorted(made["missing_inputs"]) == [KEYS[0], KEYS[23]]
    assert made["completeness"] == 22 / 24


def test_what_gathers_nothing_says_nothing_of_it(instance: dg.DagsterInstance) -> None:
    land(instance, sales, KEYS[0])
    compute(instance, per_hour, KEYS[0], KEYS[0])
    assert "completeness" not in told(instance, per_hour, KEYS[0])


def test_a_week_and_a_copy_say_which_hour_a_day_of_theirs_was_computed_without(instance: dg.DagsterInstance) -> None:
    land(instance, sales, *KEYS[:7], *KEYS[8:], *THIRD)
    compute(instance, per_day, FIRST, LAST)
    lacks = {FIRST: {KEYS[7]: "never computed"}}
    for asset, key in ((per_week, FIRST), (copied, FIRST)):
        compute(instance, asset, key, key)
        made = told(instance, asset, key)
        assert (made["approximate_inputs"], made["is_approximate"], made["missing_inputs"]) == (lacks, True, {})
    assert verdict(instance, whole) == (False, "WARN")
    assert [c.asset for c in Waits(instance, [DEFS]).causes("gold/week", FIRST)] == ["gold/sales", "silver/sales"]
    compute(instance, copied, SECOND, SECOND)
    assert "is_approximate" not in told(instance, copied, SECOND), "it has nothing to tell"

    compute(instance, sales, KEYS[7], KEYS[7])
    compute(instance, per_day, FIRST, FIRST)
    for asset in (per_week, copied):
        compute(instance, asset, FIRST, FIRST)
    made = told(instance, per_week, FIRST)
    assert (made["approximate_inputs"], made["is_approximate"]) == ({}, False)
    assert verdict(instance, whole)[0]
    assert "is_approximate" not in told(instance, copied, FIRST)
    assert Waits(instance, [DEFS]).causes("gold/week", FIRST) == []


def test_a_day_that_is_missing_is_not_said_to_lack_its_hours_as_well(instance: dg.DagsterInstance) -> None:
    land(instance, sales, *KEYS[:24])
    compute(instance, per_day, FIRST, FIRST)
    compute(instance, per_week, FIRST, FIRST)
    made = told(instance, per_week, FIRST)
    assert made["missing_inputs"] == dict.fromkeys((SECOND, LAST), "never computed")
    assert (made["approximate_inputs"], made["completeness"]) == ({}, 1 / 3)


@pytest.mark.parametrize("together", [True, False], ids=["in a range", "day by day"])
def test_what_goes_on_from_the_day_before_says_what_that_lacked(
    instance: dg.DagsterInstance, *, together: bool
) -> None:
    """A total lacks it for good; what is only carried over midnight, for one day."""
    land(instance, sales, *KEYS[1:], *THIRD)
    for asset in (still_open, so_far):
        for first, last in [(FIRST, LAST)] if together else [(each, each) for each in (FIRST, SECOND, LAST)]:
            compute(instance, asset, first, last)
    hour = {KEYS[0]: "never computed"}
    assert told(instance, still_open, FIRST)["missing_inputs"] == hour
    for asset in (still_open, so_far):
        assert told(instance, asset, SECOND)["approximate_inputs"] == {FIRST: hour}
    assert told(instance, still_open, LAST)["approximate_inputs"] == {}
    assert told(instance, so_far, LAST)["approximate_inputs"] == {SECOND: hour}


def test_nothing_is_asked_of_what_can_lack_nothing(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(instance, sales, *KEYS[:24])
    asked: list[dg.AssetKey] = []
    monkeypatch.setattr("de_resources.gathering.lacking", lambda _, source, *__, **___: asked.append(source) or {})
    compute(instance, per_hour, KEYS[0], KEYS[0])
    compute(instance, per_day, FIRST, FIRST)
    assert asked == []
    compute(instance, per_week, FIRST, FIRST)
    assert asked == [per_day.key]


def test_a_step_that_tells_of_its_days_itself_tells_what_they_lack(instance: dg.DagsterInstance) -> None:
    land(instance, sales, *KEYS[:7], *KEYS[8:])
    compute(instance, files, FIRST, SECOND)
    assert [told(instance, files, key)["missing_inputs"] for key in (FIRST, SECOND)] == [
        {KEYS[7]: "never computed"},
        {},
    ]


def test_a_day_of_a_single_hour_says_that_it_has_all_of_it() -> None:
    """As of a log that is an hour old, or a week that has begun today."""
    one = dg.HourlyPartitionsDefinition(BEGIN, end_date=BEGIN + timedelta(hours=1))

    @dg.asset(key=["silver", "first_hour"], partitions_def=one, backfill_policy=ONE_RUN)
    def hour() -> int:
        return 1

    @dg.asset(
        key=["gold", "first_day"],
        partitions_def=dg.DailyPartitionsDefinition(BEGIN, end_date=BEGIN + timedelta(days=1)),
        ins={"sold": dg.AssetIn(hour.key, partition_mapping=dg.TimeWindowPartitionMapping(0, 0, True))},
    )
    def day(sold: int) -> int:
        return 1

    judged = fan_in_check(day, pattern="aligned_fan_in")
    with dg.DagsterInstance.ephemeral() as instance:
        for chosen, key in ((hour, KEYS[0]), (day, FIRST)):
            run = dg.materialize(
                [hour, day, judged], selection=[chosen], partition_key=key, instance=instance, resources=TABLES
            )
            assert run.success
        (told,) = latest_materializations(instance, day.key, [FIRST]).values()
    assert told.metadata["completeness"] == 1.0
    assert [each.passed for each in run.get_asset_check_evaluations()] == [True]
