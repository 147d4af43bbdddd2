"""The last stage of a writer: what is stored is another form of what was judged, and a merge compares what was meant."""

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_delta import LocalConfig
from io_manager_support import ORDERS, Shop, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from stored_forms import CHANGED, D1, D2, DAYS, FORM, MERGED, SCHEMA, merged, moved, opened, orders, seed

from de_resources.contract import Contract
from de_resources.delta.metadata import ROWS_WRITTEN, VIOLATIONS
from de_resources.delta.read.reader import Read, Reader
from de_resources.delta.read.request import ReadRequest
from de_resources.delta.table import Table
from de_resources.delta.write.frames import RowsOutsideSlice, StoredElsewhere
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.stored_form import ConstraintsOnStoredForm, NotTheSameColumns, NoWayBack
from de_resources.delta.write.writer import Writer
from de_resources.proxy.io_manager import ProxyDeltaIOManager

DAY_BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


class Dropped(Writer):
    """Forgets a column, and stores another one as a number."""

    def stored(self, request: WriteRequest, frame: DataFrame) -> DataFrame:  # noqa: ARG002
        return frame.drop("email").withColumn("amount", F.col("amount").cast("int"))


class OwnColumnsOnly(Reader):
    """Gives the columns that it knows of, and no others."""

    def read(self, request: ReadRequest, proceed: Read) -> DataFrame:
        return proceed(request).select("id", "day", "amount", "email")


DROPPED, NARROW = (f"{__name__}:{each.__name__}" for each in (Dropped, OwnColumnsOnly))


@pytest.mark.pattern("merger", "data_overwrite")
@pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
def test_rules_judge_what_is_meant_and_another_form_is_stored(shop: Shop, mode: str) -> None:
    given = [(1, D1, 5.0, "ann@x.org"), (2, D1, -3.0, "bob@x.org"), (3, D1, 7.0, None)]
    told = shop.metadata(shop.run(orders(shop, given, mode=mode), key=D1), "orders")
    # As they are stored, two amounts are negative and one is not.
    assert (told[ROWS_WRITTEN], told[VIOLATIONS]["amount_greater_than_or_equal_to"]) == (3, 1)
    assert opened(shop) == given
    assert not any("x.org" in str(row) or "gro.x" in str(row) for row in shop.rows("orders"))


def test_an_input_gets_what_was_meant(shop: Shop) -> None:
    source = orders(shop, [(1, D1, 5.0, "ann@x.org")])

    @dg.asset(
        key=["silver", "copy"],
        partitions_def=DAYS,
        ins={"orders": dg.AssetIn(source.key)},
        metadata={"partition_expr": "day"},
    )
    def copy(orders: DataFrame) -> DataFrame:
        return orders

    shop.run(source, copy, key=D1)
    assert shop.rows("copy") == [(1, date(2024, 1, 1), 5.0, "ann@x.org")]


@pytest.mark.pattern("merger")
def test_a_merge_matches_and_compares_what_is_meant_also_by_a_key_that_is_never_stored_the_same(shop: Shop) -> None:
    assert merged(shop) == {"rows": MERGED, "changes": CHANGED}


@pytest.mark.pattern("stateful_merger")
def test_days_that_build_on_each_other_are_compared_by_what_is_meant(shop: Shop) -> None:
    spent = {1: {"ann": 1, "bob": 2}, 2: {"ann": 10}, 3: {"bob": 20, "cid": 30}}

    @dg.asset(
        key=["silver", "totals"],
        partitions_def=DAYS,
        metadata={"mode": "merge", "stateful": True, "merge_keys": ["name"], "sealed": ["name"], **FORM},
        ins={"before": dg.AssetIn(["silver", "totals"], partition_mapping=DAY_BEFORE)},
    )
    def totals(context: dg.AssetExecutionContext, before: DataFrame) -> DataFrame:
        today = shop.frame(list(spent[int(context.partition_key[-1])].items()), "name string, today long")
        return today.join(before, "name", "left").selectExpr("name", "coalesce(spent, 0L) + today AS spent")

    def expected(*days: int) -> list[tuple[str, int]]:
        sums: Counter[str] = Counter()
        for day in days:
            sums.update(spent[day])
        return sorted(sums.items())

    create = asset("totals", lambda _: shop.frame([], "name string, spent long"), mode="error")
    shop.run(create)
    for day in (1, 2, 3):
        shop.run(totals, key=f"2024-01-0{day}")
    assert opened(shop, "totals", sealed=(0,)) == expected(1, 2, 3)
    spent[2] = {"ann": 100, "dan": 5}
    for day in (2, 3):
        shop.run(totals, key=f"2024-01-0{day}")
    assert opened(shop, "totals", sealed=(0,)) == expected(1, 2, 3)


