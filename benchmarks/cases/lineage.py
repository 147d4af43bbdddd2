"""What the lineage of columns costs in one run of fifty small assets.

A table of 20 columns and 49 assets that filter, aggregate and join it are written as Delta tables by one run in this process,
and recorded in an instance on the disk. The time inside of lineage - asking for the plans, reading them, making the metadata -
is taken within the run, so that the rest of the run is the same; the peer is that rest. For information, one run with lineage
replaced by nothing, before the engine is warm. Equal: the last tables of the runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import dagster as dg
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Sample, alternate, timed
from benchmarks.workbench import QUIET, Workbench
from de_resources.delta import metadata

BAR = 1.03
ASSETS, ROUNDS = 50, 5
COLUMNS = [f"c{number}" for number in range(20)]
WITH, WITHOUT, REST = "with lineage", "without", "the rest of the run"


def run(bench: Workbench) -> list[Figure]:
    """The price of knowing where every column comes from."""
    return _columns(bench, bench.pick(small=4, full=ASSETS))


def _columns(bench: Workbench, count: int) -> list[Figure]:
    assets = list(_assets(bench, count))
    inside: list[float] = []
    with ExitStack() as stack:
        instances = {name: stack.enter_context(bench.dagster(name.replace(" ", "_"))) for name in (WITH, WITHOUT)}
        resources = {name: bench.resources(name.replace(" ", "_")) for name in instances}

        def fill(name: str) -> None:
            done = dg.materialize(assets, instance=instances[name], resources=resources[name], run_config=QUIET)
            require_equal("the run", True, done.success)

        def with_lineage() -> None:
            with _timed(metadata.lineage_metadata) as spent:
                fill(WITH)
            inside.append(sum(spent))
            require_equal("the assets whose lineage was asked for", count, len(spent))

        def without() -> None:
            with patch.object(metadata, "lineage_metadata", lambda *_: {}):
                fill(WITHOUT)

        def verify() -> None:
            last = (f"{resources[name]['io_manager'].root_uri}/bench/a{count - 1}" for name in instances)
            require_equal("the last asset", *(_sorted_rows(uri) for uri in last))
            event = instances[WITH].get_latest_materialization_event(assets[-1].key)
            told = event.asset_materialization.metadata if event and event.asset_materialization else {}
            require_equal("lineage is recorded, and complete", (True, False), _known(told))

        rounds = bench.pick(small=1, full=ROUNDS)
        bare = timed(without)
        whole = alternate({WITH: with_lineage}, verify=verify, rounds=rounds)[WITH]
    rest = tuple(Sample(each.wall - spent) for each, spent in zip(whole, inside[-rounds:], strict=True))
    what = f"columns: one run of {count} small assets"
    note = f"{1000 * sum(inside[-rounds:]) / rounds / count:.1f} ms of lineage for each asset"
    return [
        Figure("lineage", what, Kind.RATIO, WITH, whole, REST, rest, BAR, note=note),
        Figure("lineage", f"{what}, the first one", Kind.SECONDS, WITHOUT, (bare,)),
    ]


@contextmanager
def _timed(work: Callable[..., Any]) -> Iterator[list[float]]:
    """How long each call of the lineage took, in seconds."""
    spent: list[float] = []

    def measured(*arguments: Any) -> Any:
        begun = time.perf_counter()
        try:
            return work(*arguments)
        finally:
            spent.append(time.perf_counter() - begun)

    with patch.object(metadata, "lineage_metadata", measured):
        yield spent


def _known(told: Mapping[str, Any]) -> tuple[bool, bool]:
    return "dagster/column_lineage" in told, "lineage/incomplete" in told


def _sorted_rows(uri: str) -> list[str]:
    return sorted(map(str, DeltaTable(uri).to_pyarrow_table().to_pylist()))


def _wide(bench: Workbench, count: int) -> DataFrame:
    numbers = bench.spark.range(count)
    return numbers.select("id", *((F.col("id") * n % 97).alias(name) for n, name in enumerate(COLUMNS, 1)))


def _assets(bench: Workbench, count: int) -> Iterator[dg.AssetsDefinition]:
    first = dg.AssetKey(["bench", "a0"])

    @dg.asset(key=first)
    def base() -> DataFrame:
        return _wide(bench, 1000)

    yield base
    for number in range(1, count):
        yield _derived(number, first)


def _derived(number: int, first: dg.AssetKey) -> dg.AssetsDefinition:
    @dg.asset(key=["bench", f"a{number}"], ins={"base": dg.AssetIn(first)})
    def derived(base: DataFrame) -> DataFrame:
        sums = base.where(f"c0 > {number}").groupBy("c1").agg(*(F.sum(name).alias(name) for name in COLUMNS[2:]))
        joined = sums.join(base.select("c1", F.upper(F.hex("c2")).alias("named")), "c1")
        return joined.dropDuplicates(["c1", "named"])

    return derived
