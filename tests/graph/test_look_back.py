"""Deduplication with a look-back in a graph: the same rows hour by hour in any order and in one run over the range."""

from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_delta import LocalConfig
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from de_assets.partitions import LOOK_BACK_HOURS, with_look_back
from de_assets.ranges import range_tags
from de_assets.silver.visits import COPY, landed_within, numbered_visits
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("windowed_deduplicator")

HOURS = dg.HourlyPartitionsDefinition("2026-01-31-22:00", end_date="2026-02-01-02:00")
KEYS = HOURS.get_partition_keys()
LANDED = [  # hour, visit, line; the second hour repeats the first, the third and the fourth are repeated later
    (0, "again next hour", "a1"),
    (1, "again next hour", "a2"),
    (0, "two hours later", "b1"),
    (2, "two hours later", "b2"),
    (1, "twice in an hour", "c1"),
    (1, "twice in an hour", "c2"),
    (1, "every hour", "d1"),
    (2, "every hour", "d2"),
    (3, "every hour", "d3"),
    (3, "once", "e1"),
]
KEPT = {
    0: Counter(["a1", "a2", "b1", "b2", "c1", "d1", "d2", "d3", "e1"]),
    1: Counter(["a1", "b1", "b2", "c1", "d1", "e1"]),
    2: Counter(["a1", "b1", "c1", "d1", "e1"]),
}


def graph(engine: SparkEngine, lake: Path, look_back: int) -> dg.Definitions:
    @dg.asset(key=["bronze", "visits"], partitions_def=HOURS, metadata={"partition_expr": "landing_hour"})
    def landed(context: dg.AssetExecutionContext) -> DataFrame:
        starts = [HOURS.time_window_for_partition_key(key).start for key in KEYS]
        wanted = {HOURS.time_window_for_partition_key(key).start for key in context.partition_keys}
        rows = [(visit, line, starts[n], starts[n]) for n, visit, line in LANDED if starts[n] in wanted]
        schema = "visit_id STRING, raw STRING, event_time TIMESTAMP, landing_hour TIMESTAMP"
        return engine.spark_session.createDataFrame(rows, schema).coalesce(1)

    @dg.asset(
        key=["silver", "visits"],
        ins={"landed": dg.AssetIn(["bronze", "visits"], partition_mapping=with_look_back(look_back))},
        partitions_def=HOURS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "landing_hour"},
    )
    def visits(context: dg.AssetExecutionContext, landed: DataFrame) -> DataFrame:
        numbered = numbered_visits(landed, look_back).where(f"{COPY} = 1").drop(COPY)
        return landed_within(
            numbered, [HOURS.time_window_for_partition_key(key).start for key in context.partition_keys]
        )

    manager = SparkDeltaIOManager(root_uri=str(lake), storage_options=LocalConfig(), spark=engine)
    return dg.Definitions(assets=[landed, visits], resources={"io_manager": manager})


def run(defs: dg.Definitions, asset: str, first: str, last: str) -> None:
    job = defs.resolve_implicit_global_asset_job_def()
    job.execute_in_process(asset_selection=[dg.AssetKey(asset.split("/"))], tags=range_tags(first, last))


def kept(lake: Path) -> Counter[str]:
    rows: list[dict[str, Any]] = DeltaTable(f"{lake}/silver/visits").to_pyarrow_table().to_pylist()
    return Counter(row["raw"] for row in rows)


@pytest.mark.parametrize("look_back", [0, 1, 2])
def test_any_order_and_a_range_give_the_same_rows(engine: SparkEngine, lake: Path, look_back: int) -> None:
    defs = graph(engine, lake, look_back)
    run(defs, "bronze/visits", KEYS[0], KEYS[-1])
    for n in (2, 0, 3, 1) if look_back == 1 else ():
        run(defs, "silver/visits", KEYS[n], KEYS[n])
    if look_back == 1:
        assert kept(lake) == KEPT[look_back], "hour by hour"
    run(defs, "silver/visits", KEYS[0], KEYS[-1])
    assert kept(lake) == KEPT[look_back], "in one run"
    if look_back == 1:
        run(defs, "silver/visits", KEYS[2], KEYS[2])
        assert kept(lake) == KEPT[look_back], "and an hour again"


def test_the_graph_shows_what_an_hour_reads() -> None:
    """The simulator's copies come within their hour, so that the blog's own graph looks back nowhere."""
    assert (LOOK_BACK_HOURS, with_look_back(0)) == (0, None)
    mapping = with_look_back(2)
    assert mapping is not None
    chosen = HOURS.empty_subset().with_partition_keys([KEYS[1]])
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(chosen, HOURS, HOURS)
    assert set(found.partitions_subset.get_partition_keys()) == set(KEYS[:2])
