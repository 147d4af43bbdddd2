"""Online Observer: what every materialisation tells about its write, and that telling it costs no look at the data."""

import json
import logging
from datetime import date
from pathlib import Path

import dagster as dg
import pytest
from io_manager_support import CHANGES, DAILY, OBSERVER, ORDER, ORDERS, Shop, asset, counting
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.engine_jobs import counted_jobs
from de_resources.contract import Contract
from de_resources.delta import metadata
from de_resources.delta.log import TableLog
from de_resources.delta.metadata import stored_per_key
from de_resources.delta.slices import make_slice
from de_resources.delta.table import Table, Written
from de_resources.delta.write.crash_points import at

# Only what is counted on the way is of the Online Observer; versions, previews, stamps and lineage are not.
counted_on_the_way = pytest.mark.pattern("online_observer")

DAY = date(2024, 1, 1)


def orders(shop: Shop, rows: list[tuple[object, ...]]) -> dg.AssetsDefinition:
    return asset(
        "orders", lambda _: shop.frame(rows, ORDER).coalesce(1), partitions=DAILY, partition_expr="day", contract=ORDERS
    )


def there(shop: Shop) -> dg.AssetsDefinition:
    """The same asset with one row, whose table is there already, written without the engine."""
    rows: list[tuple[object, ...]] = [(1, DAY, 1.0, None)]
    shop.seed("orders", rows, ORDER)
    return orders(shop, rows)


@counted_on_the_way
def test_the_metadata_is_complete(shop: Shop) -> None:
    rows: list[tuple[object, ...]] = [
        (1, DAY, 5.0, "secret@example.org"),
        (None, DAY, -1.0, "a|b\n# forged"),
        (3, DAY, None, None),
        (4, DAY, 2000.0, None),
    ]
    result = shop.run(orders(shop, rows), key="2024-01-01")
    found = shop.metadata(result, "orders")
    log = shop.log("orders")
    assert found["delta/version"] == log.version
    assert found["delta/operation"] == "WRITE"
    assert found["delta/files_added"] == log.files().num_rows
    assert found["delta/bytes_added"] == sum(log.files().column("size_bytes").to_pylist())
    assert found["delta/files_removed"] == 0
    assert found["duration_seconds"] > 0
    assert found["engine"] == "local[2]"
    assert found["slice"] == "2024-01-01"
    assert found["dagster/table_name"] == "silver.orders"
    assert found["contract/rows"] == 4
    assert found["dagster/partition_row_count"] == 4
    assert found["contract/violations"] == {"id_present": 1, "amount_greater_than_or_equal_to": 1, "small": 2}

    schema = found["dagster/column_schema"]
    columns = {c.name: c for c in schema.columns}
    assert [c.name for c in schema.columns] == ["id", "day", "amount", "email"]
    assert columns["id"].type == "bigint"
    assert columns["id"].description == "Identity of the order"
    assert not columns["id"].constraints.nullable
    assert columns["id"].constraints.unique
    assert columns["amount"].constraints.other == ["≥ 0"]
    assert dict(columns["email"].tags) == {"personal": ""}

    preview = found["preview"]
    assert "secret@example.org" not in preview
    assert "•••" in preview
    assert "forged" not in preview
    assert len(preview.splitlines()) == 2 + 4


@counted_on_the_way
class TestRange:
    """A run over several partitions: numbers of a partition are the partition's own, and totals are named as such."""

    ROWS: list[tuple[object, ...]] = [(i, date(2024, 1, 2 if i < 8 else 3), 1.0, None) for i in range(11)]  # noqa: RUF012

    def told(self, shop: Shop) -> dict[str, dict[str, object]]:
        result = shop.run(orders(shop, self.ROWS), keys=("2024-01-02", "2024-01-04"))
        events = result.asset_materializations_for_node("silver__orders")
        return {str(e.partition): {k: v.value for k, v in e.metadata.items()} for e in events}

    def test_each_partition_tells_what_lies_in_it_and_totals_are_named_as_the_runs(self, shop: Shop) -> None:
        told = self.told(shop)
        folders = {key: list((shop.root / "silver" / "orders" / f"day={key}").glob("*.parquet")) for key in told}
        assert {key: found["dagster/partition_row_count"] for key, found in told.items()} == {
            "2024-01-02": 8,
            "2024-01-03": 3,
            "2024-01-04": 0,
        }
        assert {key: found.get("delta/files", 0) for key, found in told.items()} == {
            key: len(files) for key, files in folders.items()
        }
        assert {key: found.get("delta/bytes", 0) for key, found in told.items()} == {
            key: sum(file.stat().st_size for file in files) for key, files in folders.items()
        }
        for found in told.values():
            assert found["run/contract/rows"] == 11
            assert found["run/partitions"] == 3
            assert found["contract/violations"] == dict.fromkeys(found["run/contract/violations"], 0)  # type: ignore[call-overload]
            assert not {"contract/rows", "delta/files_added", "delta/bytes_added", "duration_seconds"} & found.keys()

    def test_a_violation_somewhere_in_the_range_is_of_no_partition(self) -> None:
        days = make_slice(["2024-01-02", "2024-01-03", "2024-01-04"], DAILY, "day")
        written = Written(1, None, 12, {"id_present": 1, "small": 0}, 0.0)
        found = metadata._figures(Table("silver.orders", "", Contract.load(ORDERS)), days, written)
        assert "contract/violations" not in found
        assert found["run/contract/violations"].value == {"id_present": 1, "small": 0}


