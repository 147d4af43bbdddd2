"""A day that was computed without an hour says so: its materialisation, a check and `de waits`, until the hour comes."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from instances import silent_instance

from de_assets.filling.waits import Cause, Reason, Waits
from de_checks.fan_in import fan_in_check
from de_checks.per_key import latest_materializations
from de_resources.gathering import tell_completeness
from de_resources.held_back import HELD, LEFT_OUT

pytestmark = pytest.mark.pattern("aligned_fan_in")

BEGIN, END = datetime(2026, 1, 5), datetime(2026, 1, 7)
hours = dg.HourlyPartitionsDefinition(BEGIN, end_date=END)
days = dg.DailyPartitionsDefinition(BEGIN, end_date=END)
KEYS = [f"{BEGIN + timedelta(hours=n):%Y-%m-%d-%H:%M}" for n in range(48)]
FIRST, SECOND = "2026-01-05", "2026-01-06"
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


complete = fan_in_check(per_day, pattern="aligned_fan_in")
ALL = [sales, returned, per_day, balance, per_hour, adds_up, complete]
TABLES = {"io_manager": Tables()}
DEFS = dg.Definitions(ALL[:5], asset_checks=[adds_up, complete], resources=TABLES)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with silent_instance() as made:
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


def verdict(instance: dg.DagsterInstance) -> tuple[bool, str]:
    (record,) = instance.event_log_storage.get_asset_check_execution_history(next(iter(complete.check_keys)), limit=1)
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
