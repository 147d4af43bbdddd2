"""Lineage in the form of Dagster's column view (`dagster/column_lineage`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

from de_resources.lineage.model import ColumnSource, Lineage


def to_dagster(lineage: Lineage, keys: Mapping[str, dg.AssetKey]) -> dg.TableColumnLineage:
    """Return the direct parents of every column; `keys` names the asset behind each input alias.

    Inputs without a key are left out, and a column without sources has an empty list. The kinds and the dataset-level
    dependencies have no place in Dagster's format; `Lineage` keeps them.
    """
    return dg.TableColumnLineage({column: _parents(found, keys) for column, found in lineage.columns.items()})


def _parents(found: Iterable[ColumnSource], keys: Mapping[str, dg.AssetKey]) -> list[dg.TableColumnDep]:
    return [dg.TableColumnDep(keys[origin.source], origin.column) for origin in found if origin.source in keys]
