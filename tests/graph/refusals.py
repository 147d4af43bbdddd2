"""What the Delta writers and the IO manager refuse, each as a run that ends with it.

One list for both kinds of session: `test_refusals.py` goes through it in a classic one, `tests/services` over Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import uuid4

import dagster as dg
import pandas as pd
from io_manager_support import CHANGES, ORDER, ORDERS, Shop, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from stored_forms import D1, moved, seed

from de_resources.delta.maintenance.restore import READS_POSITIONS, restore
from de_resources.delta.table import CommitInfo, Table
from de_resources.sql.identifiers import identifier

CANARY = "canary.person@example.org"
KEYS = dg.StaticPartitionsDefinition(["a", "b"])
DAYS = dg.DailyPartitionsDefinition(start_date="2024-01-01", end_date="2024-01-04")
CHANGE = "id long, seq long, email string, gone boolean"
KEPT = "id long, k string"


@dataclass(frozen=True)
class Refusal:
    """A run that has to end with the error `expected`; `version` is what the table's version is before and after it."""

    name: str
    expected: str
    provoke: Callable[[Shop], object]
    rows: int | None = 1
    alone: bool = True
    """Whether the error says it all, and none of the engine's comes along as its cause."""


def _kept(shop: Shop, name: str = "rows", *, local: bool = False, **metadata: Any) -> dg.AssetsDefinition:
    """An asset of the partition `a` with rows of `b` as well."""

    def make(_: dg.AssetExecutionContext) -> DataFrame:
        if local:
            return shop.frame([(1, "b")], KEPT)
        return shop.spark.range(0, 2, 1, 2).withColumn("k", F.when(F.col("id") < 1, "a").otherwise("b"))

    return asset(name, make, partitions=KEYS, partition_expr="k", **metadata)


def _outside(**options: Any) -> Callable[[Shop], object]:
    def provoke(shop: Shop) -> object:
        shop.seed("rows", [(0, "a")], KEPT, "k" if options.get("partitioned_by", True) else None)
        return shop.run(_kept(shop, **options), key="a")

    return provoke


