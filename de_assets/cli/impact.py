"""`de impact`: what depends on a column or a dataset, who owns that, and what would break."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from de_assets.cli.terminal import console, explained
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_resources.lineage.impact import Affected, Target


def impact(
    what: Annotated[str, typer.Argument(help="A column, such as silver/visits.user_id, or a dataset: silver/visits.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
) -> None:
    """List what depends on a column or a dataset, in all code locations, and which consumers would break without it.

    By the lineage that the newest materialisations have recorded; where there is none, by the asset graph, which is said.
    """
    with explained():
        target, found = _asked(what)
    if as_json:
        typer.echo(json.dumps(_document(target, found), indent=2))
        return
    console.print(_table(found) if found else f"Nothing depends on {target}.")
    for note in _notes(target, found):
        console.print(note, highlight=False)


def _asked(what: str) -> tuple[Target, list[Affected]]:
    from de_assets.catalogue import load_locations
    from de_assets.cli.run import dagster_instance
    from de_resources.lineage.impact import impact as depending
    from de_resources.lineage.impact import target_of
    from de_resources.lineage.recorded import Lineages

    with dagster_instance(Settings.from_environment()) as instance:
        lineages = Lineages.of(instance, load_locations())
    target = target_of(what, lineages)
    return target, depending(target, lineages)


def _table(found: Sequence[Affected]) -> Table:
    table = Table("dataset", "columns made of it", "rows", "breaks", "owner", "known by")
    for each in found:
        columns = ", ".join(each.columns) or "-"
        marks = ("yes" if each.rows else "-", "yes" if each.breaks else "-")
        table.add_row(each.asset, columns, *marks, ", ".join(each.owners) or "nobody", each.known)
    return table


def _notes(target: Target, found: Sequence[Affected]) -> Iterator[str]:
    if target.removed:
        yield f"{target} is in no schema any more: what is listed had read it when it was last materialised."
    breaking = [each for each in found if each.breaks]
    owners = sorted({owner for each in breaking for owner in each.owners})
    if breaking:
        asked = f" Ask {', '.join(owners)}." if owners else ""
        yield f"Without {target}, {len(breaking)} would break: {', '.join(each.asset for each in breaking)}.{asked}"
    unknown = [each.asset for each in found if each.known != "recorded"]
    if unknown:
        yield (
            f"No complete lineage is recorded for {', '.join(unknown)}: the asset graph says that they may depend on it. "
            "Materialise them to know."
        )


def _document(target: Target, found: Sequence[Affected]) -> dict[str, object]:
    return {
        "dataset": target.asset,
        "column": target.column,
        "removed": target.removed,
        "affected": [asdict(each) for each in found],
        "breaks": [each.asset for each in found if each.breaks],
        "owners": sorted({owner for each in found if each.breaks for owner in each.owners}),
    }
