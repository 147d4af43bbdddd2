"""The idempotency matrix: which assets there are, how runs of them are disturbed, and which of these cells every suite asks.

What is partitioned is found in the graph: a new asset is in the matrix without a word here. Assets are of one kind when the
same code writes them: the death of a writer, or two runs at once, asks that code and not the asset.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

import dagster as dg

from de_assets.definitions import defs

OF_EVERY_STEP = ("rerun", "ranges")
"""What asks how an asset is computed: all partitions once more, in one run or, where that may not be, in runs of their own."""
OF_EVERY_STORE = ("backwards", "together")
"""What asks where it is written: the first partition after the last one, and two runs at once."""
OF_EVERY_WRITER = ("kill",)
"""What asks how it is written: deaths around each of its commits."""
DISTURBANCES = (*OF_EVERY_STEP, *OF_EVERY_STORE, *OF_EVERY_WRITER)
Kind = tuple[Any, ...]
"""What tells one writer, or one store, from another."""


class Cell(NamedTuple):
    """A disturbance of what one run writes; a step has the name of the first of its assets."""

    disturbance: str
    step: str


@cache
def steps() -> dict[str, list[str]]:
    """Every partitioned step by its name, with its assets; upstream first."""
    graph = defs.resolve_asset_graph()
    found: dict[str, list[str]] = {}
    for key in graph.toposorted_asset_keys:
        if graph.get(key).is_partitioned and graph.get(key).is_materializable:
            assets = sorted(each.to_user_string() for each in graph.get(key).execution_set_asset_keys)
            found[assets[0]] = assets
    return found


def store(step: str) -> Kind:
    """Where the step writes: by which IO manager, into which kind of store, in which mode."""
    asset = defs.resolve_asset_graph().get(dg.AssetKey.from_user_string(step))
    manager = asset.assets_def.get_io_manager_key_for_asset_key(asset.key)
    return (
        manager,
        frozenset({"postgres", "csv"} & asset.kinds),
        asset.metadata.get("mode"),
        bool(asset.metadata.get("stateful")),
    )


def writer(step: str) -> Kind:
    """How it writes there: by which writer around the store's own, and whether its commits are several."""
    asset = defs.resolve_asset_graph().get(dg.AssetKey.from_user_string(step))
    return *store(step), asset.metadata.get("writer"), len(steps()[step]) > 1


def takes_ranges(step: str) -> bool:
    """Whether one run may write all partitions; where it may not, a range is a rerun of each of them."""
    policy = defs.resolve_asset_graph().get(dg.AssetKey.from_user_string(step)).backfill_policy
    return policy is not None and policy.max_partitions_per_run is None


def asked_always() -> list[Cell]:
    """Every step is computed again; the first step of each store and of each writer is disturbed in every way."""
    return list(_asked_always())


def _asked_always() -> Iterator[Cell]:
    first = {kind: {kind(step): step for step in reversed(steps())}.values() for kind in (store, writer)}
    for cell in _cells():
        if cell.disturbance in OF_EVERY_STEP:
            asked = cell.disturbance == ("ranges" if takes_ranges(cell.step) else "rerun")
        else:
            asked = cell.step in first[store if cell.disturbance in OF_EVERY_STORE else writer]
        if asked:
            yield cell


def _cells() -> Iterator[Cell]:
    for disturbance in DISTURBANCES:
        for step in steps():
            if disturbance != "ranges" or takes_ranges(step):
                yield Cell(disturbance, step)


def left_out() -> list[Cell]:
    """The cells that only long proofs ask."""
    asked = set(asked_always())
    return [cell for cell in _cells() if cell not in asked]


def chosen(seed: int, number: int) -> list[Cell]:
    """Some of the cells that are left out, and as many of all, in an order of the seed's: who was disturbed before differs."""
    random = Random(seed)  # noqa: S311 - cells, not secrets
    cells = random.sample(left_out(), number) + random.sample(asked_always(), number)
    random.shuffle(cells)
    return cells
