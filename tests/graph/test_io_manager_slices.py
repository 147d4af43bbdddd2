"""Data Overwrite by Dagster's partitions: every kind of partitioning writes its slice, all of it, and nothing else."""

from datetime import UTC, date, datetime
from typing import Any

import dagster as dg
import pytest
from io_manager_support import DAILY, ORDER, ORDERS, Shop, asset
from pyspark.sql import DataFrame

from de_resources.delta.dimensions import KeyStoredAsNull
from de_resources.delta.io_manager import NoPartitionNamed
from de_resources.delta.log import TableLog
from de_resources.delta.write.frames import RowsOutsideSlice
from de_resources.errors import PermanentError

pytestmark = pytest.mark.pattern("data_overwrite")

COUNTRIES = dg.StaticPartitionsDefinition(["PL", "DE", "FR"])


def order(number: int, day: int, amount: float = 1.0) -> tuple[object, ...]:
    return (number, date(2024, 1, day), amount, f"{number}@example.org")


def test_a_run_that_names_no_partition_replaces_nothing(shop: Shop) -> None:
    """Dagster lets it through; without a partition of its own it would own the whole table."""
    rows = [(1, "PL"), (2, "PL")]
    sales = asset(
        "sales", lambda _: shop.frame(rows, "id long, country string"), partitions=COUNTRIES, partition_expr="country"
    )
    shop.seed("sales", rows, "id long, country string", "country")
    for key in (None, ""):
        failure = shop.failure(sales, key=key)
        assert isinstance(failure, NoPartitionNamed)
        assert "Launch it for a partition" in str(failure)
    assert (shop.version("sales"), shop.rows("sales")) == (0, rows)


class TestDaily:
    def test_a_key_replaces_its_rows_and_leaves_the_others_and_a_rerun_is_a_new_version(self, shop: Shop) -> None:
        shop.seed("orders", [order(1, 1), order(2, 2), order(3, 2)], ORDER)
        orders = asset(
            "orders",
            lambda _: shop.frame([order(4, 2)], ORDER),
            partitions=DAILY,
            partition_expr="day",
            contract=ORDERS,
        )
        first = shop.version("orders")
        result = shop.run(orders, key="2024-01-02")
        assert shop.rows("orders") == [order(1, 1), order(4, 2)]
        assert shop.metadata(result, "orders")["delta/version"] == shop.version("orders") == first + 1
        shop.run(orders, key="2024-01-02")
        assert (shop.rows("orders"), shop.version("orders")) == ([order(1, 1), order(4, 2)], first + 2)

    def test_a_range_run_replaces_all_of_its_days_in_one_commit_and_empties_those_without_rows(
        self, shop: Shop
    ) -> None:
        content = [order(i, i) for i in range(1, 7)]
        orders = asset("orders", lambda _: shop.frame(content, ORDER), partitions=DAILY, partition_expr="day")
        shop.seed("orders", content, ORDER)
        before = shop.version("orders")
        content = [order(20, 2), order(40, 4), order(41, 4)]
        result = shop.run(orders, keys=("2024-01-02", "2024-01-04"))
        assert shop.version("orders") == before + 1
        assert shop.rows("orders") == sorted([order(1, 1), order(5, 5), order(6, 6), *content], key=repr)
        assert shop.rows_per_key(result, "orders") == {"2024-01-02": 1, "2024-01-03": 0, "2024-01-04": 2}
        predicate = str(shop.log("orders").table.history(1)[0]["operationParameters"]["predicate"])
        assert "2024-01-02" in predicate, "the table's own history says what was replaced"
        assert "2024-01-05" in predicate or "2024-01-04" in predicate

    def test_an_empty_frame_empties_the_slice(self, shop: Shop) -> None:
        orders = asset("orders", lambda _: shop.frame([], ORDER), partitions=DAILY, partition_expr="day")
        shop.seed("orders", [order(1, 1), order(2, 2)], ORDER)
        result = shop.run(orders, key="2024-01-01")
        assert shop.rows("orders") == [order(2, 2)]
        assert shop.rows_per_key(result, "orders") == {"2024-01-01": 0}


