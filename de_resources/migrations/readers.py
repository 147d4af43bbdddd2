"""Who still reads a column: told by the lineage that every materialisation records, values and conditions alike.

Lineage is what the engine's plan says and not what somebody has declared. An asset that is downstream and has recorded none
may read anything: it is named as well, until it is materialised, or a person clears it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import dagster as dg

from de_resources.delta.metadata import COLUMN_LINEAGE, LINEAGE_CONDITIONS, LINEAGE_INCOMPLETE

_LOOKED_AT = 20
"""How many materialisations are looked through for one with lineage: a restore, for one, records none."""


@dataclass(frozen=True, order=True)
class ColumnReader:
    """An asset that reads columns of a table; `columns` is empty where nobody can tell which."""

    asset: str
    columns: tuple[str, ...]

    @property
    def told(self) -> str:
        """For people."""
        how = f"reads {', '.join(self.columns)}" if self.columns else "has not recorded what it reads"
        return f"`{self.asset}` {how}"


def readers_of(
    instance: dg.DagsterInstance, table: dg.AssetKey, columns: Collection[str], downstream: Iterable[dg.AssetKey]
) -> list[ColumnReader]:
    """The assets that read one of the columns, or may do so, by the newest lineage of each; in order of their names.

    `downstream` are those that depend on the table; assets of other code locations are found where they have recorded that
    they read it.
    """
    declared = set(downstream)
    found = []
    for asset in declared | set(instance.get_asset_keys()):
        lineage = _newest(instance, asset)
        read = _columns(lineage, table) & set(columns)
        unknown = asset in declared and (not lineage or LINEAGE_INCOMPLETE in lineage)
        if asset != table and (read or unknown):
            found.append(ColumnReader(asset.to_user_string(), tuple(sorted(read))))
    return sorted(found)


def _newest(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Mapping[str, dg.MetadataValue]:
    records = instance.fetch_materializations(asset, limit=_LOOKED_AT).records
    events = (record.asset_materialization for record in records)
    return next((e.metadata for e in events if e is not None and COLUMN_LINEAGE in e.metadata), {})


def _columns(metadata: Mapping[str, dg.MetadataValue], table: dg.AssetKey) -> set[str]:
    lineage = metadata.get(COLUMN_LINEAGE)
    if not isinstance(lineage, dg.TableColumnLineageMetadataValue):
        return set()
    values = {d.column_name for deps in lineage.value.deps_by_column.values() for d in deps if d.asset_key == table}
    conditions = metadata.get(LINEAGE_CONDITIONS)
    told = conditions.value if isinstance(conditions, dg.JsonMetadataValue) else {}
    return values | set(told.get(table.to_user_string(), ()) if isinstance(told, Mapping) else ())