def test_column_lineage_leads_to_the_parents(shop: Shop) -> None:
    source = there(shop)

    @dg.asset(key=["silver", "totals"], ins={"orders": dg.AssetIn(["silver", "orders"])})
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("day").agg(F.sum("amount").alias("total"))

    result = shop.run(source, totals, select=[totals])
    lineage = shop.metadata(result, "totals")["dagster/column_lineage"].deps_by_column
    parent = dg.AssetKey(["silver", "orders"])
    assert [(d.asset_key, d.column_name) for d in lineage["total"]] == [(parent, "amount")]
    assert [(d.asset_key, d.column_name) for d in lineage["day"]] == [(parent, "day")]


def test_an_emptied_slice_previews_no_other_partition(shop: Shop) -> None:
    rows: list[tuple[object, ...]] = [(2, date(2024, 1, 2), 1.0, None)]
    definition = orders(shop, rows)
    shop.run(definition, key="2024-01-02")
    rows.clear()
    found = shop.metadata(shop.run(definition, key="2024-01-01"), "orders")
    assert found["preview"] == "The write added no rows."
    assert found["dagster/partition_row_count"] == 0


def test_a_preview_that_fails_does_not_fail_the_write(shop: Shop) -> None:
    def hide(_: str) -> None:
        for file in (shop.root / "silver" / "orders").rglob("*.parquet"):
            file.rename(file.with_suffix(".hidden"))

    with at("after_commit", hide):
        result = shop.run(there(shop), key="2024-01-01")
    assert shop.metadata(result, "orders")["preview"].startswith("No preview: FileNotFoundError")


@counted_on_the_way
def test_rows_under_a_deletion_vector_are_neither_counted_nor_shown(shop: Shop) -> None:
    shop.seed(
        "numbers",
        [(i,) for i in range(10)],
        "id long",
        partitioned_by=None,
        properties={"delta.enableDeletionVectors": "true"},
    )
    shop.spark.sql(f"DELETE FROM delta.`{shop.uri('numbers')}` WHERE id < 5")
    log = shop.log("numbers")
    assert sum(r or 0 for r in log.files().column("num_records").to_pylist()) == 10, "the rows are still in the file"
    # What a materialisation tells, and its preview.
    (stored,) = stored_per_key(log, None, Written(log.version, None, None, None, 0.0)).values()
    assert stored.rows == 5
    assert [r["id"] for r in log.first_rows(["id"], 3)] == [5, 6, 7]


@counted_on_the_way
def test_all_of_it_costs_no_job_and_no_second_look_at_the_data(shop: Shop, tmp_path: Path) -> None:
    """The same frame written by Spark alone takes as many jobs, without an observer as many, and each row is computed once."""
    seen = tmp_path / "seen"
    rows: list[tuple[object, ...]] = [(i, DAY, float(i), None) for i in range(100)]

    def frame() -> DataFrame:
        return shop.frame(rows, ORDER).coalesce(1).withColumn("id", counting("id", seen))

    def definition(**metadata: object) -> dg.AssetsDefinition:
        return asset("orders", lambda _: frame(), partitions=DAILY, partition_expr="day", contract=ORDERS, **metadata)

    def by_spark_alone(made: DataFrame) -> None:
        day = "day = DATE '2024-01-01'"
        made.write.format("delta").mode("overwrite").option("replaceWhere", day).save(shop.uri("orders"))

    shop.seed("orders", rows, ORDER)
    by_spark_alone(shop.frame(rows, ORDER))  # the first write of a table that was there has jobs of its own
    with counted_jobs(shop.spark) as by_spark:
        by_spark_alone(frame())
    assert seen.stat().st_size == 100
    jobs: dict[str, int] = {}
    for name, each in {"plain": definition(), "watched": definition(writer=OBSERVER)}.items():
        seen.unlink()
        with counted_jobs(shop.spark) as ours:
            result = shop.run(each, key="2024-01-01")
        jobs[name] = len(ours)
        assert seen.stat().st_size == 100
    assert 0 < jobs["watched"] <= jobs["plain"] <= len(by_spark)
    told = shop.metadata(result, "orders")
    assert (told["contract/rows"], told["observer/rows"]) == (100, 100)


