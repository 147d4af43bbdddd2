"""The visits of a day for those who read them elsewhere: as CSV files, as ever, and as the table that will replace these.

Grain: one page view, in both. Pattern: Parallel Split - the day is read once, and each of the two branches has its own result.
The check `equals_legacy_export` says row by row in what they differ, until the last reader of the files has moved.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from functools import partial
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.visits_export import VisitsCsv, VisitsExport
from de_assets.dataset import dataset, pattern_tags, served
from de_assets.partitions import daily, hours_of_day
from de_checks.contract import contract_check
from de_checks.shadow import Shadow, shadow_check
from de_resources.contract import Contract
from de_resources.csv_files import CsvFolders, metadata_of
from de_resources.gathering import completeness_of
from de_resources.held_back import own_keys
from de_resources.lineage.record import lineage_of_output
from de_resources.parallel_split import Branch, split
from de_resources.retries import RETRY_TRANSIENT, origin_of
from de_resources.spark import SparkEngine

CONTRACT = Contract.of(VisitsExport)
CSV = dg.AssetKey(["serving", "visits_csv"])
DAY, ORDER = "event_date", ("event_time", "visit_id")


@dg.multi_asset(
    retry_policy=RETRY_TRANSIENT,
    name="exported_visits",
    outs={
        "csv": dg.AssetOut(
            **served(VisitsCsv, kind="csv", patterns=["parallel_split"], partition=DAY),
            dagster_type=dg.Nothing,
            is_required=False,
            automation_condition=late_cascade(),
        ),
        "table": dg.AssetOut(
            **dataset(VisitsExport, patterns=["parallel_split"], partition=DAY),
            is_required=False,
            automation_condition=late_cascade(),
        ),
    },
    ins={"visits": dg.AssetIn(["silver", "visits"], partition_mapping=hours_of_day)},
    partitions_def=daily,
    backfill_policy=dg.BackfillPolicy.single_run(),  # an AssetOut's own is ignored
    can_subset=True,
    op_tags=pattern_tags("parallel_split"),
)
def exported_visits(
    context: dg.AssetExecutionContext, visits: DataFrame, exports: CsvFolders, spark: SparkEngine
) -> Iterator[dg.Output[Any]]:
    """Read the run's days once, and write them both ways side by side."""
    csv = partial(write_csv, context, exports, spark)
    yield from split(context, exported(visits), stored={"table": lambda rows: rows}, beside={"csv": csv})


def exported(visits: DataFrame) -> DataFrame:
    """The columns of serving.visits_export."""
    return visits.withColumn(DAY, F.to_date("event_hour")).select(*CONTRACT.column_names)


def write_csv(
    context: dg.AssetExecutionContext, exports: CsvFolders, spark: SparkEngine, rows: DataFrame
) -> Mapping[str | None, Branch]:
    """Replace the files of the run's days."""
    run, files = context.run, exports.of(CSV)
    lineage = lineage_of_output(context, rows, CSV)
    with spark.watched():
        written = files.write(rows, DAY, own_keys(context), order=ORDER, run=run.run_id, origin=origin_of(run))
    told = {
        key: {**lineage, **metadata_of(str(files.file(key)), file), **completeness_of(context, key)}
        for key, file in written.items()
    }
    return {key: Branch(told[key], file.sha256) for key, file in written.items()}


def legacy_rows(resources: Any, key: str) -> Shadow:
    """What the files say of a day."""
    files, schema = resources.exports.of(CSV), CONTRACT.struct_type()
    told = files.manifest(key)
    if told is None:
        return Shadow(None, f"There is no file of the day. Materialise `{CSV.to_user_string()}`.")
    stored = [field for field in schema.fields if field.name in told.columns]
    if not files.is_whole(key) or len(stored) != len(schema.fields) - 1:
        return Shadow(
            None, f"The file of the day is not the one that was written. Materialise `{CSV.to_user_string()}`."
        )
    rows = files.read(resources.spark.spark_session, key, type(schema)(stored))
    return Shadow(rows.withColumn(DAY, F.lit(date.fromisoformat(key))))


_EXPORT = exported_visits.get_asset_spec(dg.AssetKey(["serving", "visits_export"]))

checks = [
    contract_check(_EXPORT),
    shadow_check(_EXPORT, legacy_rows, resources={"exports", "spark"}, name="equals_legacy_export"),
]
