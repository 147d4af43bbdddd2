"""Runs side by side, up to a limit.

Pattern: Concurrent Runner. An asset names a pool, and `dagster.yaml` says how many runs of it go at once. The limit is one of
runs, by a tag that each run gets when it is queued: it holds whoever launches them, and nothing is claimed that a killed
process could keep, as it can with the slots of Dagster's own pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from de_resources.compat.queueing import RemoteWorkspaceAssetGraph
from de_resources.errors import PermanentError

POOL = "concurrent_runner"
"""On an asset: the pool of its runs. On a run it stands before the name of the pool, for a run may be of several."""


class PoolWithoutLimit(PermanentError):
    """An asset names a pool of which nobody says how many runs it takes."""

    def __init__(self, pool: str, known: Iterable[str]) -> None:
        self.pool, self.known = pool, tuple(known)
        super().__init__(
            f"An asset of the run names the pool {pool!r}, which has no limit. Nothing was queued. Say in `dagster.yaml`, "
            f"under `run_coordinator.config.pools`, how many runs it takes; known: {', '.join(self.known) or 'none'}."
        )


def side_by_side(pool: str) -> dict[str, str]:
    """The tags of an asset whose runs go side by side, up to the limit of a pool."""
    return {POOL: pool}


def pools_of(
    assets: Iterable[dg.AssetKey], graph: RemoteWorkspaceAssetGraph, limits: Mapping[str, int]
) -> dict[str, str]:
    """The tags of a run of these assets: its pools. Raises `PoolWithoutLimit`."""
    pools = sorted({graph.get(key).tags[POOL] for key in assets if POOL in graph.get(key).tags})
    for pool in pools:
        if pool not in limits:
            raise PoolWithoutLimit(pool, limits)
    return {f"{POOL}/{pool}": "yes" for pool in pools}


def limits_of(pools: Mapping[str, int]) -> Sequence[dict[str, Any]]:
    """The pools as limits of Dagster's queue."""
    return [{"key": f"{POOL}/{pool}", "limit": limit} for pool, limit in pools.items()]
