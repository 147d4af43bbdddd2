"""An output whose materialisations the code has told of itself, which Dagster would tell of once more."""

from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION as ALREADY_TOLD

__all__ = ["ALREADY_TOLD"]
# Metadata of an output for which Dagster records no event of its asset. It marks observations that were logged by the function.