class TestRowsOutside:
    # Which rows are outside is asked before the mode matters: each mode once, and one with both; so is a first write.
    @pytest.mark.parametrize(
        ("stray", "mode"),
        [(date(2024, 1, 2), "overwrite"), (None, "overwrite"), (date(2024, 1, 2), "merge"), (None, "append")],
        ids=["another day-overwrite", "null-overwrite", "another day-merge", "null-append"],
    )
    def test_are_refused_with_asset_slice_column_and_values_and_nothing_is_written(
        self, shop: Shop, mode: str, stray: date | None
    ) -> None:
        content = [order(1, 1), (2, stray, 1.0, None)]
        orders = asset(
            "orders",
            lambda _: shop.frame(content, ORDER),
            partitions=DAILY,
            partition_expr="day",
            mode=mode,
            contract=ORDERS,
        )
        if mode == "append":
            first = shop.failure(orders, key="2024-01-01")
            assert isinstance(first, RowsOutsideSlice), "the first write is checked like every other"
            assert TableLog.open(shop.uri("orders")) is None
        shop.seed("orders", content[:1], ORDER)
        version, rows = shop.version("orders"), shop.rows("orders")
        error = shop.failure(orders, key="2024-01-01")
        assert isinstance(error, RowsOutsideSlice)
        assert (error.table, error.slice, error.columns) == ("silver.orders", "2024-01-01", ("day",))
        assert error.values == [str(stray)]
        for fact in ("silver.orders", "2024-01-01", "day", str(stray)):
            assert fact in str(error)
        assert (shop.version("orders"), shop.rows("orders")) == (version, rows)


class TestTimeZones:
    WARSAW = dg.DailyPartitionsDefinition("2024-03-29", end_date="2024-04-03", timezone="Europe/Warsaw")

    @pytest.mark.usefixtures("compiled_plans")
    def test_a_local_day_on_a_timestamp_column_runs_from_local_midnight_to_local_midnight(self, shop: Shop) -> None:
        """The day on which summer time begins has 23 hours: 30 March 23:00 UTC to 31 March 22:00 UTC."""
        inside = [
            (1, datetime(2024, 3, 30, 23, 0, tzinfo=UTC)),
            (2, datetime(2024, 3, 31, 21, 59, 59, 999999, tzinfo=UTC)),
        ]
        rows = list(inside)
        seen = asset(
            "seen",
            lambda _: shop.frame(rows, "id long, at timestamp"),
            partitions=self.WARSAW,
            partition_expr="at",
            partitioned_by=[],
        )
        shop.run(seen, key="2024-03-31")
        instants = "SELECT unix_micros(at) FROM delta.`{}` ORDER BY id".format(shop.uri("seen"))
        assert [r[0] for r in shop.spark.sql(instants).collect()] == [
            int(at.timestamp()) * 1_000_000 + at.microsecond for _, at in inside
        ]
        before, after = datetime(2024, 3, 30, 22, 59, 59, tzinfo=UTC), datetime(2024, 3, 31, 22, 0, tzinfo=UTC)
        rows = [*inside, (3, before), (4, after)]
        error = shop.failure(seen, key="2024-03-31")
        assert isinstance(error, RowsOutsideSlice)
        assert sorted(value[:19] for value in error.values) == ["2024-03-30 22:59:59", "2024-03-31 22:00:00"]

    def test_hours_on_a_timestamp_column_are_counted_per_key_also_when_the_clock_goes_back(self, shop: Shop) -> None:
        hourly = dg.HourlyPartitionsDefinition(
            "2024-10-27-00:00", end_date="2024-10-27-06:00", timezone="Europe/Warsaw"
        )
        keys = hourly.get_partition_keys()
        starts = [hourly.time_window_for_partition_key(k).start for k in keys]
        rows = [(i, at) for i, at in enumerate(starts)]
        hours = asset(
            "hours", lambda _: shop.frame(rows, "id long, hour timestamp"), partitions=hourly, partition_expr="hour"
        )
        result = shop.run(hours, keys=(keys[0], keys[-1]))
        assert len(keys) == 7
        assert shop.rows_per_key(result, "hours") == dict.fromkeys(keys, 1)
        # The second of the two hours from 02:00 to 03:00, and only that one.
        twice = [k for k in keys if "02:00" in k]
        assert len(twice) == 2
        rows = []
        shop.run(hours, key=twice[1])
        assert [r[0] for r in shop.rows("hours")] == [i for i, k in enumerate(keys) if k != twice[1]]

    def test_times_without_a_zone_are_in_utc(self, shop: Shop) -> None:
        rows = [(1, datetime(2024, 1, 2, 0, 30)), (2, datetime(2024, 1, 2, 23, 30))]
        times = asset(
            "times",
            lambda _: shop.frame(rows, "id long, at timestamp_ntz"),
            partitions=DAILY,
            partition_expr="at",
            partitioned_by=[],
        )
        next_day = (9, datetime(2024, 1, 3, 0, 0))
        shop.seed("times", [*rows, next_day], "id long, at timestamp_ntz", None)
        shop.run(times, key="2024-01-02")
        assert shop.rows("times") == sorted([*rows, next_day])
        rows = [(3, datetime(2024, 1, 3, 0, 0))]
        assert isinstance(shop.failure(times, key="2024-01-02"), RowsOutsideSlice)

    def test_a_string_column_holds_the_keys_themselves(self, shop: Shop) -> None:
        rows = [(1, "2024-01-01"), (2, "2024-01-02")]
        text = asset("text", lambda _: shop.frame(rows, "id long, day string"), partitions=DAILY, partition_expr="day")
        result = shop.run(text, keys=("2024-01-01", "2024-01-03"))
        assert shop.rows("text") == rows
        assert shop.rows_per_key(result, "text") == {"2024-01-01": 1, "2024-01-02": 1, "2024-01-03": 0}

    def test_hours_cannot_be_told_apart_by_a_date_column(self, shop: Shop) -> None:
        hourly = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-02-00:00")
        hours = asset(
            "hours",
            lambda _: shop.frame([(1, date(2024, 1, 1))], "id long, day date"),
            partitions=hourly,
            partition_expr="day",
        )
        assert "not a midnight" in str(shop.failure(hours, key="2024-01-01-05:00"))


