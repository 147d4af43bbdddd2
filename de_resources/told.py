"""Materialisations of which code tells itself, one partition each, as soon as it has written: a later failure takes none back.

Dagster tells of a step's asset when the step yields its output, for all partitions of the run and not before all of them are
written. Where several steps or threads write an asset, each tells of what it wrote, and the step that ends them yields
`already_told()`, so that checks go on and nothing is recorded twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from de_resources.compat.asset_events import ALREADY_TOLD


def tell(
    context: dg.AssetExecutionContext,
    asset: dg.AssetKey,
    partition: str | None,
    metadata: Mapping[str, Any],
    version: str | None = None,
) -> None:
    """Record a materialisation now. `version` tells this state of the partition from another one."""
    tags = {"dagster/data_version": version} if version else None
    context.log_event(dg.AssetMaterialization(asset, metadata=metadata, partition=partition, tags=tags))


def already_told(output: str = "result") -> dg.Output[None]:
    """The output (of `dg.Nothing`) of a step whose asset was told of: what waits for it goes on, and no event is recorded.

    Without it Dagster skips what waits for the asset in the same run, its checks too, and the run is green.
    """
    return dg.Output(None, output, metadata={ALREADY_TOLD: True})
