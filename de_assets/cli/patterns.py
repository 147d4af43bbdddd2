"""`de patterns`: the catalogue, and how far each pattern is carried by the graph and proved by tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from de_assets import catalogue
from de_assets.catalogue import Alias, Family
from de_assets.cli.terminal import console, explained

if TYPE_CHECKING:
    from de_assets.catalogue import Status

NOT_YET = Text("not yet", "yellow")


def patterns(
    name: Annotated[str | None, typer.Argument(help="A pattern by name, title or other name; default: all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    as_index: Annotated[bool, typer.Option("--index", help="Print all as Markdown: docs/patterns/README.md.")] = False,
    family: Annotated[Family | None, typer.Option(help="Only this family.", case_sensitive=False)] = None,
) -> None:
    """Show the patterns: what each promises, what carries it in the graph, which tests prove it."""
    if as_index:
        if name or as_json or family:
            raise typer.BadParameter("`--index` is about all patterns and stands alone.")
        with explained():
            typer.echo(catalogue.index(_statuses()))
        return
    with explained():
        chosen, alias = catalogue.look_up(name) if name else (list(catalogue.PATTERNS.values()), None)
        chosen = [pattern for pattern in chosen if family in (None, pattern.family)]
        if as_json:
            typer.echo(json.dumps([_as_dict(s) for s in _statuses() if s.pattern in chosen], indent=2))
            return
        with console.status("Loading the graph …"):
            statuses = {s.pattern: s for s in _statuses()}
    shown = [statuses[pattern] for pattern in chosen]
    if name is None:
        _show_all(shown)
    for each in shown if name else ():
        _show_entry(each, alias)


def _statuses() -> list[Status]:
    carriers = [catalogue.carriers(location) for location in catalogue.load_locations()]
    return catalogue.status(carriers, catalogue.tests(catalogue.PROJECT / "tests"))


def _as_dict(status: Status) -> dict[str, object]:
    """The public form: scripts rely on these four keys."""
    return {
        "name": status.pattern.name,
        "family": str(status.pattern.family),
        "carriers": [{"kind": carrier.kind, "name": carrier.name} for carrier in status.carriers],
        "tests": list(status.tests),
    }


def _show_all(statuses: list[Status]) -> None:
    table = Table()
    for heading in ("family", "pattern"):
        table.add_column(heading, no_wrap=True)
    table.add_column("carriers", overflow="fold")
    table.add_column("tests")
    family: Family | None = None
    for s in statuses:
        if s.pattern.family is not family:
            table.add_section()
        shown_family = "" if s.pattern.family is family else str(s.pattern.family)
        family = s.pattern.family
        carriers = "\n".join(map(str, s.carriers))
        table.add_row(shown_family, s.pattern.title, carriers or NOT_YET, str(len(s.tests)) if s.tests else NOT_YET)
    console.print(table)
    carried, proved = sum(s.is_carried for s in statuses), sum(s.is_proved for s in statuses)
    console.print(f"{len(statuses)} patterns: {carried} carried by the graph, {proved} of them proved by marked tests.")


def _show_entry(status: Status, alias: Alias | None) -> None:
    pattern = status.pattern
    rows = [
        ("name", pattern.name),
        ("family", str(pattern.family)),
        ("promise", pattern.promise),
        *([(alias.title, f"adds {_with_place(alias)}")] if alias else []),
        ("also called", "\n".join(f"{a.title}: {_with_place(a)}" for a in pattern.aliases if a != alias)),
        ("carriers", "\n".join(map(str, status.carriers))),
        ("tests", "\n".join(status.tests)),
        ("files", "\n".join(catalogue.modules(pattern))),
    ]
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")  # ids of tests and paths are copied: whole ones only
    for label, text in rows:
        if text or label in ("carriers", "tests"):
            grid.add_row(Text(label, "bold"), text or NOT_YET)
    console.print(Panel(grid, title=pattern.title, title_align="left"))


def _with_place(alias: Alias) -> str:
    return f"{alias.adds} (see {alias.place})" if alias.place else alias.adds