class TestStaticAndMulti:
    GRID = dg.MultiPartitionsDefinition({"country": COUNTRIES, "day": DAILY})

    def test_static_keys(self, shop: Shop) -> None:
        rows = [(1, "PL")]
        sales = asset(
            "sales",
            lambda _: shop.frame(rows, "id long, country string"),
            partitions=COUNTRIES,
            partition_expr="country",
        )
        shop.seed("sales", rows, "id long, country string", "country")
        rows = [(2, "DE")]
        shop.run(sales, key="DE")
        assert shop.rows("sales") == [(1, "PL"), (2, "DE")]
        rows = [(3, "pl")]
        assert isinstance(shop.failure(sales, key="PL"), RowsOutsideSlice)

    def test_static_keys_on_a_number_column_and_rows_that_the_frame_filters_away_are_no_reason_to_refuse(
        self, shop: Shop
    ) -> None:
        shops = dg.StaticPartitionsDefinition(["7", "12"])
        rows = [(1, 12), (4, 7)]
        shop.seed("sales", [(2, 7), (3, 12)], "id long, shop int", "shop")
        sales = asset(
            "sales",
            lambda _: shop.frame(rows, "id long, shop int").where("shop = 12"),
            partitions=shops,
            partition_expr="shop",
        )
        result = shop.run(sales, key="12")
        assert shop.rows("sales") == [(1, 12), (2, 7)]
        assert shop.rows_per_key(result, "sales") == {"12": 1}

    def test_odd_static_keys_work_and_harm_nothing(self, shop: Shop) -> None:
        odd = [
            "'; DROP TABLE x; --",
            "' OR '1'='1",
            "back\\slash\\",
            "`tick`",
            "%2e%2e%2f",
            "../../up",
            "a=b/c d",
            "ключ-😀",
            "${env:HOME}",
            "k" * 300,
        ]
        partitions = dg.StaticPartitionsDefinition(["plain", *odd])
        make = asset(
            "odd",
            lambda c: shop.frame([(len(key), key) for key in c.partition_keys], "id long, k string"),
            partitions=partitions,
            partition_expr="k",
        )
        shop.run(make, key="plain")
        for key in odd[:3]:
            result = shop.run(make, key=key)
            assert shop.rows_per_key(result, "odd") == {key: 1}
        for _ in range(2):  # in one slice, and again
            result = shop.run(make, keys=(odd[3], odd[-1]))
            assert shop.rows_per_key(result, "odd") == dict.fromkeys(odd[3:], 1)
        assert shop.rows("odd") == sorted(((len(k), k) for k in ["plain", *odd]), key=repr)
        assert {p.name for p in shop.root.parent.iterdir()} == {"lake"}
        assert {p.name for p in shop.root.iterdir()} == {"silver"}

        @dg.asset(partitions_def=partitions, ins={"odd": dg.AssetIn(["silver", "odd"])})
        def reader(context: dg.AssetExecutionContext, odd: DataFrame) -> None:
            assert [tuple(r) for r in odd.collect()] == [(len(context.partition_key), context.partition_key)]

        for key in odd[:2]:
            shop.run(make, reader, key=key, select=[reader])

    @pytest.mark.parametrize("stored_as_null", ["__HIVE_DEFAULT_PARTITION__", ""])
    def test_a_key_that_would_be_stored_as_null_is_refused_by_name(self, shop: Shop, stored_as_null: str) -> None:
        grid = dg.MultiPartitionsDefinition({"kind": dg.StaticPartitionsDefinition([stored_as_null]), "day": DAILY})
        cells = asset(
            "cells",
            lambda _: shop.frame([(1, stored_as_null, date(2024, 1, 1))], "id long, kind string, day date"),
            partitions=grid,
            partition_expr={"kind": "kind", "day": "day"},
        )
        error = shop.failure(cells, key=dg.MultiPartitionKey({"kind": stored_as_null, "day": "2024-01-01"}))
        assert isinstance(error, KeyStoredAsNull)
        assert (error.column, error.key) == ("kind", stored_as_null)
        assert repr(stored_as_null) in str(error)
        assert not (shop.root / "silver" / "cells").exists()

    def cells(self, shop: Shop, rows: list[tuple[object, ...]], **metadata: Any) -> dg.AssetsDefinition:
        return asset(
            "cells",
            lambda _: shop.frame(rows, "id long, country string, day date"),
            partitions=self.GRID,
            **({"partition_expr": {"country": "country", "day": "day"}} | metadata),
        )

    def test_a_multi_key_is_one_cell(self, shop: Shop) -> None:
        shop.seed("cells", [(1, "PL", date(2024, 1, 1))], "id long, country string, day date")
        rows: list[tuple[object, ...]] = [(2, "PL", date(2024, 1, 2))]
        cells = self.cells(shop, rows)
        result = shop.run(cells, key=dg.MultiPartitionKey({"country": "PL", "day": "2024-01-02"}))
        assert shop.rows("cells") == [(1, "PL", date(2024, 1, 1)), (2, "PL", date(2024, 1, 2))]
        assert shop.rows_per_key(result, "cells") == {"PL|2024-01-02": 1}
        rows[:] = [(2, "PL", date(2024, 1, 2)), (3, "pl", date(2024, 1, 2)), (4, "DE", date(2024, 1, 2))]
        error = shop.failure(cells, key=dg.MultiPartitionKey({"country": "PL", "day": "2024-01-02"}))
        assert isinstance(error, RowsOutsideSlice)
        assert sorted(error.values) == ["DE, 2024-01-02", "pl, 2024-01-02"]

    def test_a_dimension_without_a_column_is_named(self, shop: Shop) -> None:
        key = dg.MultiPartitionKey({"country": "PL", "day": "2024-01-01"})
        error = shop.failure(self.cells(shop, [], partition_expr={"country": "country"}), key=key)
        assert "no column for the dimension(s) day" in str(error)
        error = shop.failure(self.cells(shop, [], partition_expr="day"), key=key)
        assert "country, day" in str(error)

    def test_a_downstream_of_one_dimension_reads_the_cells_of_its_key(self, shop: Shop) -> None:
        cells = self.cells(shop, [])
        rows = [(1, "PL", date(2024, 1, 1)), (2, "DE", date(2024, 1, 1)), (3, "DE", date(2024, 1, 2))]
        shop.seed("cells", rows, "id long, country string, day date")
        seen: list[int] = []

        @dg.asset(partitions_def=DAILY, ins={"cells": dg.AssetIn(["silver", "cells"])})
        def per_day(cells: DataFrame) -> None:
            seen.extend(sorted(r.id for r in cells.collect()))

        shop.run(cells, per_day, key="2024-01-01", select=[per_day])
        assert seen == [1, 2]


