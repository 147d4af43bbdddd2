"""A code location of hours and of what gathers them: a day that waits, a sibling that need not, a report at its deadline."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from de_assets.automation.conditions import late_cascade
from de_assets.automation.late_data.runs import Consumer
from de_assets.automation.triggers.fan_in import fan_in_sensor
from de_assets.automation.triggers.waiting import waiting
from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.fan_in import fan_in_check
from de_checks.per_key import Key, Materialized, Verdict
from de_resources.compat.graph import whole_graph
from de_resources.fan_in import inputs_of
from de_resources.gathering import tell_completeness
from de_resources.promises import NEEDS

ROOT = Path(os.environ["GATHERING_ROOT"])
BEGIN, END = datetime(2026, 1, 5), datetime(2026, 1, 9)
hours = dg.HourlyPartitionsDefinition(BEGIN, end_date=END)
days = dg.DailyPartitionsDefinition(BEGIN, end_date=END)
ONE_RUN = dg.BackfillPolicy.single_run()
SALES, REPORT = dg.AssetKey(["silver", "sales"]), dg.AssetKey(["gold", "report"])
PROMISE = "de_assets.contracts.traffic:DailyReport"
"""Says for how long the report takes in what comes late."""
WHOLE, UNIQUE = "rows_are_whole", "rows_are_unique"
BUYERS_NEED = {"silver/sales": [WHOLE]}
"""Buyers are the same though a sale is there twice."""


def on_purpose(what: str) -> str:
    """The hour that the test wants to go wrong in this way."""
    file = ROOT / what
    return file.read_text() if file.exists() else ""


def clock() -> datetime:
    """What time it is in this world."""
    return datetime.fromisoformat((ROOT / "clock").read_text())


class Nowhere(dg.IOManager):
    """Stores nothing; an input is read as the tables of the platform are."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None: ...

    def load_input(self, context: dg.InputContext) -> int:
        tell_completeness(context)
        return 0


@dg.asset(key=SALES, partitions_def=hours, backfill_policy=ONE_RUN)
def sales(context: dg.AssetExecutionContext) -> int:
    if on_purpose("breaks") in context.partition_keys:
        raise ValueError("breaks on purpose")
    return 0


def gate(name: str) -> dg.AssetChecksDefinition:
    """A blocking check that refuses the hour which a file of its name names."""

    def judge(_run: CheckRun, key: Key, _current: Materialized) -> Verdict:
        return Verdict(key != on_purpose(name), "as the test wants it")

    return check_per_key(sales, name, key_by_key(judge), description=name, blocking=True)


@dg.asset(
    key=["gold", "per_day"],
    partitions_def=days,
    ins={"sold": dg.AssetIn(SALES)},
    automation_condition=late_cascade(),
    backfill_policy=ONE_RUN,
)
def per_day(sold: int) -> int:
    return sold


@dg.asset(
    key=["gold", "buyers"],
    partitions_def=days,
    ins={"sold": dg.AssetIn(SALES)},
    metadata={NEEDS: BUYERS_NEED},
    automation_condition=late_cascade(needs=BUYERS_NEED),
    backfill_policy=ONE_RUN,
)
def buyers(sold: int) -> int:
    return sold


@dg.asset(key=REPORT, partitions_def=days, deps=[sales], metadata={"contract": PROMISE}, backfill_policy=ONE_RUN)
def report(context: dg.AssetExecutionContext) -> None:
    graph = whole_graph(context.op_execution_context.get_step_execution_context().job_def)
    consumer = Consumer(REPORT, SALES, graph)
    for key in context.partition_keys:
        inputs = inputs_of(context.instance, graph, REPORT, SALES, consumer.existing_source_keys(key))
        context.add_asset_metadata(inputs.metadata, REPORT, key)


cascade = dg.AutomationConditionSensorDefinition(
    "cascade",
    target=dg.AssetSelection.assets(per_day, buyers),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=1,
)
report_due = fan_in_sensor(
    "report_due", REPORT, SALES, deadline=timedelta(hours=3), now=clock, seconds=1, description="of the test"
)
defs = dg.Definitions(
    [sales, per_day, buyers, report],
    asset_checks=[gate(WHOLE), gate(UNIQUE), fan_in_check(report), fan_in_check(per_day, pattern="aligned_fan_in")],
    sensors=[cascade, report_due, waiting(lambda: [defs], seconds=1)],
    resources={"io_manager": Nowhere()},
    executor=dg.in_process_executor,
)
