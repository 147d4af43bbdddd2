"""A code location to be copied: days of one pipeline, which fail when a file says so, and a dataset beside it."""

from pathlib import Path

import dagster as dg

from de_resources.single_runner.latency import waited
from de_resources.single_runner.places import in_order

HERE = Path(__file__).parent
days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")


def tell(what: str) -> None:
    with (HERE / "told").open("a") as told:
        told.write(f"{what}\n")


@dg.asset(partitions_def=days, tags=in_order("line"))
def line(context: dg.AssetExecutionContext) -> None:
    keys = context.partition_key_range
    tell(f"begin {keys.start[-2:]}")
    if (HERE / f"fails-{keys.start[-2:]}").exists():
        raise ValueError("fails on purpose")
    context.add_output_metadata(waited(context))
    tell(f"end {keys.end[-2:]}")


@dg.asset_check(asset=line, blocking=True, partitions_def=days)
def is_green(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    day = context.partition_key_range.start[-2:]
    if (HERE / f"check-breaks-{day}").exists():
        raise ValueError("breaks on purpose")
    return dg.AssetCheckResult(passed=not (HERE / f"red-{day}").exists())


@dg.asset(partitions_def=days)
def beside(context: dg.AssetExecutionContext) -> None:
    tell(f"beside {context.partition_key[-2:]}")
    if (HERE / f"beside-fails-{context.partition_key[-2:]}").exists():
        raise ValueError("fails on purpose")


@dg.asset(tags=in_order("other"))
def whole() -> None:
    tell("whole")


defs = dg.Definitions([line, beside, whole], asset_checks=[is_green], executor=dg.in_process_executor)