@counted_on_the_way
@pytest.mark.pattern("merger")
def test_a_merge_computes_its_source_once(shop: Shop, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    rows = [(i, i, None, False) for i in range(50)]
    merged = asset(
        "changes",
        lambda _: shop.frame(rows, "id long, seq long, email string, gone boolean").withColumn(
            "id", counting("id", seen)
        ),
        contract=CHANGES,
        mode="merge",
        merge_order="seq",
    )
    found = shop.metadata(shop.run(merged), "changes")
    assert seen.stat().st_size == 50
    assert found["contract/rows"] == 50
    assert found["merge/changes"] == {"insert": 50}


def test_the_commit_is_stamped_and_its_version_is_the_data_version(shop: Shop) -> None:
    result = shop.run(there(shop), key="2024-01-01")
    (record,) = result.asset_materializations_for_node("silver__orders")
    assert (record.tags or {})["dagster/data_version"] == str(shop.version("orders")) == "1"
    entry = json.loads(TableLog.open(shop.uri("orders")).table.history(1)[0]["userMetadata"])  # type: ignore[union-attr]
    assert entry["run"] == entry["origin"] == result.run_id
    assert entry["slice"] == "2024-01-01"
    assert entry["writer"] == "silver/orders"
    assert entry["attempt"].startswith(result.run_id)


@pytest.mark.pattern("dataset_tracker")
class TestUndeclared:
    """A dataset that code reads by its path, and that the asset does not name."""

    def test_it_is_reported_with_both_names(self, shop: Shop) -> None:
        @dg.asset(key=["silver", "totals"])
        def totals() -> DataFrame:
            return (
                shop.spark.read.format("delta").load(shop.uri("orders")).groupBy("day").agg(F.sum("amount").alias("n"))
            )

        source = there(shop)
        result = shop.run(source, totals, select=[totals])
        assert shop.metadata(result, "totals")["lineage/undeclared"] == ["`silver/orders`"]
        logs = shop.instance.all_logs(result.run_id)
        warned = [entry.user_message for entry in logs if entry.level == logging.WARNING]
        assert any("`silver/totals` reads `silver/orders`, which it does not declare" in said for said in warned)


@pytest.mark.pattern("dataset_tracker")
class TestUndeclaredWrites:
    """Tables that the code of an asset writes by their path, beside the one that it declares."""

    def test_what_code_wrote_beside_its_output_is_reported_once_with_both_names(self, shop: Shop) -> None:
        source = there(shop)
        sly = [True]

        def made(_: dg.AssetExecutionContext) -> DataFrame:
            if sly:
                sly.pop()
                shop.spark.read.format("delta").load(shop.uri("orders")).write.format("delta").mode("append").save(
                    shop.uri("hidden")
                )
                shop.spark.sql(f"DELETE FROM delta.`{shop.uri('orders')}` WHERE id = 1")
            return shop.frame([(7,)], "n long")

        totals = asset("totals", made)
        result = shop.run(source, totals, select=[totals])
        assert shop.metadata(result, "totals")["lineage/undeclared_writes"] == ["`silver/hidden`", "`silver/orders`"]
        warned = [e.user_message for e in shop.instance.all_logs(result.run_id) if e.level == logging.WARNING]
        assert any("`silver/totals` writes `silver/orders`, which it does not declare" in said for said in warned)
        again = shop.run(source, totals, select=[totals])
        assert "lineage/undeclared_writes" not in shop.metadata(again, "totals")

    def test_what_is_its_own_or_declared_or_was_written_by_somebody_else_is_not(self, shop: Shop) -> None:
        """Its own table by hand, a settings commit, a writer outside of the engine, and code between two runs.

        Nor is what it reads by its path, and names.
        """
        source = there(shop)

        @dg.asset(key=["silver", "totals"], deps=[source.key])
        def totals() -> DataFrame:
            shop.frame([(1,)], "n long").write.format("delta").mode("append").save(shop.uri("totals"))
            shop.spark.sql(f"ALTER TABLE delta.`{shop.uri('orders')}` SET TBLPROPERTIES ('a' = 'b')")
            shop.seed("elsewhere", [(1,)], "n long", partitioned_by=None)
            return shop.spark.read.format("delta").load(shop.uri("orders")).selectExpr("id AS n")

        shop.frame([(1,)], "n long").write.format("delta").save(shop.uri("between"))
        result = shop.run(source, totals, select=[totals])
        assert [name for name in shop.metadata(result, "totals") if name.startswith("lineage/undeclared")] == []
