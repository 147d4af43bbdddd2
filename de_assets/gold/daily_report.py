"""The report of each day, out in the morning whatever is there.

Grain: one day. Pattern: Unaligned Fan-In - the sensor `daily_report_due` asks for a day when its last hour is there, or at the
deadline with the hours that are there by then, and again when others come. The row says how complete it is and what is
missing; a day without a single hour has the figures of an earlier one, and says so.
"""

from datetime import date, timedelta

import dagster as dg
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

from de_assets.automation.late_data.runs import Consumer
from de_assets.contracts.traffic import DailyReport
from de_assets.dataset import dataset
from de_assets.partitions import daily, hourly, hours_of_day
from de_assets.transforms.data_flow.unaligned_fan_in import FALLBACK_DAYS, DayInputs, EarlierFigures, daily_reports
from de_checks.contract import contract_check
from de_checks.fan_in import fan_in_check
from de_checks.keys import unique_key_check
from de_resources.compat.graph import whole_graph
from de_resources.contract import Contract
from de_resources.delta.table import Table
from de_resources.fan_in import FanIn, inputs_of
from de_resources.held_back import own_keys
from de_resources.lake import Lake
from de_resources.retries import RETRY_TRANSIENT

KEY = dg.AssetKey(["gold", "daily_report"])
VISITS = dg.AssetKey(["silver", "visits"])


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(DailyReport, patterns=["unaligned_fan_in"], partition="report_date"),
    ins={"visits": dg.AssetIn(VISITS, partition_mapping=hours_of_day)},
    partitions_def=daily,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def daily_report(context: dg.AssetExecutionContext, visits: DataFrame, lake: Lake) -> DataFrame:
    """Count what is there of each day of the run, and say what is not. What comes later asks for the day again."""
    graph = whole_graph(context.op_execution_context.get_step_execution_context().job_def)
    consumer = Consumer(KEY, VISITS, graph)
    hours = {key: consumer.existing_source_keys(key) for key in own_keys(context)}
    inputs = inputs_of(context.instance, graph, KEY, VISITS, [hour for each in hours.values() for hour in each])
    days = {key: inputs.of(each) for key, each in hours.items()}
    for key, inputs in days.items():
        context.add_asset_metadata(inputs.metadata, KEY, key)
    first = date.fromisoformat(min(days))
    reports = daily_reports(
        visits, [_inputs_of(key, inputs) for key, inputs in days.items()], earlier(lake.table(KEY), first)
    )
    return reports.select(*Contract.of(DailyReport).column_names)


def earlier(table: Table, before: date) -> EarlierFigures | None:
    """The newest report of the days that may stand in for this one, which had hours of its own. Starts no engine."""
    log = table.log()
    if log is None:
        return None
    recent = (ds.field("report_date") < before) & (ds.field("report_date") >= before - timedelta(days=FALLBACK_DAYS))
    wanted = recent & (ds.field("hours_there") > 0)
    names = ["report_date", "visits", "users", "pages"]
    rows = log.table.to_pyarrow_dataset().to_table(columns=names, filter=wanted).to_pylist()
    newest = max(rows, key=lambda row: row["report_date"], default=None)
    return EarlierFigures(*(newest[name] for name in names)) if newest else None


def _inputs_of(key: str, inputs: FanIn) -> DayInputs:
    hours = tuple(hourly.time_window_for_partition_key(hour).start for hour in inputs.there)
    return DayInputs(date.fromisoformat(key), hours, tuple(inputs.missing))


checks = [contract_check(daily_report), unique_key_check(daily_report), fan_in_check(daily_report)]
