"""What a reader in another code location needs of a table: declared by the reader, and held against what is produced.

Pattern: Isolated Sequencer. The two locations share no import, so that nothing breaks at once when the producer renames a
table: the reader would wait for good. So a test asks here, over both locations, and the answer names the reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

import dagster as dg

from de_resources.compat.graph import AssetNode

NEEDS = "needs/columns"
"""Metadata key of an external table: the columns that its readers here need, with their types."""
_SCHEMA = "dagster/column_schema"


def needs(columns: Mapping[str, str]) -> dict[str, dg.MetadataValue]:
    """The metadata that declares it; types as the producer's column schema names them."""
    return {NEEDS: dg.MetadataValue.json(dict(columns))}


def broken_needs(locations: Mapping[str, dg.Definitions]) -> list[str]:
    """One sentence for each need that no location meets, with the assets that read the table, by location name.

    A table whose reader declares nothing is not judged: it may be a source of the outside world.
    """
    produced = {key: node for _, node, key in _nodes(locations) if node.is_materializable}
    return [
        sentence
        for location, node, key in _nodes(locations)
        if not node.is_materializable and NEEDS in node.metadata
        for sentence in _unmet(_readers(locations[location], location, key), key, node.metadata[NEEDS].value, produced)
    ]


def _unmet(
    readers: str, key: dg.AssetKey, needed: Mapping[str, str], produced: Mapping[dg.AssetKey, AssetNode]
) -> Iterator[str]:
    """What is wrong with one table, as its readers need it."""
    table = key.to_user_string()
    if key not in produced:
        near = get_close_matches(table, [each.to_user_string() for each in produced], n=1)
        yield f"{readers} needs `{table}`, which no location produces{f': is it `{near[0]}` now?' if near else '.'}"
        return
    columns = _columns(produced[key].metadata)
    for name, kind in needed.items():
        if name not in columns:
            yield f"{readers} needs the column `{name}` of `{table}`, which has {', '.join(columns)}."
        elif columns[name] != kind:
            yield f"{readers} needs `{table}.{name}` as {kind}, and it is {columns[name]}."


def _columns(metadata: Mapping[str, object]) -> dict[str, str]:
    schema = metadata.get(_SCHEMA)
    columns: Sequence[dg.TableColumn] = getattr(getattr(schema, "value", schema), "columns", ())
    return {column.name: column.type for column in columns}


def _readers(defs: dg.Definitions, location: str, key: dg.AssetKey) -> str:
    below = sorted(each.to_user_string() for each in defs.resolve_asset_graph().get(key).child_keys)
    return f"{' and '.join(f'`{each}`' for each in below) or 'nobody'} of the location `{location}`"


def _nodes(locations: Mapping[str, dg.Definitions]) -> Iterable[tuple[str, AssetNode, dg.AssetKey]]:
    for location, defs in locations.items():
        graph = defs.resolve_asset_graph()
        for key in sorted(graph.get_all_asset_keys()):
            yield location, graph.get(key), key