def meanwhile(
    change: Callable[[str], None], retries: int | dg.RetryPolicy = 0
) -> Callable[[Shop], dg.ExecuteInProcessResult]:
    """A foreign writer commits while the engine computes the rows of a run, in its first attempt."""

    def provoke(shop: Shop) -> dg.ExecuteInProcessResult:
        uri, calls = shop.uri("rows"), iter((True, False))

        def interfere(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for batch in batches:
                if len(batch):
                    change(uri)
                yield batch

        def make(_: dg.AssetExecutionContext) -> DataFrame:
            rows = shop.spark.range(0, 1, 1, 1).withColumn("k", F.lit("a"))
            return rows.mapInPandas(interfere, KEPT) if next(calls) else rows

        shop.seed("rows", [(0, "a")], KEPT, "k")
        return shop.run(asset("rows", make, partitions=KEYS, partition_expr="k", retries=retries), key="a")

    return provoke


def appending() -> Callable[[str], None]:
    def append(uri: str) -> None:
        import pyarrow as arrow
        from deltalake import write_deltalake

        write_deltalake(uri, arrow.table({"id": arrow.array([77], arrow.int64()), "k": ["a"]}), mode="append")

    return append


def _deleting() -> Callable[[str], None]:
    def delete(uri: str) -> None:
        from deltalake import DeltaTable

        DeltaTable(uri).delete("k = 'a'")

    return delete


def _altering() -> Callable[[str], None]:
    def alter(uri: str) -> None:
        from deltalake import DeltaTable

        DeltaTable(uri).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 9 days"})

    return alter


def _merged(there: list[tuple[Any, ...]], batch: list[tuple[Any, ...]], **options: Any) -> Callable[[Shop], object]:
    """A batch that is merged into what is there."""

    def provoke(shop: Shop) -> object:
        shop.seed("rows", there, CHANGE, None)
        return shop.run(asset("rows", lambda _: shop.frame(batch, CHANGE), mode="merge", contract=CHANGES, **options))

    return provoke


def _two_days(shop: Shop) -> object:
    def make(context: dg.AssetExecutionContext) -> DataFrame:
        return shop.frame([(1, date.fromisoformat(context.partition_key), 1.0, None)], ORDER)

    shop.seed("rows", [(1, date(2024, 1, 1), 1.0, None)], ORDER)
    kept = asset("rows", make, partitions=DAYS, partition_expr="day", mode="merge", contract=ORDERS)
    return shop.run(kept, key="2024-01-02")


def _twice(second: Callable[[Shop], DataFrame], **metadata: Any) -> Callable[[Shop], object]:
    def provoke(shop: Shop) -> object:
        shop.seed("rows", [(1,)], "id long", None)
        return shop.run(asset("rows", lambda _: second(shop), **metadata))

    return provoke


def _once(make: Callable[[Shop], DataFrame], key: str | None = None, **options: Any) -> Callable[[Shop], object]:
    return lambda shop: shop.run(asset("rows", lambda _: make(shop), **options), key=key)


def _field_with_a_space(shop: Shop) -> DataFrame:
    return shop.frame([(1, (2,))], "id long, s struct<`event time`: long>")


def _taken(shop: Shop) -> object:
    folder = shop.root / "silver" / "rows"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    return shop.run(asset("rows", lambda _: shop.frame([(1,)], "id long")))


def _missing(shop: Shop) -> object:
    @dg.asset(key=["silver", "reader"], ins={"rows": dg.AssetIn(["silver", "rows"])})
    def reader(rows: DataFrame) -> DataFrame:
        return rows

    source = asset("rows", lambda _: shop.frame([(1,)], "id long"))
    return shop.run(source, reader, select=[reader])


def _restored(shop: Shop) -> object:
    shop.seed("rows", [(1,)], "id long", None)
    stamp = CommitInfo("silver.rows", "test", "all", "run", "run", uuid4().hex)
    return restore(shop.spark, Table("silver.rows", shop.uri("rows")), 99, stamp)


def _fed_since(shop: Shop) -> object:
    """Back to before rows that came from positions of a stream, which stay where they are."""
    import pyarrow as arrow
    from deltalake import CommitProperties, write_deltalake

    table = Table("silver.rows", shop.uri("rows"))
    for run in "ab":
        text = CommitInfo("silver.rows", "test", "0:0-1", run, run, run, facts=READS_POSITIONS).text()
        told = CommitProperties(custom_metadata={"userMetadata": text})
        write_deltalake(table.uri, arrow.table({"id": [1]}), mode="append", commit_properties=told)
    return restore(shop.spark, table, 0, CommitInfo("silver.rows", "test", "all", "run", "run", uuid4().hex))


def _no_room(shop: Shop) -> object:
    """The rows of a run meet a disk that is full, as whoever writes them says it."""

    def full(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            if len(batch):
                raise OSError(28, "No space left on device")
            yield batch

    shop.seed("rows", [(1,)], "id long", None)
    return shop.run(asset("rows", lambda _: shop.spark.range(0, 1, 1, 1).mapInPandas(full, "id long")))


def _stored_by(name: str, key: str, **options: Any) -> Callable[[Shop], object]:
    """A run of one partition, of a table that is stored by the column `name`."""

    def provoke(shop: Shop) -> object:
        column = identifier(name)
        rows = asset(
            "rows",
            lambda _: shop.frame([(1, key)], f"id long, {column} string"),
            partitions=dg.StaticPartitionsDefinition([key]),
            partition_expr=name,
            **options,
        )
        return shop.run(rows, key=key)

    return provoke


def _moved(shop: Shop) -> object:
    seed(shop, [(1, D1, 5.0, "ann@x.org")], name="rows")
    return shop.run(moved(shop, name="rows"), key=D1)


def _undone(shop: Shop) -> object:
    """Somebody deletes a row, and a partition before that is run again."""

    def make(context: dg.AssetExecutionContext) -> DataFrame:
        return shop.frame([(int(context.partition_key[-1]), 1, None, False)], CHANGE)

    kept = asset("rows", make, partitions=DAYS, mode="merge", stateful=True, contract=CHANGES)
    for key in ("2024-01-01", "2024-01-02"):
        shop.run(kept, key=key)
    shop.spark.sql(f"DELETE FROM delta.`{shop.uri('rows')}` WHERE id = 1").collect()
    return shop.run(kept, key="2024-01-02")


def _replayed(shop: Shop) -> object:
    def make(context: dg.AssetExecutionContext) -> DataFrame:
        return shop.frame([(int(context.partition_key[-1]), 1, None, False)], CHANGE)

    kept = asset("rows", make, partitions=DAYS, mode="merge", stateful=True, contract=CHANGES)
    for key in ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-01"):
        shop.run(kept, key=key)
    return shop.run(kept, key="2024-01-03")


def _broken(**metadata: Any) -> Callable[[Shop], object]:
    """A good order, and then one that breaks two rules of its contract."""

    def provoke(shop: Shop) -> object:
        for amount in (1.0, -1.0):
            row = (1 if amount > 0 else None, None, amount, CANARY)
            frame = shop.frame([row], ORDER)
            shop.run(asset("rows", lambda _, frame=frame: frame, contract=ORDERS, constraints=True, **metadata))  # type: ignore[misc]
        return None

    return provoke


REFUSALS = (
    Refusal("rows outside, a table without a layout", "RowsOutsideSlice", _outside(partitioned_by=[])),
    Refusal("rows outside, a table by partition", "RowsOutsideSlice", _outside()),
    Refusal("rows outside, a small local frame", "RowsOutsideSlice", _outside(local=True)),
    Refusal("rows outside, appended", "RowsOutsideSlice", _outside(mode="append", partitioned_by=[])),
    Refusal("rows outside, merged", "RowsOutsideSlice", _outside(mode="merge", merge_keys=["id"])),
    Refusal("rows outside, merged, local", "RowsOutsideSlice", _outside(mode="merge", merge_keys=["id"], local=True)),
    Refusal("somebody appends meanwhile", "ConcurrentWrite", meanwhile(appending()), rows=2),
    Refusal("somebody deletes meanwhile", "ConcurrentWrite", meanwhile(_deleting()), rows=0),
    Refusal("somebody changes a setting meanwhile", "ConcurrentWrite", meanwhile(_altering())),
    Refusal("a broken rule", "ContractBroken", _broken()),
    Refusal("a broken rule, appended", "ContractBroken", _broken(mode="append")),
    Refusal("another type", "SchemaMismatch", _twice(lambda shop: shop.frame([("x",)], "id string"))),
    Refusal("a table that exists", "PermanentError", _twice(lambda s: s.frame([(2,)], "id long"), mode="error")),
    Refusal("a null key", "UnmergeableRows", _merged([(1, 1, None, False)], [(None, 1, None, False)])),
    Refusal("a tie", "UnmergeableRows", _merged([(1, 1, None, False)], [(2, 1, "x", False), (2, 1, "y", False)])),
    Refusal(
        "a contradiction",
        "UnmergeableRows",
        _merged([(1, 1, "x", False)], [(1, 1, "y", False)], merge_order="seq"),
    ),
    Refusal("a key of another partition", "KeyElsewhere", _two_days),
    Refusal(
        "a map",
        "IncomparableColumn",
        _once(
            lambda s: s.spark.range(1).withColumn("m", F.create_map(F.lit("k"), F.lit("v"))),
            mode="merge",
            merge_keys=["id"],
        ),
        rows=None,
    ),
    Refusal("a field whose name needs the mapping", "UnstorableName", _once(_field_with_a_space), rows=None),
    Refusal(
        "a column twice",
        "UnstorableFrame",
        _once(lambda s: s.spark.range(1).join(s.spark.range(1).withColumnRenamed("id", "ID"))),
        rows=None,
    ),
    Refusal(
        "a column of a type that no table has",
        "UnstorableFrame",
        _twice(lambda s: s.frame([(1,)], "id long").withColumn("v", F.expr("INTERVAL '1' DAY")), schema_mode="merge"),
    ),
    Refusal("an input that was never written", "TableMissing", _missing, rows=None),
    Refusal("a run without a partition", "NoPartitionNamed", lambda shop: shop.run(_kept(shop)), rows=None),
    Refusal("a folder that is taken", "LocationTaken", _taken, rows=None),
    Refusal("a version that is not there", "VersionUnreadable", _restored),
    Refusal("a partition before those that it builds on", "ReplayFirst", _replayed),
    Refusal("a partition whose rerun undoes what others changed", "WouldUndo", _undone),
    Refusal("back behind the position of a stream", "WouldLoseRecords", _fed_since, rows=2),
    Refusal("a disk without room", "DiskFull", _no_room, alone=False),
    Refusal(
        "a merge by a column with a dot",
        "UnmergeableLayout",
        _stored_by("a.b", "x", mode="merge", merge_keys=["id"]),
        rows=None,
    ),
    Refusal(
        "a key that is stored as null",
        "KeyStoredAsNull",
        _stored_by("k", "__HIVE_DEFAULT_PARTITION__"),
        rows=None,
    ),
    Refusal("a writer that moves rows", "StoredElsewhere", _moved),
)


def met(shop: Shop, refusal: Refusal) -> tuple[list[str], int | None]:
    """The error that ended the run with all that it says caused it, and the table's rows afterwards."""
    names: list[str] = []
    try:
        refusal.provoke(shop)
    except Exception as error:  # noqa: BLE001 - whatever it is, its name is what is asked for
        cause: BaseException | None = error
        while cause is not None:
            names.append(type(cause).__name__)
            cause = cause.__cause__
    if not refusal.alone:
        del names[1:]
    left = len(shop.rows("rows")) if (shop.root / "silver" / "rows" / "_delta_log").exists() else None
    return names, left
