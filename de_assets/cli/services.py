"""`de up`, `de down`, `de status`, `de logs`: the services on this machine."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from de_assets.cli.terminal import console, explained
from de_assets.sources.capture import CAPTURES
from de_assets.sources.topics import TOPICS
from de_resources.alerts.book import AlertBook
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_resources.local.endpoints import ServiceStatus

Names = Annotated[
    list[str] | None, typer.Argument(help="spark_connect, postgres, kafka, capture, pages, partner, geo; default: all")
]


def up(names: Names = None) -> None:
    """Start the services and wait until they answer. What runs already is left alone."""
    from de_resources.local.services import LocalServices

    with explained(), console.status("Starting services …") as status:
        LocalServices().up(
            names or None,
            topics=TOPICS,
            captures=CAPTURES,
            console=console,
            progress=lambda name, what: status.update(Text(f"{name}: {what}")),
        )
    _show(LocalServices().status())


def down() -> None:
    """Stop everything that was started for this home, also what a crash left behind."""
    from de_resources.local.services import LocalServices

    with explained(), console.status("Stopping services …"):
        count = LocalServices().down()
    console.print(f"{count} process(es) stopped." if count else "Nothing was running.")


def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False) -> None:
    """Show what runs, where, and how much memory it takes; and the alerts that are open."""
    from de_resources.local.services import LocalServices

    statuses = LocalServices().status()
    if as_json:
        typer.echo(json.dumps([s.as_dict() for s in statuses], indent=2))
    else:
        _show(statuses)
        _show_alerts(AlertBook.of_home(Settings.from_environment().home))


def logs(
    name: Annotated[str, typer.Argument(help="spark_connect, postgres, kafka, capture, pages, partner or geo")],
    lines: Annotated[int, typer.Option(help="How many of the last lines.")] = 50,
) -> None:
    """Print the last lines of a service's log."""
    from de_resources.local.services import LocalServices

    with explained():
        typer.echo(LocalServices().logs(name, lines))


def jars() -> None:
    """Fetch the engine's and the broker's jars into the cache, once; everything works offline afterwards."""
    from de_resources.loaded_classes import keep_loaded_classes
    from de_resources.local.hadoop_defaults import keep_hadoop_defaults
    from de_resources.local.jars import ensure_jars
    from de_resources.local.local_files import keep_local_files

    settings = Settings.from_environment()
    with explained():
        found = ensure_jars(settings, console=console)
    console.print(", ".join(f"{len(files)} jars for the {name}" for name, files in found.items()) + ".")
    keep_hadoop_defaults(settings)
    keep_local_files(settings)
    with console.status("Keeping the engine's classes, so that it starts sooner"):
        keep_loaded_classes(settings)


def _show(statuses: list[ServiceStatus]) -> None:
    table = Table("service", "state", "port", "memory", "remark")
    for s in statuses:
        memory = f"{s.memory_bytes / 2**20:.0f} MiB" if s.memory_bytes else ""
        colour = "red" if s.is_broken else "green" if s.is_running else "yellow"
        table.add_row(s.name, Text(s.state, colour), str(s.port or ""), memory, s.why or "")
    console.print(table)


def _show_alerts(book: AlertBook) -> None:
    """What is open, and which channels have not been told of everything."""
    opened, pending = book.open_alerts(), book.pending()
    if opened:
        table = Table("open since", "alert", "parts", "taken on")
        for alert in opened:
            colour = "red" if alert.severity == "ERROR" else "yellow"
            since = alert.opened_at[:16].replace("T", " ")
            table.add_row(since, Text(alert.text, colour), str(len(alert.members)), alert.acknowledged or "")
        console.print(table)
    for channel in pending:
        told = f"{channel.channel}: {channel.waiting} alert(s) not accepted yet. {channel.why or ''}"
        console.print(Text(told, "yellow"))


def alerts(
    acknowledge: Annotated[
        str | None, typer.Argument(help="The subject of an alert to take on; none: list them.")
    ] = None,
    words: Annotated[str, typer.Option("--words", help="Who looks at it, and what was found.")] = "taken on",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Show the alerts that are open, or take one on: it stays open, and says that somebody looks."""
    book = AlertBook.of_home(Settings.from_environment().home)
    with explained():
        if acknowledge is not None:
            book.acknowledge(acknowledge, words)
    opened = book.open_alerts()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(alert) for alert in opened], indent=2))
    elif opened or book.pending():
        for alert in opened:
            console.print(alert.subject, highlight=False)
        _show_alerts(book)
    else:
        console.print("No alert is open.")
