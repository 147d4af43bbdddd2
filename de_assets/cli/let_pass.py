"""`de let-pass`: what a person decides about partitions that wait for one that failed."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from de_assets.cli.terminal import console, explained
from de_resources.settings import Settings

_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


def let_pass(
    asset: Annotated[str, typer.Argument(help="The asset, such as gold/sessions.")] = "",
    partition: Annotated[
        str, typer.Argument(help="The failed partition, such as 2024-10-10; of a range its first.")
    ] = "",
    reason: Annotated[str, typer.Option(help="Why. Kept in the partition's history; no personal data.")] = "",
    show: Annotated[bool, typer.Option("--list", help="Show what failed and holds others; change nothing.")] = False,
) -> None:
    """Let the partitions of a pipeline that goes in order pass one that failed; or list what holds others.

    What failed stays failed, and may be run again at any time.
    """
    import dagster as dg

    from de_assets.automation.order import LET_PASS, let_one_pass
    from de_assets.cli.run import dagster_instance
    from de_assets.definitions import defs
    from de_resources.errors import PlatformError

    with explained(), dagster_instance(Settings.from_environment()) as instance:
        if show or not asset:
            _list(instance)
            return
        config = {"asset": asset, "partition": partition, "reason": reason}
        try:
            result = defs.resolve_job_def(LET_PASS).execute_in_process(
                instance=instance, run_config={"ops": {let_one_pass.name: {"config": config}}, "loggers": _QUIET}
            )
        except dg.DagsterError as error:
            raise error.__cause__ if isinstance(error.__cause__, PlatformError) else error from None
        (output,) = (event for event in result.events_for_node(let_one_pass.name) if event.is_successful_output)
        console.print(str(output.step_output_data.metadata["let_pass"].value), markup=False, highlight=False)


def _list(instance: object) -> None:
    import dagster as dg

    from de_assets.automation.pipelines import PIPELINES
    from de_resources.run_queue.failures import Failures

    assert isinstance(instance, dg.DagsterInstance)  # noqa: S101 - the module loads without Dagster
    table, failed = Table("pipeline", "partitions", "assets", "run"), Failures(instance)
    for each in (failure for name in PIPELINES for failure in failed.of(name)):
        table.add_row(each.place.pipeline, each.place.told(), ", ".join(each.place.assets), each.run_id[:8])
    if table.row_count:
        console.print(table)
    console.print(f"{table.row_count:,} failed run(s) hold what comes after them.", highlight=False)
