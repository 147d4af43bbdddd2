"""Dynamic Late Data Integrator: a materialisation tells which version of its inputs it was computed from, never a newer one."""

from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from io_manager_support import Shop
from pyspark.sql import DataFrame

from de_resources.delta.read_versions import ReadVersions, version_read
from de_resources.delta.table import Table
from de_resources.delta.write.crash_points import at

pytestmark = pytest.mark.pattern("dynamic_late_data_integrator")

DAYS = dg.StaticPartitionsDefinition(["a", "b"])


def orders(shop: Shop) -> dg.AssetsDefinition:
    @dg.asset(key=["silver", "orders"], partitions_def=DAYS, metadata={"partition_expr": "day"})
    def definition(context: dg.AssetExecutionContext) -> DataFrame:
        return shop.frame([(1, context.partition_key)], "id long, day string")

    return definition


def totals(**metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(
        key=["silver", "totals"],
        partitions_def=DAYS,
        ins={"orders": dg.AssetIn(["silver", "orders"])},
        metadata={"partition_expr": "day", **metadata},
        backfill_policy=dg.BackfillPolicy.single_run(),
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def definition(orders: DataFrame) -> DataFrame:
        return orders.groupBy("day").count()

    return definition


def read_by(shop: Shop, result: dg.ExecuteInProcessResult) -> list[int | None]:
    """Per materialisation, the version of silver.orders that it says it was computed from."""
    table_id = str(shop.log("orders").table.metadata().id)
    events = result.asset_materializations_for_node("silver__totals")
    return [version_read(event.metadata, "silver.orders", table_id) for event in events]


def test_every_key_of_a_range_tells_the_version_that_was_read(shop: Shop) -> None:
    upstream, downstream = orders(shop), totals()
    shop.seed("orders", [(1, "a"), (1, "b")], "id long, day string")
    result = shop.run(upstream, downstream, keys=("a", "b"), select=[downstream])
    assert read_by(shop, result) == [shop.version("orders")] * 2
    (event, _) = result.asset_materializations_for_node("silver__totals")
    assert version_read(event.metadata, "silver.orders", "another table at its place") is None
    assert version_read(event.metadata, "silver.other", "") is None


def test_what_lands_between_reading_and_writing_does_not_count_as_read(shop: Shop) -> None:
    upstream, downstream = orders(shop), totals()
    shop.seed("orders", [(1, "a"), (1, "b")], "id long, day string")
    before = shop.version("orders")
    with at("before_commit", lambda _: DeltaTable(shop.uri("orders")).delete("day = 'b'")):
        result = shop.run(upstream, downstream, key="a", select=[downstream])
    assert shop.version("orders") == before + 1
    assert read_by(shop, result) == [before]


def test_of_an_input_that_is_loaded_twice_the_first_version_counts(shop: Shop) -> None:
    """What was computed from the first one has not seen what the second one saw."""
    shop.seed("orders", [(1, "a")], "id long, day string")
    table, versions = Table(name="silver.orders", uri=shop.uri("orders")), ReadVersions()
    versions.note(table)
    before = shop.version("orders")
    DeltaTable(shop.uri("orders")).delete("day = 'a'")
    versions.note(table)
    assert shop.version("orders") == before + 1
    assert versions.tables["silver.orders"]["version"] == before


def test_a_merge_that_changes_nothing_has_read_all_the_same(shop: Shop) -> None:
    upstream, downstream = orders(shop), totals(mode="merge", merge_keys=["day"])
    shop.seed("totals", [("a", 1)], "day string, count long")
    for day in ("a", "b"):  # what came last is of another day
        shop.seed("orders", [(1, day)], "id long, day string")
    result = shop.run(upstream, downstream, key="a", select=[downstream])
    assert shop.metadata(result, "totals")["skipped"] == "nothing changed"
    assert read_by(shop, result) == [shop.version("orders")] == [1]


@pytest.mark.faults
def test_an_attempt_that_finds_its_work_done_does_not_tell_what_the_one_before_had_read(shop: Shop) -> None:
    upstream, downstream, calls = orders(shop), totals(mode="append"), []

    def once(table: str) -> None:
        calls.append(table)
        if len(calls) == 1:
            DeltaTable(shop.uri("orders")).delete("day = 'a'")
            raise ConnectionError("the answer got lost")

    shop.run(upstream, key="a")
    with at("after_commit", once):
        result = shop.run(upstream, downstream, key="a", select=[downstream])
    assert "already committed" in shop.metadata(result, "totals")["skipped"]
    assert read_by(shop, result) == [None]
