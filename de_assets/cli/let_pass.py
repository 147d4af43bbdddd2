"""`de let-pass`: what a person decides about partitions that wait for one that failed."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from de_assets.cli.decisions import decide
from de_assets.cli.terminal import console, explained
from de_resources.settings import Settings


def let_pass(
    asset: Annotated[str, typer.Argument(help="The asset, such as gold/sessions.")] = "",
    partition: Annotated[
        str, typer.Argument(help="The failed partition, such as 2024-10-10; of a range the first that is missing.")
    ] = "",
    reason: Annotated[str, typer.Option(help="Why. Kept in the partition's history; no personal data.")] = "",
    show: Annotated[bool, typer.Option("--list", help="Show what failed and holds others; change nothing.")] = False,
) -> None:
    """Let the partitions of a pipeline that goes in order pass one that failed; or list what holds others.

    What failed stays failed, and may be run again at any time.
    """
    from de_assets.automation.order import LET_PASS

    with explained():
        if show or not asset:
            _list()
            return
        told = decide(LET_PASS, {"asset": asset, "partition": partition, "reason": reason})
        console.print(f"{told['let_pass']}", highlight=False)


def _list() -> None:
    from de_assets.automation.pipelines import PIPELINES
    from de_assets.cli.run import dagster_instance
    from de_resources.run_queue.failures import Failures

    table = Table("pipeline", "partitions", "assets", "run")
    with dagster_instance(Settings.from_environment()) as instance:
        failures = Failures(instance)
        for each in (failure for name in PIPELINES for failure in failures.of(name)):
            table.add_row(each.place.pipeline, each.place.told(), ", ".join(each.place.assets), each.run_id[:8])
    if table.row_count:
        console.print(table)
    console.print(f"{table.row_count:,} failed run(s) hold what comes after them.", highlight=False)
