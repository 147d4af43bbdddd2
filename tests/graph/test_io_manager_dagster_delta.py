"""Beside `dagster_delta`: its known defects are not ours, and both read what the other one wrote.

The numbers are those of the list of defects measured in dagster-delta 0.5.9.
"""

import logging
from datetime import UTC, date, datetime

import dagster as dg
import pyarrow as pa
import pytest
from dagster_delta import DeltaLakePyarrowIOManager, LocalConfig, MergeConfig, MergeType
from deltalake import DeltaTable, write_deltalake
from io_manager_support import DAILY, ORDERS, Shop, asset
from pyspark.sql import DataFrame

from de_resources.delta.write.frames import RowsOutsideSlice, SchemaMismatch

FIRST, SECOND = date(2024, 1, 1), date(2024, 1, 2)


def merged(shop: Shop, rows: list[tuple[object, ...]]) -> dg.AssetsDefinition:
    return asset(
        "days",
        lambda _: shop.frame(rows, "id long, day date"),
        partitions=DAILY,
        partition_expr="day",
        mode="merge",
        merge_predicate="s.id = t.id",
    )


@pytest.mark.pattern("merger")
def test_defect_2_replace_and_delete_unmatched_leaves_other_partitions_and_inserts(shop: Shop) -> None:
    shop.config = {"merge_config": MergeConfig(merge_type=MergeType.replace_delete_unmatched)}
    shop.seed("days", [(1, FIRST), (2, SECOND), (3, SECOND)], "id long, day date")
    shop.run(merged(shop, [(3, SECOND), (4, SECOND)]), key="2024-01-02")
    assert shop.rows("days") == [(1, FIRST), (3, SECOND), (4, SECOND)]


@pytest.mark.pattern("merger")
def test_defect_3_a_late_row_of_another_day_is_refused_and_not_inserted_twice(shop: Shop) -> None:
    shop.seed("days", [(1, FIRST)], "id long, day date")
    error = shop.failure(merged(shop, [(1, FIRST), (2, SECOND)]), key="2024-01-02")
    assert isinstance(error, RowsOutsideSlice)
    assert error.values == ["2024-01-01"]
    assert shop.rows("days") == [(1, FIRST)]


def test_defect_4_and_5_a_selected_column_of_a_string_partitioned_table_has_its_values(shop: Shop) -> None:
    source = asset(
        "text",
        lambda c: shop.frame([(7, c.partition_key)], "id long, day string"),
        partitions=DAILY,
        partition_expr="day",
    )
    seen: list[tuple[object, ...]] = []

    @dg.asset(partitions_def=DAILY, ins={"text": dg.AssetIn(["silver", "text"], metadata={"columns": ["id"]})})
    def reader(text: DataFrame) -> None:
        seen.extend(map(tuple, text.collect()))

    shop.run(source, reader, key="2024-01-01")
    assert seen == [(7,)]


@pytest.mark.pattern("data_overwrite")
def test_defect_7_a_bigint_partition_column_and_a_table_of_nothing_else(shop: Shop) -> None:
    shops = dg.StaticPartitionsDefinition(["7", "9000000000"])
    only = asset(
        "only", lambda c: shop.frame([(int(c.partition_key),)], "shop long"), partitions=shops, partition_expr="shop"
    )
    for key in ("7", "9000000000", "7"):
        shop.run(only, key=key)
    assert shop.rows("only") == [(7,), (9000000000,)]


def test_defect_9_column_types_are_plain_and_the_layout_is_the_assets_choice(shop: Shop) -> None:
    flat = asset(
        "days",
        lambda _: shop.frame([(1, FIRST)], "id long, day date"),
        partitions=DAILY,
        partition_expr="day",
        partitioned_by=[],
    )
    result = shop.run(flat, key="2024-01-01")
    assert [c.type for c in shop.metadata(result, "days")["dagster/column_schema"].columns] == ["bigint", "date"]
    assert shop.log("days").partition_columns() == []
    assert shop.rows_per_key(result, "days") == {"2024-01-01": 1}


@pytest.mark.pattern("data_overwrite")
@pytest.mark.usefixtures("compiled_plans")
def test_defect_10_partitions_of_another_zone_do_not_shift(shop: Shop) -> None:
    local = dg.DailyPartitionsDefinition("2024-07-01", end_date="2024-07-05", timezone="America/New_York")
    rows = [(1, datetime(2024, 7, 2, 4, 0, tzinfo=UTC)), (2, datetime(2024, 7, 3, 3, 59, tzinfo=UTC))]
    seen = asset(
        "seen",
        lambda _: shop.frame(rows, "id long, at timestamp"),
        partitions=local,
        partition_expr="at",
        partitioned_by=[],
    )
    shop.run(seen, key="2024-07-02")
    ids: list[int] = []

    @dg.asset(partitions_def=local, ins={"seen": dg.AssetIn(["silver", "seen"])})
    def reader(seen: DataFrame) -> None:
        ids.extend(sorted(r.id for r in seen.collect()))

    shop.run(seen, reader, key="2024-07-02", select=[reader])
    assert ids == [1, 2]
    assert isinstance(shop.failure(seen, key="2024-07-01"), RowsOutsideSlice)


