"""The idempotency matrix: which assets there are, how runs of them are disturbed, and which of these cells every suite asks.

What is partitioned is found in the graph: a new asset is in the matrix without a word here. Assets are of one kind when the
same code writes them: the death of a writer, or two of them at once, asks that code and not the asset.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

import dagster as dg

from de_assets.definitions import defs

OF_EVERY_STEP = ("rerun", "backwards", "ranges")
"""What asks how an asset is computed."""
OF_EVERY_KIND = ("kill", "together")
"""What asks how it is written."""
DISTURBANCES = (*OF_EVERY_STEP, *OF_EVERY_KIND)
Kind = tuple[Any, ...]
"""What tells one writer from another."""


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


def kind(step: str) -> Kind:
    """Who writes the step: its IO manager and writer, into which store, in which mode, and whether its commits are several."""
    asset = defs.resolve_asset_graph().get(dg.AssetKey.from_user_string(step))
    manager = asset.assets_def.get_io_manager_key_for_asset_key(asset.key)
    facts = asset.metadata
    writer = manager, facts.get("writer")
    return *writer, "postgres" in asset.kinds, facts.get("mode"), bool(facts.get("stateful")), len(steps()[step]) > 1


def takes_ranges(step: str) -> bool:
    """Whether one run may write all partitions; where it may not, a range is a rerun of each of them."""
    policy = defs.resolve_asset_graph().get(dg.AssetKey.from_user_string(step)).backfill_policy
    return policy is not None and policy.max_partitions_per_run is None


def asked_always() -> list[Cell]:
    """Of each step the rerun, and of the first step of each kind everything."""
    return list(_asked_always())


def _asked_always() -> Iterator[Cell]:
    first_of_kind = {kind(step): step for step in reversed(steps())}.values()
    for disturbance in DISTURBANCES:
        for step in steps():
            if _is_cell(disturbance, step) and (disturbance in OF_EVERY_STEP or step in first_of_kind):
                yield Cell(disturbance, step)


def _is_cell(disturbance: str, step: str) -> bool:
    return disturbance != "ranges" or takes_ranges(step)


def left_out() -> list[Cell]:
    """The cells that only long proofs ask."""
    asked = set(asked_always())
    cells = (Cell(disturbance, step) for disturbance in DISTURBANCES for step in steps())
    return [cell for cell in cells if _is_cell(*cell) and cell not in asked]


def chosen(seed: int, number: int) -> list[Cell]:
    """Some of the cells that are left out, and as many of all, in an order of the seed's: who was disturbed before differs."""
    random = Random(seed)  # noqa: S311 - cells, not secrets
    cells = random.sample(left_out(), number) + random.sample(asked_always(), number)
    random.shuffle(cells)
    return cells
