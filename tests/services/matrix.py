"""The idempotency matrix: which assets there are, how runs of them are disturbed, and which of these cells every suite asks.

What is partitioned is found in the graph: a new asset is in the matrix without a word here. Assets are of one kind when the
same code writes them: the death of a writer, or two runs at once, asks that code and not the asset. Where a store or a
writer has tests of its own that ask the same, they are named here, and the cell is left to the long proofs; a kind that is
new has none yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

import dagster as dg

from de_assets.definitions import defs

OF_EVERY_STEP = ("rerun", "ranges")
"""What asks how an asset is computed: a partition once more in a run of its own, and all partitions in one run. The clean
lake is filled in the second way, so that every suite asks the first one: here, or where an asset's own tests do."""
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


_PLAIN = (
    "services/test_platform_killed.py; with an automatic retry, ui/test_worker_killed.py; at each point, "
    "faults/test_writer_faults.py"
)
_AT_ONCE = "two processes at one partition, faults/test_writer_faults.py; two hours, services/test_platform_together.py"
_HOURS = "an hour of a range again, alone, services/test_platform_killed.py"
_CUBES = "a day of a range again, and its week beside a plain count, graph/test_visits_cube_weekly.py"
ASKED_BY_OTHERS = {
    Cell("rerun", "bronze/legacy_visits"): "hours of a range again, services/test_incremental_loader.py",
    Cell("rerun", "bronze/visits"): _HOURS,
    Cell("rerun", "silver/visits"): _HOURS,
    Cell(
        "rerun", "gold/daily_report"
    ): "a day of a range again, the same row, and a day redone, graph/test_daily_report.py",
    Cell("rerun", "serving/page_counts"): "a day again, the same bytes, ui/test_webserver_runs.py",
    Cell("rerun", "staging/visits"): "an hour of a range again, and all of them, graph/test_staging.py",
    Cell("rerun", "serving/daily_traffic"): "a day of a range again, both tables, services/test_postgres_writer.py",
    Cell("rerun", "serving/visits_csv"): "a day of a range again, the same bytes, graph/test_parallel_split.py",
    Cell("rerun", "serving/visits_export"): "a day of a range again, graph/test_parallel_split.py",
    Cell("rerun", "gold/user_activity"): (
        "its last day is computed again by two runs at once; earlier days and their replay, graph/test_stateful_merger.py"
    ),
    Cell("rerun", "gold/visitor_sketches_daily"): _CUBES,
    Cell("rerun", "gold/visits_cube_daily"): _CUBES,
    Cell("rerun", "gold/visits_cube_weekly"): "a week again beside a plain count, graph/test_visits_cube_weekly.py",
    Cell("rerun", "serving/weekly_visits"): "a week again, value by value, services/test_weekly_visits.py",
    Cell("kill", "bronze/legacy_visits"): _PLAIN,
    Cell("kill", "bronze/visits"): "services/test_platform_killed.py, a death in each of two tables",
    Cell("kill", "staging/visits"): f"the lake's own writer, in another folder: {_PLAIN}",
    Cell("kill", "gold/users_snapshot"): "unit/proxy/test_version_store.py; graph/test_proxy.py",
    Cell("kill", "gold/user_activity"): (
        "a death between taking back and merging, tables/test_stateful_merge.py; of a merge, faults/test_writer_faults.py"
    ),
    Cell("kill", "gold/sessions"): "an observed write dies like any other, faults/test_writer_faults.py",
    Cell("kill", "serving/page_counts"): "unit/csv_files/test_csv_files.py",
    Cell("kill", "serving/partner_feed"): "services/test_postgres_writer.py",
    Cell(
        "kill", "serving/daily_traffic"
    ): "services/test_postgres_writer.py, between two tables and after their commit",
    Cell("kill", "serving/weekly_visits"): "services/test_weekly_tables.py",
    Cell("backwards", "bronze/legacy_visits"): "services/test_platform_killed.py, the last hour first",
    Cell("backwards", "staging/visits"): "the lake's own store, in another folder: services/test_platform_killed.py",
    Cell("backwards", "gold/users_snapshot"): "the later day first, unit/proxy/test_version_store.py",
    Cell("backwards", "serving/page_counts"): "the later day first, unit/csv_files/test_csv_files.py",
    Cell("backwards", "gold/user_activity"): (
        "days in any order and their replay, unit/delta/test_stateful_plan.py; on a table, graph/test_stateful_merger.py"
    ),
    Cell(
        "backwards", "serving/partner_feed"
    ): "the later day while the first one waits, services/test_postgres_writer.py",
    Cell("backwards", "serving/weekly_visits"): "services/test_weekly_tables.py",
    Cell("together", "bronze/legacy_visits"): _AT_ONCE,
    Cell("together", "staging/visits"): f"the lake's own writer, in another folder: {_AT_ONCE}",
    Cell("together", "gold/users_snapshot"): "switches that come at once, unit/proxy/test_version_store.py",
    Cell("together", "serving/page_counts"): "two runs of one day, unit/csv_files/test_csv_files.py",
    Cell("together", "serving/partner_feed"): "services/test_postgres_writer.py",
    Cell("together", "serving/weekly_visits"): "services/test_weekly_tables.py",
}
"""Cells of a step, or of the first one of a store or a writer, and the tests that ask the same of it in every suite."""


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


def of_each_kind() -> list[Cell]:
    """The disturbances of the first step of each store and of each writer."""
    first = {kind: {kind(step): step for step in reversed(steps())}.values() for kind in (store, writer)}
    kinds = {**dict.fromkeys(OF_EVERY_STORE, store), **dict.fromkeys(OF_EVERY_WRITER, writer)}
    return [cell for cell in _cells() if cell.disturbance in kinds and cell.step in first[kinds[cell.disturbance]]]


def by_default() -> list[Cell]:
    """Every step computed again, and of each store and each writer one disturbed: what every suite asks, here or elsewhere."""
    return [Cell("rerun", step) for step in steps()] + of_each_kind()


def asked_always() -> list[Cell]:
    """What of that no other test asks."""
    return [cell for cell in by_default() if cell not in ASKED_BY_OTHERS]


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
