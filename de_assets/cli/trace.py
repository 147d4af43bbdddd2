"""`de trace`: from one row of a dataset to the rows, the landed lines and the records that it was made of, and the runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text

from de_assets.cli.terminal import console, explained
from de_resources.errors import PermanentError
from de_resources.settings import Settings

if TYPE_CHECKING:
    from rich.tree import Tree

    from de_assets.outside_rows import OutsideRows
    from de_resources.lake import Lake
    from de_resources.lineage.recorded import Lineages, RecordedDataset
    from de_resources.spark import SparkEngine
    from de_resources.tracing.makers import Maker
    from de_resources.tracing.trace import Key, Traced, TracedRow, TracedSource

SHOWN = 5
"""Rows of each dataset that people see; `--json` has more."""


class WhichRow(PermanentError):
    """A key that does not fit the dataset's."""

    def __init__(self, dataset: str, key: tuple[str, ...]) -> None:
        how = f"`de trace {dataset} VALUE`" if len(key) == 1 else ", ".join(f"{name}=…" for name in key)
        super().__init__(f"A row of `{dataset}` is named by {', '.join(key) or 'nothing: it has no key'}: {how}.")


def trace(
    dataset: Annotated[str, typer.Argument(help="The dataset, such as gold/sessions.")],
    key: Annotated[list[str], typer.Argument(help="The row's key: its value, or COLUMN=VALUE for each column of it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
    as_page: Annotated[
        bool, typer.Option("--page", help="Write it as a page for a browser, and print its path.")
    ] = False,
) -> None:
    """Show what one row was made of, back to the landed file and line or the topic's offset, and the run that made each.

    Personal values are masked, as the contracts say; on the page too.
    """
    if as_json and as_page:
        raise typer.BadParameter("`--json` and `--page` are two ways to show it. Choose one.")
    with explained():
        found, owners = _traced(dataset, key)
        settings = Settings.from_environment()
        landing = settings.landing
        if as_page:
            from de_assets.cli.trace_page import write_page

            typer.echo(write_page(found, owners, settings, datetime.now(UTC)))
        elif as_json:
            typer.echo(json.dumps(_document(found, landing), indent=2, default=str))
        else:
            # Wrapped and not cut: the run is what somebody came for.
            console.print(_tree(found, landing), soft_wrap=False)


def _traced(dataset: str, key: list[str]) -> tuple[Traced, dict[str, tuple[str, ...]]]:
    """What the row was made of, and who owns each dataset."""
    from de_assets.catalogue import load_locations
    from de_assets.cli.own_words import own_words
    from de_assets.cli.run import dagster_instance
    from de_assets.outside_rows import OutsideRows
    from de_resources.lineage.impact import target_of
    from de_resources.lineage.recorded import Lineages
    from de_resources.spark import SparkEngine, close_connections
    from de_resources.tracing.trace import trace as traced

    settings = Settings.from_environment()
    locations = load_locations()
    with dagster_instance(settings) as instance:
        lineages = Lineages.of(instance, locations)
        name = target_of(dataset, lineages).asset
        engine = SparkEngine()
        sources = sources_of(lineages, engine, OutsideRows.of_graph(instance, locations))
        wanted = _key(sources[name], key)
        with own_words(settings):
            try:
                found = traced(engine.spark_session, sources.__getitem__, name, wanted)
            finally:
                close_connections()
        return found, {each: told.owners for each, told in lineages.datasets.items()}


def sources_of(lineages: Lineages, engine: SparkEngine, outside: OutsideRows) -> dict[str, TracedSource]:
    """All datasets of the graph as the walk needs them."""
    from de_assets.resources import resources

    lake = cast("Lake", resources(engine=engine)["lake"])
    return {name: _source(name, told, lake, outside) for name, told in lineages.datasets.items()}


def _source(name: str, told: RecordedDataset, lake: Lake, outside: OutsideRows) -> TracedSource:
    import dagster as dg

    from de_resources.tracing.condition import ROW_LINEAGE
    from de_resources.tracing.trace import TracedSource

    read = (
        {dataset for sources in told.lineage.columns.values() for dataset, _ in sources}
        if told.lineage
        else told.parents
    )
    in_lake = told.stored_by == "io_manager" and "deltalake" in told.kinds
    return TracedSource(
        name=name,
        table=lake.table(dg.AssetKey.from_user_string(name), told.metadata) if in_lake else None,
        outside=None if in_lake else outside.of(name, told),
        # Also what only keeps the same rows, such as the records of a topic: then the asset says so.
        inputs=tuple(sorted({*read, *(told.metadata.get(ROW_LINEAGE) or {})})),
        same=told.same,
        metadata=told.metadata,
    )


def _key(source: TracedSource, said: list[str]) -> Key:
    """The key as it was said; a column of it that may be null, and of which nothing is said, is null."""
    columns = source.key
    if len(columns) == 1 and len(said) == 1:
        return {columns[0]: said[0].removeprefix(f"{columns[0]}=")}
    named = dict(part.partition("=")[::2] for part in said)
    missing = set(columns) - set(named)
    if not named.keys() <= set(columns) or not missing <= _nullable(source):
        raise WhichRow(source.name, columns)
    return {**named, **dict.fromkeys(missing)}


def _nullable(source: TracedSource) -> set[str]:
    contract = source.table.contract if source.table else None
    return {column.name for column in contract.columns if column.nullable} if contract else set()


def _tree(found: Traced, landing: Path) -> Tree:
    from rich.tree import Tree

    count = f", {found.total} rows" if found.total > 1 else ""
    tree = Tree(Text.assemble((found.dataset, "bold"), f"{count}, {found.how}"))
    for row in found.rows[:SHOWN]:
        tree.add(_line(row, landing))
    if found.total > SHOWN:
        tree.add(f"… and {found.total - SHOWN} more")
    for each in found.inputs:
        tree.add(_tree(each, landing))
    return tree


def _line(row: TracedRow, landing: Path) -> str:
    from de_assets.cli.trace_page import places
    from de_resources.tracing.page import short_values

    shown = ", ".join(f"{name}={value}" for name, value in short_values(row).items())
    place = "; ".join(places(row.values, landing))
    made = "; ".join(map(_made, row.makers[-3:]))
    return " │ ".join(part for part in (place, made or "nobody has recorded which run made it", shown) if part)


def _made(maker: Maker) -> str:
    from de_resources.tracing.makers import OUTSIDE

    version = "" if maker.version == OUTSIDE else f"version {maker.version} "
    return f"{version}by run {maker.run or 'nobody'}"


def _document(found: Traced, landing: Path) -> dict[str, Any]:
    from de_assets.cli.trace_page import places

    return {
        "dataset": found.dataset,
        "how": found.how,
        "total": found.total,
        "rows": [
            {
                "values": dict(row.shown),
                "places": list(places(row.values, landing)),
                "made_by": [
                    {"version": each.version, "run": each.run, "operation": each.operation} for each in row.makers
                ],
            }
            for row in found.rows
        ],
        "inputs": [_document(each, landing) for each in found.inputs],
    }
