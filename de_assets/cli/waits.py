"""`de waits`: which hour a day waits for, and why that one is not there."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Column, Table

from de_assets.cli.terminal import console, explained, quiet
from de_resources.settings import Settings

_SHOWN = 5


def waits(
    asset: Annotated[str, typer.Argument(help="The asset, such as gold/visits_cube_daily.")],
    partition: Annotated[str, typer.Argument(help="Its partition; default: the newest that are not there.")] = "",
) -> None:
    """Say why partitions are not computed: which ones above them are missing, failed, at work, or held by a check.

    Asks the event log only, and starts nothing. Exit status 1 where something waits.
    """
    quiet()
    from de_assets.catalogue import load_locations
    from de_assets.cli.run import dagster_instance
    from de_assets.filling.waits import Waits

    table = Table(Column("partition", no_wrap=True), Column("waits for", no_wrap=True), "partitions", "why")
    with explained(), dagster_instance(Settings.from_environment()) as instance:
        found = Waits(instance, load_locations())
        asked = [partition] if partition else found.open(asset)[-_SHOWN:]
        for each in asked:
            for cause in found.causes(asset, each):
                table.add_row(each or "-", cause.asset, cause.shown() or "-", cause.why)
    if not table.row_count:
        console.print(f"{asset}: nothing waits.", highlight=False)
        return
    console.print(table)
    raise typer.Exit(1)
