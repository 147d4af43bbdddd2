"""Columns of any name that Delta can store: through every way in which a frame is written, read and described."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark.sql.types as T
import pytest
from io_manager_support import DAILY, Shop, asset
from pyspark.sql import DataFrame

from de_resources.delta.log.changed_partitions import changed_partitions
from de_resources.delta.maintenance import maintain
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.frames import RowsOutsideSlice
from de_resources.delta.write.merge import UnmergeableLayout, UnmergeableRows
from de_resources.sql.identifiers import UnstorableName

MAPPED = {"delta.columnMapping.mode": "name"}
DAY = date(2024, 1, 1)

# key, order, partition, personal, and a struct whose field has the last name.
STORABLE = ("user-agent", "1", "größe`.`x", "'\"\\", "a#12")
ANY = ("id; DROP TABLE x", "{changes}", "event time", "a,b|c\n`d`", "x: INT, y(=)")


def schema(names: tuple[str, ...]) -> T.StructType:
    key, order, day, mail, field = names
    inner = T.StructType([T.StructField(field, T.LongType())])
    types: Mapping[str, T.DataType] = {
        key: T.StringType(),
        order: T.LongType(),
        day: T.DateType(),
        mail: T.StringType(),
    }
    return T.StructType([*(T.StructField(n, t) for n, t in types.items()), T.StructField(f"s{field}", inner)])


def row(key: str | None, order: int, mail: str = "m", day: date = DAY) -> tuple[Any, ...]:
    return (key, order, day, mail, (order,))


def visits(shop: Shop, names: tuple[str, ...], rows: list[tuple[Any, ...]], **metadata: Any) -> dg.AssetsDefinition:
    def make(_: dg.AssetExecutionContext) -> DataFrame:
        return shop.spark.createDataFrame(rows, schema(names))

    mapped = {"table_configuration": MAPPED} if names == ANY else {}
    return asset("visits", make, partitions=DAILY, partition_expr=names[2], **mapped, **metadata)


@pytest.mark.parametrize("names", [STORABLE, ANY], ids=["storable", "mapped"])
class TestEveryWay:
    def test_a_slice_is_created_replaced_read_and_described(self, shop: Shop, names: tuple[str, ...]) -> None:
        both = [row("old", 1), row("other", 1, day=date(2024, 1, 2))]
        shop.run(visits(shop, names, both), keys=("2024-01-01", "2024-01-02"))

        @dg.asset(key=["silver", "copies"], ins={"visits": dg.AssetIn(["silver", "visits"])}, partitions_def=DAILY,
                  metadata={"partition_expr": names[2], "table_configuration": MAPPED})  # fmt: skip
        def copies(visits: DataFrame) -> DataFrame:
            return visits

        again = visits(shop, names, [row("new", 2)])
        result = shop.run(again, copies, key="2024-01-01")
        new = ("new", 2, DAY, "m", (2,))
        assert shop.rows_by_the_engine("visits") == [new, ("other", 1, date(2024, 1, 2), "m", (1,))]
        assert shop.rows_by_the_engine("copies") == [new]
        assert shop.rows_per_key(result, "visits") == {"2024-01-01": 1}
        told = shop.metadata(result, "copies")
        assert [c.name for c in told["dagster/column_schema"].columns] == schema(names).names
        assert "new" in told["preview"]
        assert {line.count("|") for line in told["preview"].splitlines()} == {6}
        assert {line.count("|") for line in told["lineage/columns"].splitlines()} == {3}
        stranger = shop.failure(visits(shop, names, [row("a", 1, day=date(2024, 1, 5))]), key="2024-01-01")
        assert isinstance(stranger, RowsOutsideSlice)
        assert stranger.columns == (names[2],)
        deps = told["dagster/column_lineage"].deps_by_column
        assert {c: [d.column_name for d in deps[c]] for c in deps} == {c: [c] for c in schema(names).names}

    def test_a_table_gains_columns(self, shop: Shop, names: tuple[str, ...]) -> None:
        narrow = asset(
            "visits",
            lambda _: shop.spark.createDataFrame([(DAY,)], _only(names)),
            partitions=DAILY,
            partition_expr=names[2],
            table_configuration=MAPPED if names == ANY else {},
        )
        shop.run(narrow, key="2024-01-01")
        shop.run(visits(shop, names, [row("a", 1)], schema_mode="merge"), key="2024-01-01")
        read = shop.spark.read.format("delta").load(shop.uri("visits"))
        assert read.columns == [names[2], *(n for n in schema(names).names if n != names[2])]

    def test_rows_are_merged_by_key_and_order(self, shop: Shop, names: tuple[str, ...]) -> None:
        how = {"mode": "merge", "merge_keys": [names[0]], "merge_order": names[1], "partitioned_by": []}
        shop.run(visits(shop, names, [row("a", 2), row("b", 1)], **how), key="2024-01-01")
        shop.run(visits(shop, names, [row("a", 1, "stale"), row("b", 2, "won"), row("c", 1)], **how), key="2024-01-01")
        assert [(r[0], r[1], r[3]) for r in shop.rows_by_the_engine("visits")] == [
            ("a", 2, "m"),
            ("b", 2, "won"),
            ("c", 1, "m"),
        ]
        elsewhere = shop.failure(visits(shop, names, [row("a", 3, day=date(2024, 1, 2))], **how), key="2024-01-02")
        assert "Nothing was written" in str(elsewhere)
        null = shop.failure(visits(shop, names, [row(None, 1)], **how), key="2024-01-01")
        assert isinstance(null, UnmergeableRows)

    def test_the_log_and_the_maintenance_know_the_partitions(self, shop: Shop, names: tuple[str, ...]) -> None:
        for mail in "ab":
            shop.run(visits(shop, names, [row("a", 1, mail)], mode="append"), key="2024-01-01")
        table = Table("silver.visits", shop.uri("visits"))
        report = maintain(shop.spark, table, CommitInfo("t", "w", "s", "r", "o", "a"), query_runs=1)
        assert report.live_after.files == 1
        assert set(changed_partitions(shop.log("visits")).changed) == {("2024-01-01",)}


def _only(names: tuple[str, ...]) -> T.StructType:
    """The partition's column alone."""
    return T.StructType([field for field in schema(names) if field.name == names[2]])


@pytest.mark.parametrize("name", ["a.b", "a`b"])
def test_a_partition_column_that_delta_cannot_merge_by_is_said(shop: Shop, name: str) -> None:
    day = name.replace("`", "``")
    made = asset("visits", lambda _: shop.frame([(1, DAY)], f"id long, `{day}` date"), mode="merge", merge_keys=["id"],
                 partitions=DAILY, partition_expr=name)  # fmt: skip
    error = shop.failure(made, key="2024-01-01")
    assert isinstance(error, UnmergeableLayout)
    assert error.columns == [name]
    assert not Path(shop.uri("visits")).exists()


def test_a_name_that_needs_the_mapping_is_refused_before_anything_is_made(shop: Shop) -> None:
    error = shop.failure(asset("visits", lambda _: shop.frame([(1,)], "`event time` long")))
    assert isinstance(error, UnstorableName)
    assert not Path(shop.uri("visits")).exists()
