"""A code location to be copied: days of one pipeline, which fail when a file says so, and a dataset beside it."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg

from de_checks.per_key import Key, Materialized, Verdict, evaluate, spec_for
from de_resources.held_back import HELD, LEFT_OUT, own_keys
from de_resources.promises import NEEDS
from de_resources.run_queue.latency import waited
from de_resources.run_queue.places import in_order
from de_resources.run_queue.pools import side_by_side

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


@dg.asset(partitions_def=days, tags=in_order("counted"))
def counted(context: dg.AssetExecutionContext) -> None:
    tell(f"counted {context.partition_key[-2:]}")


def promised(name: str) -> dg.AssetChecksDefinition:
    """A gate of `counted`, which is red for the day that a file names."""
    spec = spec_for(counted, name, description="", blocking=True, metadata={})

    @dg.multi_asset_check(name=f"counted_{name}", specs=[spec], can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        def judge(found: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
            return {key: Verdict(not (HERE / f"{name}-{str(key)[-2:]}").exists(), "as the test wants") for key in found}

        yield from evaluate(context, spec, judge)

    return check


@dg.asset(partitions_def=days, deps=[counted], metadata={HELD: LEFT_OUT})
def summed(context: dg.AssetExecutionContext) -> None:
    tell(f"summed {own_keys(context)[0][-2:]}")


@dg.asset(partitions_def=days, deps=[summed], metadata={HELD: LEFT_OUT})
def reported(context: dg.AssetExecutionContext) -> None:
    tell(f"reported {own_keys(context)[0][-2:]}")


@dg.asset(partitions_def=days, deps=[counted], metadata={HELD: LEFT_OUT, NEEDS: {"counted": ["whole"]}})
def sketched(context: dg.AssetExecutionContext) -> None:
    """The same though something is counted twice."""
    tell(f"sketched {own_keys(context)[0][-2:]}")


@dg.asset(partitions_def=days, tags=side_by_side("landing"))
def landed(context: dg.AssetExecutionContext) -> None:
    """Each day waits for its own file, as a slow source makes it do."""
    day = context.partition_key[-2:]
    tell(f"landing {day}")
    while not (HERE / f"go-{day}").exists():
        time.sleep(0.02)
    tell(f"landed {day}")


load = dg.define_asset_job("load", [landed, beside])


@dg.asset(tags=side_by_side("elsewhere"))
def nowhere() -> None: ...


@dg.asset(tags=in_order("other"))
def whole() -> None:
    tell("whole")


@dg.sensor(asset_selection=[line, landed], minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def asked() -> Iterator[dg.RunRequest]:
    """Automation: a run for each file `ask-<asset>-<day>`."""
    for file in sorted(HERE.glob("ask-*")):
        _, asset, day = file.name.split("-")
        yield dg.RunRequest(file.name, partition_key=f"2026-01-{day}", asset_selection=[dg.AssetKey(asset)])


defs = dg.Definitions(
    [line, beside, landed, nowhere, whole, counted, summed, reported, sketched],
    asset_checks=[is_green, promised("unique"), promised("whole")],
    jobs=[load],
    sensors=[asked],
    executor=dg.in_process_executor,
)
