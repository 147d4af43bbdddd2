"""`de capture status|drop`: the slots that captures hold in the database."""

from typing import Annotated

import typer
from rich.table import Table

from de_assets.cli.terminal import console, explained
from de_assets.sources.capture import CAPTURES
from de_resources.capture.source import UnknownCapture

HELP = "What captures hold in the database, and how to give it up."


def status() -> None:
    """Show each capture's slot: whether it is read, and how much of the database's log it keeps from being removed."""
    from de_resources import capture as captures
    from de_resources.postgres import PostgresDatabase

    table = Table("capture", "tables", "topic", "slot", "log kept")
    with explained():
        for source in CAPTURES:
            found = captures.status(PostgresDatabase(), source)
            state = "none" if found is None else "lost" if found.is_lost else "read" if found.active else "not read"
            kept = "" if found is None else f"{found.retained_bytes / 2**20:.1f} MiB"
            table.add_row(source.name, ", ".join(source.tables), source.topic, state, kept)
    console.print(table)


def drop(name: Annotated[str, typer.Argument(help="The capture, as `de capture status` names it.")]) -> None:
    """Give up a capture's slot and publication; the running capture then begins again, with a snapshot."""
    from de_resources import capture as captures
    from de_resources.postgres import PostgresDatabase

    with explained():
        source = UnknownCapture.unless_named(name, CAPTURES)
        captures.drop(PostgresDatabase(), source)
    console.print(f"Slot and publication `{source.slot}` are gone.")
