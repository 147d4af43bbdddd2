"""Readers that go on reading while slices are published and taken back: a day is one of its audited versions, and whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import cycle
from pathlib import Path
from threading import Event

import dagster as dg
import pytest
from deltalake import DeltaTable
from io_manager_support import Shop, asset
from pyspark.sql import DataFrame

from de_resources.delta.publish import Measured
from de_resources.delta.publish.decisions import publications, roll_back
from de_resources.delta.slices import make_slice
from de_resources.delta.table import CommitInfo, Table
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("audit_write_audit_publish")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-03")
KEYS = ("2024-01-01", "2024-01-02")
AUDITS = [Measured(what="lowest", sql="min(edition)", low=0)]
ROWS = 40
"""In four files a day, of which a torn day would show some."""
DECISIONS, AT_MOST = 30, 600
"""How often somebody goes to and fro: the second is for readers that are so slow that they have seen but one version of all."""
Days = dict[str, Counter[int]]
"""By day, how many rows of each edition a reader has seen at once."""


@pytest.fixture
def shop(engine: SparkEngine, lake: Path) -> Shop:
    shop = Shop(engine, lake)
    for edition in (1, 2, -3):
        shop.run(editions(shop, edition), keys=KEYS)
    return shop


def editions(shop: Shop, edition: int) -> dg.AssetsDefinition:
    """Every row of both days is of this edition; a negative one is not to be seen."""

    def make(context: dg.AssetExecutionContext) -> DataFrame:
        rows = [(date.fromisoformat(key), n, edition) for key in context.partition_keys for n in range(ROWS)]
        return shop.frame(rows, "day date, id int, edition int").repartition(4)

    settings = {"writer": "de_resources.delta.publish:AuditedPublish", "audits": f"{__name__}:AUDITS"}
    return asset("editions", make, partitions=DAYS, partition_expr="day", pre_clustered=True, **settings)


def without_a_jvm(shop: Shop) -> Days:
    rows = DeltaTable(shop.uri("editions")).to_pyarrow_table(columns=["day", "edition"]).to_pylist()
    return {key: Counter(r["edition"] for r in rows if str(r["day"]) == key) for key in KEYS}


def by_sql(shop: Shop) -> Days:
    table = Table("silver.editions", shop.uri("editions"))
    rows = shop.spark.sql(f"SELECT day, edition FROM {table.sql}").collect()
    return {key: Counter(r["edition"] for r in rows if str(r["day"]) == key) for key in KEYS}


def test_readers_never_see_an_unaudited_row_or_a_torn_day(shop: Shop) -> None:
    table, over = Table("silver.editions", shop.uri("editions")), Event()
    # By edition: the first one is what the stage was created with.
    shown = {p.keys[KEYS[0]].staged + 1: p.version for p in publications(table.log())}
    assert sorted(shown) == [1, 2], "the third edition is held"

    seen: dict[Callable[[Shop], Days], list[Days]] = {without_a_jvm: [], by_sql: []}

    def read_on(read: Callable[[Shop], Days], reads: list[Days]) -> None:
        reads.append(read(shop))
        while not over.is_set():
            reads.append(read(shop))

    def has_seen_both(reads: list[Days]) -> bool:
        return len(reads) > 3 and len({str(days) for days in reads}) > 1

    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(read_on, *each) for each in seen.items()]
        try:
            for turn, (key, edition) in zip(range(AT_MOST), cycle((k, e) for e in (1, 2) for k in KEYS), strict=False):
                by = CommitInfo(table.name, "ann", key, f"run {turn}", f"run {turn}", f"run {turn}")
                roll_back(table, make_slice([key], DAYS, "day"), by, reason="to and fro", version=shown[edition])
                if turn == DECISIONS // 2:
                    shop.run(editions(shop, -4), keys=KEYS)  # a writer stages what nobody is to see
                if turn >= DECISIONS and all(map(has_seen_both, seen.values())):
                    break
        finally:
            over.set()
        for reader in readers:
            reader.result()
    whole = [Counter({edition: ROWS}) for edition in (1, 2)]
    for reads in seen.values():
        assert [days for days in reads if not all(day in whole for day in days.values())] == []
        assert has_seen_both(reads), "something was published while it read"
