"""What a check is about: an asset with one output, or one output of an asset with several."""

from __future__ import annotations

import dagster as dg

Subject = dg.AssetsDefinition | dg.AssetSpec
"""`assets_definition`, or `assets_definition.get_asset_spec(key)` for one of several outputs."""


def spec_of(asset: Subject) -> dg.AssetSpec:
    """The asset's own specification: key, partitions, metadata."""
    return asset if isinstance(asset, dg.AssetSpec) else asset.get_asset_spec()
