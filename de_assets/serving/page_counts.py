"""Views of each page by day as CSV files, before the cut-over in the layout of the legacy system, since then in a richer one.

Grain: one page that was viewed on the day. Pattern: Exclusive Choice - a step chooses the writer by the day and by the columns
that the source has, and by nothing else; the writer that is not chosen is skipped, as the run's view shows. Of a range across
the cut-over each writer gets its days, and tells of them as soon as they are written: where one fails, the days of the other
are there, and re-execution from failure repeats the one that failed.

A day is one file, whoever wrote it. `CsvLake` reads all of them, whatever columns they have.
"""

from collections.abc import Iterator, Sequence

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import late_cascade
from de_assets.contracts.page_counts import CUT_OVER, PageCounts
from de_assets.dataset import pattern_tags, served
from de_assets.partitions import daily, hours_of_day
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_resources.csv_files import CsvLake, metadata_of
from de_resources.delta.slices import make_slice
from de_resources.exclusive_choice import ExclusiveChoice, When
from de_resources.gathering import completeness_of
from de_resources.held_back import own_keys
from de_resources.lake import Lake
from de_resources.lineage.record import lineage_of_output
from de_resources.retries import RETRY_TRANSIENT, origin_of
from de_resources.told import already_told, tell

KEY, SOURCE = dg.AssetKey(["serving", "page_counts"]), dg.AssetKey(["silver", "visits"])
DAY, PAGE = "event_date", "page"
LEGACY_LAYOUT = (PAGE, "views")
NEW_LAYOUT = (*LEGACY_LAYOUT, "visitors", "bot_views")
FACTS = "facts"

WRITERS = ExclusiveChoice(
    KEY.to_user_string(),
    {
        "legacy_writer": When(before=CUT_OVER),
        "new_writer": When(since=CUT_OVER, has=frozenset({"user_id", "is_bot"})),
    },
)


@dg.op(
    ins={"visits": dg.In(dg.Nothing)},
    out=WRITERS.outs(FACTS),
    retry_policy=RETRY_TRANSIENT,
    tags=pattern_tags("exclusive_choice"),
)
def choose_writer(context: dg.AssetExecutionContext, lake: Lake) -> Iterator[dg.Output[list[str]]]:
    """Which writer each day of the run takes: by the day, and by the columns that the log of the source names."""
    log = lake.table(SOURCE).log()
    yield from WRITERS.outputs(context, own_keys(context), log.column_names() if log else None)


@dg.op(out=dg.Out(list, io_manager_key=FACTS), retry_policy=RETRY_TRANSIENT)
def legacy_writer(
    context: dg.AssetExecutionContext, days: list[str], visits: DataFrame, csv_lake: CsvLake
) -> list[str]:
    """Replace the files of these days, in the layout that the legacy system loads."""
    return write(context, days, counted(visits, days), LEGACY_LAYOUT, csv_lake)


@dg.op(out=dg.Out(list, io_manager_key=FACTS), retry_policy=RETRY_TRANSIENT)
def new_writer(context: dg.AssetExecutionContext, days: list[str], visits: DataFrame, csv_lake: CsvLake) -> list[str]:
    """Replace the files of these days, with visitors and robots."""
    return write(context, days, counted(visits, days), NEW_LAYOUT, csv_lake)


@dg.op(out=dg.Out(dg.Nothing), retry_policy=RETRY_TRANSIENT)
def written(context: dg.AssetExecutionContext, sides: list[list[str]]) -> Iterator[dg.Output[None]]:
    """The end of both: takes what is there, so that a skipped writer skips nothing else."""
    context.log.info("%d days are written.", sum(map(len, sides)))
    yield already_told()


@dg.graph_asset(
    **served(
        PageCounts,
        kind="csv",
        patterns=["exclusive_choice"],
        partition=DAY,
        cut_over=CUT_OVER,
        choice=dg.MetadataValue.md(WRITERS.markdown),
    ),
    ins={"visits": dg.AssetIn(SOURCE, partition_mapping=hours_of_day)},
    partitions_def=daily,
    automation_condition=late_cascade(),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def page_counts(visits):  # type: ignore[no-untyped-def]  # what is passed on here are places in a graph
    """Page views by day and page, in the layout that the day was agreed to have."""
    legacy, new = choose_writer(visits)
    return written([legacy_writer(legacy, visits), new_writer(new, visits)])


def counted(visits: DataFrame, days: Sequence[str]) -> DataFrame:
    """The columns of the new layout, by day, of these days."""
    of_days = visits.where(make_slice(days, daily, "event_hour").predicate(visits.schema))
    return of_days.groupBy(F.to_date("event_hour").alias(DAY), PAGE).agg(
        F.count(F.lit(1)).alias("views"),
        F.count_distinct("user_id").alias("visitors"),
        F.count_if("is_bot").alias("bot_views"),
    )


def write(
    context: dg.AssetExecutionContext, days: Sequence[str], rows: DataFrame, layout: Sequence[str], lake: CsvLake
) -> list[str]:
    """Replace the days' files, and tell of each day. A retry leaves what it finds written."""
    files, run, frame = lake.of(KEY), context.run, rows.select(DAY, *layout)
    # Of all columns, whichever the file has: where those of the dataset come from does not depend on its newest day.
    lineage = lineage_of_output(context, rows, KEY)
    with lake.spark.watched():
        done = files.write(frame, DAY, days, order=[PAGE], run=run.run_id, origin=origin_of(run))
    for day, file in done.items():
        about = {"writer": context.op_execution_context.op_def.name, "layout": ", ".join(layout)}
        known = {**lineage, **metadata_of(str(files.file(day)), file), **completeness_of(context, day)}
        tell(context, KEY, day, {**known, **about}, file.sha256)
    return list(done)


checks = [contract_check(page_counts, lake="csv_lake"), unique_key_check(page_counts, lake="csv_lake")]
