"""What a materialisation tells about its columns, whatever its rows are stored in: Delta, PostgreSQL, Kafka or files.

The IO managers call it with the frame that they write. An asset that writes to its system itself does so with
`lineage_of_output`, and with the frame from which its rows come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from de_resources.lineage.column_view import to_dagster
from de_resources.lineage.inputs import alias_of
from de_resources.lineage.model import ColumnSource, Lineage, LineageKind
from de_resources.lineage.tracker import column_lineage
from de_resources.lineage.undeclared_writes import undeclared_writes
from de_resources.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMN_LINEAGE = "dagster/column_lineage"
LINEAGE_CONDITIONS = "lineage/conditions"
"""Per input the columns that decide which rows there are (joins, filters, groups): Dagster's own format lacks them."""
LINEAGE_COLUMNS = "lineage/columns"
LINEAGE_SAME = "lineage/same"
"""Columns that hold a source's value as it is, `{column: {dataset: its column}}`: by these values rows are traced."""
LINEAGE_INCOMPLETE = "lineage/incomplete"
LINEAGE_OPAQUE = "lineage/opaque"
"""Columns that come out of Python code, whose inputs are therefore all that went in."""
LINEAGE_NONE = "lineage/none"
"""Why a materialisation has no columns to tell about, in a sentence."""
UNDECLARED = "lineage/undeclared"
"""What code has read though the asset declares no dependency on it."""


def lineage_of_output(
    context: dg.AssetExecutionContext, frame: DataFrame, key: dg.AssetKey | None = None
) -> dict[str, Any]:
    """Metadata for an asset that writes its rows itself: where the columns of `frame` come from. Never raises."""
    graph = context.job_def.asset_layer.asset_graph
    root = Settings.from_environment().lake_root
    return lineage_metadata(context, frame, key or context.asset_key, graph, [root])


def lineage_metadata(
    context: dg.OutputContext | dg.AssetExecutionContext,
    frame: DataFrame,
    key: dg.AssetKey,
    graph: Any,
    roots: Sequence[str] = (),
) -> dict[str, Any]:
    """Metadata about the columns of `frame`, which becomes the asset `key` of `graph`; warns of inputs nobody declared.

    What lies below one of the `roots` is named by its dataset; the first of them is the lake, of whose tables it warns as well
    where the asset's code has written them.
    """
    known = {alias_of(each): each for each in graph.get_all_asset_keys()}
    declared = {alias_of(each) for each in _declared(graph, key)}
    lineage = column_lineage(frame, known)
    undeclared = undeclared_inputs(lineage, declared, roots)
    for each in undeclared:
        context.log.warning(
            "`%s` reads %s, which it does not declare. Name it in the asset's `deps` or `ins`: who looks for readers of it "
            "finds none otherwise, and runs do not wait for it.",
            alias_of(key),
            each,
        )
    return {
        **recorded(lineage, known),
        **({UNDECLARED: dg.MetadataValue.json(undeclared)} if undeclared else {}),
        **(undeclared_writes(context, key, graph, roots[0]) if roots else {}),
    }


def recorded(lineage: Lineage, keys: Mapping[str, dg.AssetKey]) -> dict[str, Any]:
    """A lineage as metadata; `keys` names the asset behind each alias."""
    entries: dict[str, Any] = {
        COLUMN_LINEAGE: to_dagster(lineage, keys),
        # The open-source UI has no view of column lineage: the same as a table.
        LINEAGE_COLUMNS: dg.MetadataValue.md(_table(lineage)),
    }
    same = {
        name: {
            keys[o.source].to_user_string(): o.column
            for o in origins
            if o.kind is LineageKind.DIRECT and o.source in keys
        }
        for name, origins in lineage.columns.items()
    }
    if any(same.values()):
        entries[LINEAGE_SAME] = dg.MetadataValue.json({name: found for name, found in same.items() if found})
    conditions: dict[str, list[str]] = {}
    for source, column in sorted({(d.source, d.column) for d in lineage.dependencies if d.source in keys}):
        conditions.setdefault(keys[source].to_user_string(), []).append(column)
    if conditions:
        entries[LINEAGE_CONDITIONS] = dg.MetadataValue.json(conditions)
    opaque = [name for name, origins in lineage.columns.items() if any(o.kind is LineageKind.OPAQUE for o in origins)]
    if opaque:
        entries[LINEAGE_OPAQUE] = dg.MetadataValue.json(opaque)
    if not lineage.complete:
        entries[LINEAGE_INCOMPLETE] = "; ".join(lineage.reasons)[:1000]
    return entries


def copied_columns(columns: Iterable[str], source: dg.AssetKey) -> dict[str, Any]:
    """Metadata for a copy that no engine has planned: every column is that of the source."""
    alias = alias_of(source)
    return recorded(Lineage({c: (ColumnSource(alias, c, LineageKind.DIRECT),) for c in columns}), {alias: source})


def read_columns(columns: Mapping[dg.AssetKey, Collection[str]], made: Collection[str] = ()) -> dict[str, Any]:
    """Metadata for what Python code has made of these columns: each of `made` may depend on all of them in any way.

    Without any, such as for a page, the columns are told as what decides about it.
    """
    keys = {alias_of(key): key for key in columns}
    read = [(alias_of(key), column) for key, own in columns.items() for column in own]
    origins = tuple(ColumnSource(alias, column, LineageKind.OPAQUE) for alias, column in read)
    entries = recorded(Lineage(dict.fromkeys(made, origins)), keys)
    if not made:
        entries[LINEAGE_CONDITIONS] = dg.MetadataValue.json(
            {key.to_user_string(): sorted(own) for key, own in columns.items()}
        )
    return entries


def undeclared_inputs(lineage: Lineage, declared: Collection[str], roots: Sequence[str] = ()) -> list[str]:
    """Names of what the frame reads and the asset does not declare: datasets in back-ticks, else places."""
    named = [f"`{source}`" for source in lineage.inputs if source not in declared]
    places = [_dataset(read.place, roots) for read in lineage.unnamed]
    return sorted({*named, *(place for place in places if place.strip("`") not in declared)})


def _declared(graph: Any, key: dg.AssetKey) -> set[dg.AssetKey]:
    """What the asset depends on, itself, and what is written with it."""
    node = graph.get(key)
    return {key, *node.parent_keys, *node.execution_set_asset_keys}


def _dataset(place: str, roots: Sequence[str]) -> str:
    for root in roots:
        below = place.removeprefix(root.removeprefix("file:").rstrip("/") + "/")
        if below != place:
            return f"`{'/'.join(below.split('/')[:2])}`"
    return place


def _table(lineage: Lineage) -> str:
    said = {
        column: ", ".join(f"{cell_text(o.source)}.{cell_text(o.column)} ({o.kind.label})" for o in origins)
        for column, origins in lineage.columns.items()
    }
    rows = [f"| {cell_text(column)} | {origins or '-'} |" for column, origins in said.items()]
    return "\n".join(["| column | comes from |", "|---|---|", *rows])


def cell_text(value: str) -> str:
    """Text that ends neither a cell nor a line of a table."""
    return "".join(c if c.isprintable() else " " for c in value).replace("|", "¦")
