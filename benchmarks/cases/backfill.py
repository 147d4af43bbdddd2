"""Thirty days of a stateless daily asset are backfilled by one run, beside one plain Spark commit of the same rows.

Ours is a Dagster run over the range: in this process, recorded in an instance on the disk, with the contract's rules
counted and every partition's rows reported. The peer is `df.write … replaceWhere` over the same days and files, with
Spark's defaults. For information, the same days as thirty runs of one day each, measured once. Equal: the rows of all tables.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate, timed
from benchmarks.workbench import QUIET, Workbench
from de_resources.delta.table import Table

BAR = 2.0
RANGE = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def run(bench: Workbench) -> list[Figure]:
    """One run of many days beside one commit, and beside many runs."""
    days, rows = bench.pick(small=5, full=30), bench.pick(small=500, full=20_000)
    keys, what = data.day_keys(days), f"{days} days of {rows:,} rows"
    frame = data.stage(bench, "backfill", days=days, rows_per_day=rows)
    views = page_views(frame)
    by_hand = bench.table("backfill_by_hand", partitioned_by=("day",))
    by_hand.create_if_missing(bench.spark, frame.schema)
    with bench.dagster("backfill") as instance:
        one_run = partial(_range_run, bench, "range", instance, views, keys)

        def single_runs() -> None:
            for key in keys:
                materialise_day(bench, "single", instance, [views], key)

        def verify() -> None:
            data.require_same_rows(bench, "a backfill", days * rows, _uri(bench, "range"), by_hand.uri)

        samples = alternate(
            {"one run": one_run, "one commit": partial(_commit, by_hand, frame, keys)},
            verify=verify,
            rounds=bench.pick(small=2, full=7),
            at_most=bench.pick(small=2, full=31),
            enough=lambda taken: _beside_commit(what, taken).is_decided,
            warm_ups=4,
        )
        runs = timed(single_runs)
        data.require_same_rows(bench, "the single runs", days * rows, _uri(bench, "range"), _uri(bench, "single"))
    files = [data.newest_commit(uri)[1] for uri in (_uri(bench, "range"), by_hand.uri)]
    note = f"files written: {files[0]} and {files[1]}"
    ranged = samples["one run"]
    return [
        replace(_beside_commit(what, samples), note=note),
        Figure("backfill", what, Kind.RATIO, "one run", ranged[-1:], f"{days} runs", (runs,), note="measured once"),
    ]


def _beside_commit(what: str, samples: Mapping[str, Samples]) -> Figure:
    one_run, commit = samples["one run"], samples["one commit"]
    return Figure("backfill", what, Kind.RATIO, "one run", one_run, "one plain commit", commit, BAR)


def page_views(frame: DataFrame) -> dg.AssetsDefinition:
    """A stateless daily asset: the days' rows of a frame, as they are."""

    @dg.asset(
        key=["bench", "page_views"],
        partitions_def=data.DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        # The staged files are in order of time.
        metadata={"partition_expr": "day", "contract": data.CONTRACT, "pre_clustered": True},
    )
    def asset(context: dg.AssetExecutionContext) -> DataFrame:
        return frame.where(F.expr(data.slice_of(context.partition_keys).predicate(frame.schema)))

    return asset


def materialise_day(
    bench: Workbench,
    lake: str,
    instance: dg.DagsterInstance,
    parts: list[dg.AssetsDefinition | dg.AssetChecksDefinition],
    key: str,
) -> dg.ExecuteInProcessResult:
    """One run of one day in this process."""
    result = dg.materialize(
        parts, partition_key=key, instance=instance, resources=bench.resources(lake), run_config=QUIET
    )
    require_equal("a run (success)", True, result.success)
    return result


def _range_run(
    bench: Workbench, lake: str, instance: dg.DagsterInstance, views: dg.AssetsDefinition, keys: list[str]
) -> None:
    tags = dict(zip(RANGE, (keys[0], keys[-1]), strict=True))
    dg.materialize([views], tags=tags, instance=instance, resources=bench.resources(lake), run_config=QUIET)


def _commit(table: Table, frame: DataFrame, keys: list[str]) -> None:
    days = f"day >= DATE '{keys[0]}' AND day <= DATE '{keys[-1]}'"
    frame.where(days).write.format("delta").mode("overwrite").option("replaceWhere", days).save(table.uri)


def _uri(bench: Workbench, lake: str) -> str:
    return f"{bench.folder('lakes') / lake}/bench/page_views"
