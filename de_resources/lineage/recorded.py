"""What materialisations have told about their columns, read back from the instance, whichever code location made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from de_resources.lineage.record import (
    COLUMN_LINEAGE,
    LINEAGE_CONDITIONS,
    LINEAGE_INCOMPLETE,
    LINEAGE_NONE,
    LINEAGE_SAME,
)

_LOOKED_AT = 20
"""How many materialisations are looked through for one with lineage: a restore, for one, records none."""
_SCHEMA = "dagster/column_schema"

Field = tuple[str, str]
"""A column of a dataset: the dataset's key and the column's name."""


@dataclass(frozen=True)
class RecordedLineage:
    """Of one dataset: `columns` says for each what it was made of, `conditions` what decides which rows there are."""

    columns: Mapping[str, frozenset[Field]]
    conditions: frozenset[Field] = frozenset()
    complete: bool = True

    @property
    def read(self) -> frozenset[Field]:
        """Every column that it was made from, in whatever way."""
        return self.conditions.union(*self.columns.values())


@dataclass(frozen=True)
class RecordedDataset:
    """What is known of one dataset; `lineage` is None where none of its newest materialisations has recorded any."""

    lineage: RecordedLineage | None = None
    parents: frozenset[str] = frozenset()
    owners: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Its columns, by its newest schema; empty where nobody has told them."""
    no_columns: str = ""
    """Why it has none to tell about."""
    same: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By column the sources whose value it holds as it is: `{column: {dataset: its column}}`."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What its definition declares."""
    kinds: frozenset[str] = frozenset()
    stored_by: str = ""
    """The key of the IO manager of its definition; empty for one that is outside."""


@dataclass(frozen=True)
class Lineages:
    """Everything that is known, by the keys of datasets."""

    datasets: Mapping[str, RecordedDataset] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: dg.DagsterInstance, locations: Iterable[dg.Definitions]) -> Lineages:
        """Read the newest lineage of every asset that the instance or one of the code locations knows."""
        locations = list(locations)
        declared, managers = _declared(locations), _managers(locations)
        keys = set(declared) | set(instance.get_asset_keys())
        found = {key: _dataset(instance, key, declared.get(key), managers.get(key, "")) for key in sorted(keys)}
        return cls({key.to_user_string(): each for key, each in found.items()})

    def fields(self, asset: str) -> tuple[str, ...]:
        """The columns of a dataset: as its schema says, else, as of a source outside, those that somebody has read."""
        told = self.datasets[asset].fields if asset in self.datasets else ()
        return told or tuple(sorted(self.fields_read(asset)))

    def fields_read(self, asset: str) -> set[str]:
        """The columns of a dataset that others have recorded to read."""
        lineages = (each.lineage for each in self.datasets.values())
        return {name for lineage in lineages if lineage for source, name in lineage.read if source == asset}


def _declared(locations: Iterable[dg.Definitions]) -> dict[dg.AssetKey, dg.AssetSpec]:
    """The specs of all locations. One that only reads a dataset says less of it than the one that makes it."""
    found: dict[dg.AssetKey, dg.AssetSpec] = {}
    made: set[dg.AssetKey] = set()
    for location in locations:
        graph = location.resolve_asset_graph()
        for spec in location.resolve_all_asset_specs():
            if graph.get(spec.key).is_materializable:
                made.add(spec.key)
            elif spec.key in made:
                continue
            found[spec.key] = spec
    return found


def _managers(locations: Iterable[dg.Definitions]) -> dict[dg.AssetKey, str]:
    graphs = [location.resolve_asset_graph() for location in locations]
    made = [(key, graph.get(key)) for graph in graphs for key in graph.materializable_asset_keys]
    return {key: node.assets_def.get_io_manager_key_for_asset_key(key) for key, node in made}


def _dataset(
    instance: dg.DagsterInstance, key: dg.AssetKey, spec: dg.AssetSpec | None, manager: str
) -> RecordedDataset:
    records = instance.fetch_materializations(key, limit=_LOOKED_AT).records
    events = [record.asset_materialization.metadata for record in records if record.asset_materialization]
    newest = next((told for told in events if COLUMN_LINEAGE in told), None)
    schemas = [told[_SCHEMA] for told in events if _SCHEMA in told]
    schema = schemas[0] if schemas else (spec.metadata.get(_SCHEMA) if spec else None)
    none = next((str(told[LINEAGE_NONE].value) for told in events if LINEAGE_NONE in told), "")
    return RecordedDataset(
        lineage=None if newest is None else lineage_of(newest),
        parents=frozenset(dep.asset_key.to_user_string() for dep in spec.deps) if spec else frozenset(),
        owners=tuple(spec.owners) if spec else (),
        fields=_names(schema),
        no_columns=none,
        same=_json(newest or {}, LINEAGE_SAME),
        metadata=spec.metadata if spec else {},
        kinds=frozenset(spec.kinds) if spec else frozenset(),
        stored_by=manager,
    )


def lineage_of(metadata: Mapping[str, dg.MetadataValue[Any]]) -> RecordedLineage | None:
    """The lineage in the metadata of one materialisation; None where it has none."""
    told = metadata.get(COLUMN_LINEAGE)
    if not isinstance(told, dg.TableColumnLineageMetadataValue):
        return None
    columns = {
        name: frozenset((dep.asset_key.to_user_string(), dep.column_name) for dep in deps)
        for name, deps in told.value.deps_by_column.items()
    }
    fields = _json(metadata, LINEAGE_CONDITIONS).items()
    return RecordedLineage(
        columns=columns,
        conditions=frozenset((source, name) for source, names in fields for name in names),
        complete=LINEAGE_INCOMPLETE not in metadata,
    )


def _json(metadata: Mapping[str, dg.MetadataValue[Any]], name: str) -> Mapping[str, Any]:
    told = metadata.get(name)
    return told.value if isinstance(told, dg.JsonMetadataValue) and isinstance(told.value, Mapping) else {}


def _names(schema: Any) -> tuple[str, ...]:
    schema = getattr(schema, "schema", schema)
    return tuple(column.name for column in schema.columns) if isinstance(schema, dg.TableSchema) else ()