def test_each_reads_what_the_other_one_wrote(shop: Shop) -> None:
    """Ours to Arrow, and Arrow to ours, through one definition of the asset and its partitions."""
    ours = asset(
        "ours",
        lambda _: shop.frame([(1, FIRST), (2, FIRST)], "id long, day date"),
        partitions=DAILY,
        partition_expr="day",
    )
    shop.run(ours, key="2024-01-01")
    assert DeltaTable(shop.uri("ours")).to_pyarrow_table().num_rows == 2
    theirs = DeltaLakePyarrowIOManager(root_uri=str(shop.root), storage_options=LocalConfig())

    @dg.asset(
        key=["silver", "arrow"],
        partitions_def=DAILY,
        metadata={"partition_expr": "day"},
        ins={"ours": dg.AssetIn(["silver", "ours"])},
        io_manager_key="arrow",
    )
    def arrow(ours: pa.Table) -> pa.Table:
        return ours

    @dg.asset(
        key=["silver", "back"],
        partitions_def=DAILY,
        metadata={"partition_expr": "day"},
        ins={"arrow": dg.AssetIn(["silver", "arrow"])},
    )
    def back(arrow: DataFrame) -> DataFrame:
        return arrow

    level = logging.getLogger().level
    try:
        result = dg.materialize(
            [ours, arrow],
            selection=[arrow],
            partition_key="2024-01-01",
            instance=shop.instance,
            resources={"arrow": theirs, "io_manager": theirs},
        )
        assert result.success
        result = dg.materialize(
            [ours, arrow, back],
            selection=[back],
            partition_key="2024-01-01",
            instance=shop.instance,
            resources={"arrow": shop.manager, "io_manager": shop.manager},
        )
    finally:
        logging.getLogger().setLevel(level)
    assert result.success
    assert shop.rows("back") == [(1, FIRST), (2, FIRST)]


@pytest.mark.pattern("data_overwrite")
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_cells_are_shared_whatever_the_order_of_their_dimensions(shop: Shop, first: str) -> None:
    """Dagster has the dimensions in the order of their names, and dagster-delta wants the table's columns in that order."""
    grid = dg.MultiPartitionsDefinition({"region": dg.StaticPartitionsDefinition(["PL", "DE"]), "day": DAILY})
    columns = {"region": "region", "day": "day"}
    ours = asset(
        "cells",
        lambda _: shop.frame([(1, "PL", FIRST)], "id long, region string, day date"),
        partitions=grid,
        partition_expr=columns,
    )

    @dg.asset(key=["silver", "cells"], partitions_def=grid, metadata={"partition_expr": columns})
    def theirs() -> pa.Table:
        days = pa.array([FIRST], pa.date32())
        return pa.table({"id": pa.array([2], pa.int64()), "region": pa.array(["DE"]), "day": days})

    arrow = DeltaLakePyarrowIOManager(root_uri=str(shop.root), storage_options=LocalConfig())
    writers = {"ours": (ours, shop.manager, "PL"), "theirs": (theirs, arrow, "DE")}
    level = logging.getLogger().level
    try:
        for name in sorted(writers, reverse=first == "theirs") * 2:
            definition, manager, region = writers[name]
            key = dg.MultiPartitionKey({"region": region, "day": "2024-01-01"})
            resources = {"io_manager": manager}
            dg.materialize([definition], partition_key=key, instance=shop.instance, resources=resources)
    finally:
        logging.getLogger().setLevel(level)
    assert shop.log("cells").partition_columns() == ["day", "region"]
    assert shop.rows("cells") == [(1, "PL", FIRST), (2, "DE", FIRST)]


@pytest.mark.pattern("data_overwrite")
def test_a_table_of_deltalake_is_continued(shop: Shop) -> None:
    table = pa.table({"id": pa.array([1], pa.int64()), "day": pa.array([FIRST], pa.date32())})
    (shop.root / "silver").mkdir(parents=True)
    write_deltalake(shop.uri("days"), table, partition_by=["day"])
    days = asset(
        "days", lambda _: shop.frame([(2, SECOND)], "id long, day date"), partitions=DAILY, partition_expr="day"
    )
    result = shop.run(days, key="2024-01-02")
    assert shop.rows("days") == [(1, FIRST), (2, SECOND)]
    assert shop.rows_per_key(result, "days") == {"2024-01-02": 1}
    assert "its mode is `error`" in str(
        shop.failure(asset("days", lambda _: shop.frame([(3, FIRST)], "id long, day date"), mode="error"))
    )


def test_differences_in_versions_and_names(shop: Shop) -> None:
    """As the page of the IO manager lists them."""
    shop.run(asset("users", lambda _: shop.frame([(1,)], "id long")))
    assert shop.version("users") == 0
    error = shop.failure(asset("users", lambda _: shop.frame([(1,)], "ID long")))
    assert isinstance(error, SchemaMismatch)
    assert (error.missing, error.unexpected) == (["id"], ["ID"])
    days = asset(
        "days",
        lambda _: shop.frame([(1, FIRST)], "id long, day date"),
        partitions=DAILY,
        partition_expr="to_date(day)",
    )
    assert "`to_date(day)` is not in the data" in str(shop.failure(days, key="2024-01-01"))


def test_the_contract_is_named_by_import_path(shop: Shop) -> None:
    definition = asset("orders", lambda _: shop.frame([], "id long"), contract=ORDERS)
    assert definition.specs_by_key[dg.AssetKey(["silver", "orders"])].metadata["contract"] == ORDERS
