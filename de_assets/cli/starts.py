"""`de starts`: what makes each asset run, and which ones would wait for a person."""

from __future__ import annotations

import typer
from rich.table import Column, Table

from de_assets.cli.terminal import console, quiet


def starts() -> None:
    """List every asset with what makes it run: a condition, sensor, schedule or poll, or why it is started by hand.

    All code locations are asked, as they are. Exit status 1 where nothing starts an asset and nobody says why.
    """
    quiet()
    from de_assets.automation.starters import starters, waiting_for_a_person
    from de_assets.catalogue import load_locations

    found = {key: own for location in load_locations() for key, own in starters(location).items()}
    table = Table(Column("asset", no_wrap=True), "starts", "only again")
    for key, own in found.items():
        new = ", ".join(str(each) for each in own if not each.again_only)
        again = ", ".join(str(each) for each in own if each.again_only)
        table.add_row(key.to_user_string(), new or "nothing", again or "-")
    console.print(table)
    waiting = waiting_for_a_person(found)
    if waiting:
        console.print(f"Nothing starts {', '.join(waiting)}: what is new of it waits for a person.", highlight=False)
        raise typer.Exit(1)
    console.print(f"{len(found)} assets, none of them waits for a person.", highlight=False)
