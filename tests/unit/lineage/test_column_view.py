"""Lineage in the form of the asset's column view."""

from __future__ import annotations

import dagster as dg
import pytest

from de_resources.lineage import ColumnSource, Lineage, LineageKind
from de_resources.lineage.column_view import to_dagster

pytestmark = pytest.mark.pattern("fine_grained_tracker")


def test_sources_become_assets_and_inputs_without_an_asset_are_left_out():
    lineage = Lineage(
        {
            "total": (
                ColumnSource("bronze.visits", "seconds", LineageKind.AGGREGATED),
                ColumnSource("scratch", "weight", LineageKind.TRANSFORMED),
            ),
            "version": (),
        }
    )
    key = dg.AssetKey(["bronze", "visits"])
    assert to_dagster(lineage, {"bronze.visits": key}) == dg.TableColumnLineage(
        {"total": [dg.TableColumnDep(key, "seconds")], "version": []}
    )