@pytest.mark.pattern("proxy")
def test_a_version_behind_a_proxy_is_stored_and_read_the_same_way(shop: Shop) -> None:
    manager = ProxyDeltaIOManager(root_uri=str(shop.root), storage_options=LocalConfig(), spark=shop.engine)
    seen: list[Any] = []

    @dg.asset(key=["silver", "seen"], partitions_def=DAYS, ins={"orders": dg.AssetIn(["silver", "orders"])})
    def look(orders: DataFrame) -> None:
        seen.append(sorted(tuple(row) for row in orders.collect()))

    definition = orders(shop, [(1, D1, 5.0, "ann@x.org")], versions="manifest")
    assert dg.materialize([definition, look], resources={"io_manager": manager}, partition_key=D1).success
    assert seen == [[(1, date(2024, 1, 1), 5.0, "ann@x.org")]]
    (stored,) = manager.stored_as(_table(shop)).read(shop.spark).collect()
    assert stored.amount == -6.0
    assert "ann" not in stored.email


@pytest.mark.pattern("merger", "data_overwrite")
@pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
def test_rows_outside_of_the_slice_are_refused_before_they_are_sealed(shop: Shop, mode: str) -> None:
    seed(shop, [(1, D1, 5.0, "ann@x.org")])
    error = shop.failure(orders(shop, [(1, D1, 6.0, "ann@x.org"), (2, D2, 6.0, "bob@x.org")], mode=mode), key=D1)
    assert isinstance(error, RowsOutsideSlice)
    assert list(error.values) == ["2024-01-02"]
    assert opened(shop) == [(1, D1, 5.0, "ann@x.org")]


@pytest.mark.pattern("merger", "data_overwrite")
@pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
def test_a_writer_does_not_move_rows_to_partitions_that_the_run_does_not_own(shop: Shop, mode: str) -> None:
    seed(shop, [(1, D1, 5.0, "ann@x.org")])
    assert isinstance(shop.failure(moved(shop, mode=mode), key=D1), StoredElsewhere)
    assert opened(shop) == [(1, D1, 5.0, "ann@x.org")]


@pytest.mark.pattern("merger", "data_overwrite")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mode": "merge", "reader": None}, NoWayBack),
        ({"mode": "merge", "reader": NARROW}, NotTheSameColumns),
        ({"writer": DROPPED}, NotTheSameColumns),
        ({"constraints": True}, ConstraintsOnStoredForm),
    ],
)
def test_what_could_not_be_stored_or_read_back_is_refused(
    shop: Shop, settings: dict[str, Any], expected: type[Exception]
) -> None:
    assert isinstance(shop.failure(orders(shop, [(1, D1, 5.0, "ann@x.org")], **settings), key=D1), expected)
    assert not Path(shop.uri("orders"), "_delta_log").exists() or not shop.rows("orders")


@pytest.mark.pattern("merger")
def test_of_several_writers_the_innermost_is_the_next_to_the_store(shop: Shop) -> None:
    writers = [f"{__name__}:Exclaimed", FORM["writer"]]
    readers = [f"{__name__}:Unexclaimed", FORM["reader"]]
    rule = {"mode": "merge", "writer": writers, "reader": readers}
    # As both have stored it: read through both it is the same.
    seed(shop, [(1, D1, 5.0, "ann@x.org!")])
    given = [(1, D1, 5.0, "ann@x.org"), (2, D1, 6.0, "bob@x.org")]
    told = shop.metadata(shop.run(orders(shop, given, **rule), key=D1), "orders")
    assert opened(shop) == [(1, D1, 5.0, "ann@x.org!"), (2, D1, 6.0, "bob@x.org!")]
    assert told["merge/changes"] == {"insert": 1}


def test_what_a_stream_brings_is_stored_in_the_form_and_judged_before(shop: Shop) -> None:
    shop.run(asset("came", lambda _: shop.frame([(1, None, -3.0, "ann@x.org")], SCHEMA)))
    stream = asset(
        "orders", lambda _: shop.spark.readStream.format("delta").load(shop.uri("came")), contract=ORDERS, **FORM
    )
    told = shop.metadata(shop.run(stream), "orders")
    assert (told[ROWS_WRITTEN], told[VIOLATIONS]["amount_greater_than_or_equal_to"]) == (1, 1)
    assert opened(shop) == [(1, "None", -3.0, "ann@x.org")]


class Exclaimed(Writer):
    """A layer around another one."""

    def stored(self, request: WriteRequest, frame: DataFrame) -> DataFrame:  # noqa: ARG002
        return frame.withColumn("email", F.concat("email", F.lit("!")))


class Unexclaimed(Reader):
    """What undoes it."""

    def read(self, request: ReadRequest, proceed: Read) -> DataFrame:
        return proceed(request).withColumn("email", F.regexp_replace("email", "!$", ""))


def _table(shop: Shop) -> Table:
    return Table("silver.orders", shop.uri("orders"), Contract.load(ORDERS))