class TestMistakes:
    def test_partitions_without_a_column(self, shop: Shop) -> None:
        orders = asset("orders", lambda _: shop.frame([], ORDER), partitions=DAILY)
        assert "partition_expr" in str(shop.failure(orders, key="2024-01-01"))

    def test_a_partition_column_that_the_frame_lacks(self, shop: Shop) -> None:
        orders = asset("orders", lambda _: shop.frame([], "id long"), partitions=DAILY, partition_expr="day")
        error = shop.failure(orders, key="2024-01-01")
        assert isinstance(error, PermanentError)
        assert "`day` is not in the data" in str(error)

    @pytest.mark.parametrize("part", ["..", "a/b", "%2e%2e", "a'b", ""])
    def test_asset_keys_that_leave_the_lake_are_refused(self, shop: Shop, part: str) -> None:
        for option in ("root_name", "schema"):
            if not part:
                continue  # an empty name is no name: the asset key's own is used
            metadata: dict[str, Any] = {option: part}
            error = shop.failure(asset("x", lambda _: shop.frame([(1,)], "id long"), **metadata))
            assert "is not usable" in str(error)
        assert not shop.root.exists()


@pytest.mark.parametrize(
    ("pre_clustered", "files"), [(False, 2), (True, 4)], ids=["brought together by day", "written where it is"]
)
def test_a_range_is_written_where_its_rows_are_only_where_the_asset_says_so(
    shop: Shop, pre_clustered: bool, files: int
) -> None:
    """Two tasks hold two days each: a wrong promise costs files, never rows."""
    rows = [order(number, 1 + number // 2 % 2) for number in range(8)]
    orders = asset(
        "orders",
        lambda _: shop.frame(rows, ORDER).repartitionByRange(2, "id"),
        partitions=DAILY,
        partition_expr="day",
        contract=ORDERS,
        pre_clustered=pre_clustered,
    )
    assert shop.run(orders, keys=("2024-01-01", "2024-01-02")).success
    assert shop.log("orders").files().num_rows == files
    assert [row[0] for row in shop.rows("orders")] == list(range(8))
