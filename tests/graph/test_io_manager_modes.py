"""Write modes, schema modes and inputs: what each promises, and what each refuses."""

import logging
from datetime import date
from typing import Any, cast

import dagster as dg
import pytest
from dagster_delta import SchemaMode, WriteMode
from io_manager_support import DAILY, NOTED, ORDER, ORDERS, Orders, Shop, asset
from pyspark.sql import DataFrame

from de_resources.delta.log import TableLog
from de_resources.delta.optional_inputs import UnusableIfMissing
from de_resources.delta.table import TableMissing
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.frames import SchemaMismatch
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import UnstorableName


def _fail(_: str) -> None:
    raise ConnectionError("the engine went away")


@pytest.mark.pattern("data_overwrite")
class TestModes:
    def test_overwrite_replaces_the_whole_of_an_unpartitioned_table(self, shop: Shop) -> None:
        shop.seed("users", [(1,), (2,)], "id long", None)
        shop.run(asset("users", lambda _: shop.frame([(3,)], "id long")))
        assert shop.rows("users") == [(3,)]

    def test_two_assets_append_to_one_table_in_one_run(self, shop: Shop) -> None:
        """Each is a write of its own: the second is no repetition of the first."""
        ours = asset("ours", lambda _: shop.frame([(1,)], "id long"), mode="append", root_name="all")
        theirs = asset("theirs", lambda _: shop.frame([(2,)], "id long"), mode="append", root_name="all")
        shop.run(ours, theirs)
        assert shop.rows("all") == [(1,), (2,)]

    def test_error_refuses_a_table_that_exists_and_only_that(self, shop: Shop) -> None:
        users = asset("users", lambda _: shop.frame([(1,)], "id long"), mode="error")
        with at("before_commit", _fail), pytest.raises(Exception, match="went away"):
            shop.run(users)
        shop.run(users)  # a first write that failed is possible again
        assert "its mode is `error`" in str(shop.failure(users))
        assert shop.rows("users") == [(1,)]

    def test_ignore_keeps_a_table_that_exists_and_says_so(self, shop: Shop) -> None:
        shop.seed("users", [(1,)], "id long", None)
        users = asset("users", lambda _: shop.frame([(2,)], "id long"), mode="ignore")
        assert "its mode is `ignore`" in shop.metadata(shop.run(users), "users")["skipped"]
        assert shop.rows("users") == [(1,)]

    def test_create_or_replace_writes_the_rows_and_replaces_the_schema(self, shop: Shop) -> None:
        """Of dagster-delta's known defects 6 and 8: it writes none, and sets the level of the root logger."""
        level = logging.getLogger().level
        shop.seed("users", [(1,)], "id long", None)
        rows = [("a", 2), ("b", 3)]
        shop.run(asset("users", lambda _: shop.frame(rows, "name string, n int"), mode="create_or_replace"))
        assert shop.rows("users") == rows
        assert logging.getLogger().level == level

    def test_the_managers_mode_is_the_default(self, shop: Shop) -> None:
        shop.config = {"mode": WriteMode.append}
        shop.seed("users", [(1,)], "id long", None)
        shop.run(asset("users", lambda _: shop.frame([(1,)], "id long")))
        assert shop.rows("users") == [(1,), (1,)]

    @pytest.mark.parametrize(("option", "known"), [("mode", "create_or_replace"), ("schema_mode", "merge")])
    def test_an_unknown_mode_is_refused_with_the_known_ones(self, shop: Shop, option: str, known: str) -> None:
        choice: dict[str, Any] = {option: "upsert"}
        error = shop.failure(asset("users", lambda _: shop.frame([(1,)], "id long"), **choice))
        assert "'upsert'" in str(error)
        assert known in str(error)

    def test_no_frame_is_an_error_that_names_the_asset(self, shop: Shop) -> None:
        @dg.asset(key=["silver", "users"])
        def users():  # type: ignore[no-untyped-def]  # annotated, Dagster's own type check comes first
            return None

        error = shop.failure(users)
        assert "silver/users" in str(error)
        assert "returned None" in str(error)


@pytest.mark.pattern("data_overwrite")
class TestSchemas:
    def test_all_differences_are_listed_at_once(self, shop: Shop) -> None:
        orders = asset(
            "orders", lambda _: shop.frame([(1, "x", 2)], "id int, extra string, amount long"), contract=ORDERS
        )
        error = shop.failure(orders)
        assert isinstance(error, SchemaMismatch)
        assert error.missing == ["day", "email"]
        assert error.unexpected == ["extra"]
        assert error.mistyped == {"id": ("int", "bigint"), "amount": ("bigint", "double")}
        for fact in ("silver.orders", "day", "email", "extra", "`id` is int, declared bigint"):
            assert fact in str(error)
        assert not (shop.root / "silver" / "orders").exists()

    @pytest.mark.pattern("schema_compatibility_enforcer")
    def test_who_reads_a_column_is_told_with_the_refusal(self, shop: Shop) -> None:
        """By lineage that the readers' own runs have recorded: of columns, not of tables."""
        users = asset("users", lambda _: shop.frame([(1, "a", "b")], "id long, name string, mail string"))

        @dg.asset(key=["silver", "report"], io_manager_key="io_manager", ins={"users": dg.AssetIn(["silver", "users"])})
        def report(users):  # type: ignore[no-untyped-def]
            return users.selectExpr("id", "upper(name) AS title")

        shop.run(users, report)
        error = shop.failure(asset("users", lambda _: shop.frame([("1", 2)], "id string, mail int")))
        assert isinstance(error, SchemaMismatch)
        assert error.readers == {"name": ("silver/report.title",), "id": ("silver/report.id",)}
        assert "Who reads what it lacks: `name`: silver/report.title; `id`: silver/report.id." in str(error)

    def test_an_existing_table_decides_where_there_is_no_contract(self, shop: Shop) -> None:
        shop.seed("users", [(1, "a")], "id long, name string", None)
        error = shop.failure(asset("users", lambda _: shop.frame([(1,)], "id int")))
        assert isinstance(error, SchemaMismatch)
        assert error.missing == ["name"]
        assert "id" in error.mistyped

    @pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
    def test_a_contract_that_dropped_a_column_does_not_fill_the_tables_with_nulls(self, shop: Shop, mode: str) -> None:
        wide = "id long, day date, amount double, email string, note string"
        shop.seed("orders", [(1, None, 1.0, None, "kept")], wide, None)
        narrow = asset(
            "orders",
            lambda _: shop.frame([(2, None, 1.0, None)], "id long, day date, amount double, email string"),
            contract=ORDERS,
            mode=mode,
        )
        error = shop.failure(narrow)
        assert isinstance(error, SchemaMismatch)
        assert error.missing == ["note"]

    @pytest.mark.parametrize("mode", ["overwrite", "append", "merge", "create_or_replace"])
    def test_a_nested_name_that_cannot_be_stored_is_said_also_of_a_table_that_gains_it(
        self, shop: Shop, mode: str
    ) -> None:
        shop.seed("users", [(1,)], "id long", None)
        evolving = {} if mode == "create_or_replace" else {"schema_mode": "merge"}
        users = asset(
            "users",
            lambda _: shop.frame([(1, ("x",))], "id long, name struct<`first name`: string>"),
            mode=mode,
            merge_keys=["id"],
            **evolving,
        )
        error = shop.failure(users)
        assert isinstance(error, UnstorableName)
        assert error.name == "first name"
        assert shop.rows("users") == [(1,)]

    def test_columns_are_written_in_declared_order(self, shop: Shop) -> None:
        frame = "email string, amount double, id long, day date"
        shop.run(asset("orders", lambda _: shop.frame([("a", 1.0, 1, date(2024, 1, 1))], frame), contract=ORDERS))
        assert shop.rows("orders") == [(1, date(2024, 1, 1), 1.0, "a")]

    @pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
    def test_merge_lets_the_table_gain_columns(self, shop: Shop, mode: str) -> None:
        day = date(2024, 1, 1)
        shop.seed("users", [(1, day)], "id long, day date")
        rows = [(2, date(2024, 1, 2), "b")]

        def wider(**options: Any) -> dg.AssetsDefinition:
            return asset(
                "users",
                lambda _: shop.frame(rows, "id long, day date, name string"),
                partitions=DAILY,
                partition_expr="day",
                mode=mode,
                merge_keys=["id"],
                **options,
            )

        assert isinstance(shop.failure(wider(), key="2024-01-02"), SchemaMismatch)
        shop.run(wider(schema_mode="merge"), key="2024-01-02")
        assert shop.rows("users") == [(1, day, None), (2, date(2024, 1, 2), "b")]

    @pytest.mark.pattern("schema_compatibility_enforcer")
    @pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
    def test_a_table_gains_what_its_contract_has_gained(self, shop: Shop, mode: str) -> None:
        """A contract that a new optional column is compatible with: no home that has the table already stops over it."""
        day = date(2024, 1, 1)
        shop.seed("orders", [(1, day, 1.0, None)], ORDER)
        rows = [(2, date(2024, 1, 2), 2.0, None, "n")]
        later = asset("orders", lambda _: shop.frame(rows, f"{ORDER}, note string"), contract=NOTED, mode=mode,
                      partitions=DAILY, partition_expr="day")  # fmt: skip
        shop.run(later, key="2024-01-02")
        assert shop.rows("orders") == [(1, day, 1.0, None, None), *rows]

    def test_overwrite_replaces_the_schema_of_a_whole_table_and_never_of_a_partitioned_one(self, shop: Shop) -> None:
        shop.seed("users", [(1,)], "id long", None)
        shop.config = {"schema_mode": SchemaMode.overwrite}
        shop.run(asset("users", lambda _: shop.frame([("a",)], "name string")))
        assert shop.rows("users") == [("a",)]
        days = asset(
            "days",
            lambda _: shop.frame([(1, date(2024, 1, 1))], "id long, day date"),
            partitions=DAILY,
            partition_expr="day",
        )
        assert "is partitioned" in str(shop.failure(days, key="2024-01-01"))
        appending = asset("users", lambda _: shop.frame([(1,)], "id long"), mode="append")
        assert "cannot replace its schema" in str(shop.failure(appending))


class TestInputs:
    def test_columns_selects_columns(self, shop: Shop) -> None:
        users = asset("users", lambda _: shop.frame([], "id long"))
        shop.seed("users", [(1, "a", True)], "id long, name string, vip boolean", None)
        seen: list[tuple[object, ...]] = []

        @dg.asset(ins={"users": dg.AssetIn(["silver", "users"], metadata={"columns": ["vip", "id"]})})
        def reader(users: DataFrame) -> None:
            seen.extend((tuple(users.columns), *map(tuple, users.collect())))

        shop.run(users, reader, select=[reader])
        assert seen == [("vip", "id"), (True, 1)]

    def test_a_missing_table_is_named_unless_the_input_says_that_it_may_be_missing(self, shop: Shop) -> None:
        orders = asset("orders", lambda _: shop.frame([], "id long"), contract=ORDERS)
        counts: list[int] = []

        @dg.asset(ins={"orders": dg.AssetIn(["silver", "orders"])})
        def strict(orders: DataFrame) -> None:
            counts.append(orders.count())

        @dg.asset(ins={"orders": dg.AssetIn(["silver", "orders"], metadata={"if_missing": "empty"})})
        def tolerant(orders: DataFrame) -> None:
            assert orders.columns == list(Orders.to_schema().columns)
            counts.append(orders.count())

        error = shop.failure(orders, strict, select=[strict])
        assert isinstance(error, TableMissing)
        assert "`silver.orders` does not exist yet" in str(error)
        assert "mark the input as optional" in str(error)
        shop.run(orders, tolerant, select=[tolerant])
        assert counts == [0]

    @pytest.mark.pattern("data_overwrite")
    def test_a_missing_table_without_a_contract_is_not_said_to_be_optional_so_easily(self, shop: Shop) -> None:
        @dg.asset(ins={"users": dg.AssetIn(["silver", "users"])})
        def strict(users: DataFrame) -> None: ...

        users = asset("users", lambda _: shop.frame([(1,)], "id long"))
        error = shop.failure(users, strict, select=[strict])
        assert isinstance(error, TableMissing)
        assert "give its asset a `contract`" in str(error)

    @pytest.mark.pattern("data_overwrite")
    @pytest.mark.parametrize(
        ("value", "contract", "said"),
        [("empty", None, "without a contract"), ("nothing", ORDERS, 'the only value is "empty"')],
    )
    def test_an_input_that_cannot_be_optional_is_refused_before_the_table_is_missing(
        self, shop: Shop, value: str, contract: str | None, said: str
    ) -> None:
        order = "id long, day date, amount double, email string"
        orders = asset("orders", lambda _: shop.frame([], order), contract=contract)
        shop.seed("orders", [(1, None, 1.0, None)], order, None)

        @dg.asset(ins={"orders": dg.AssetIn(["silver", "orders"], metadata={"if_missing": value})})
        def tolerant(orders: DataFrame) -> None: ...

        error = shop.failure(orders, tolerant, select=[tolerant])
        assert isinstance(error, UnusableIfMissing)
        assert said in str(error)

    @pytest.mark.pattern("data_overwrite")
    def test_a_self_dependency_starts_without_a_table_and_then_reads_the_day_before(self, shop: Shop) -> None:
        @dg.asset(
            key=["silver", "totals"],
            partitions_def=DAILY,
            metadata={"partition_expr": "day", "contract": ORDERS},
            ins={
                "before": dg.AssetIn(
                    ["silver", "totals"],
                    partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
                )
            },
        )
        def totals(context: dg.AssetExecutionContext, before: DataFrame) -> DataFrame:
            total = sum((row.amount for row in before.collect()), 0.0)
            day = date.fromisoformat(context.partition_key)
            return shop.frame([(day.day, day, total + day.day, None)], "id long, day date, amount double, email string")

        for day in (1, 2, 3, 2):
            shop.run(totals, key=f"2024-01-0{day}")
        assert [(r[0], r[2]) for r in shop.rows("totals")] == [(1, 1.0), (2, 3.0), (3, 6.0)]

    def test_an_unpartitioned_reader_gets_all_partitions(self, shop: Shop) -> None:
        days = asset(
            "days",
            lambda c: shop.frame([(1, date.fromisoformat(c.partition_key))], "id long, day date"),
            partitions=DAILY,
            partition_expr="day",
        )
        seen: list[str] = []

        @dg.asset(ins={"days": dg.AssetIn(["silver", "days"])})
        def reader(days: DataFrame) -> None:
            seen.extend(sorted(str(r.day) for r in days.collect()))

        shop.seed("days", [(1, date(2024, 1, 1)), (1, date(2024, 1, 3))], "id long, day date")
        shop.run(days, reader, select=[reader])
        assert seen == ["2024-01-01", "2024-01-03"]

    def test_a_notebook_reads_a_table_or_one_partition_of_it(self, shop: Shop) -> None:
        days = asset(
            "days",
            lambda c: shop.frame([(1, date.fromisoformat(c.partition_key))], "id long, day date"),
            partitions=DAILY,
            partition_expr="day",
        )
        shop.seed("days", [(1, date(2024, 1, 1)), (1, date(2024, 1, 3))], "id long, day date")
        definitions = dg.Definitions([days], resources={"io_manager": shop.manager})
        with definitions.get_asset_value_loader(shop.instance) as loader:
            table = loader.load_asset_value(days.key)
            partition = loader.load_asset_value(days.key, partition_key="2024-01-03")
        assert sorted(str(row.day) for row in table.collect()) == ["2024-01-01", "2024-01-03"]
        assert [str(row.day) for row in partition.collect()] == ["2024-01-03"]

    def test_a_damaged_file_of_an_input_is_named(self, shop: Shop) -> None:
        shop.seed("users", [(1, "a")], "id long, name string", None)
        (file,) = (shop.root / "silver" / "users").glob("*.parquet")
        file.write_bytes(file.read_bytes()[:-20])
        copy = asset("copy", lambda _: shop.spark.read.format("delta").load(shop.uri("users")))
        with pytest.raises(Exception, match="parquet") as caught:
            shop.run(copy)
        told, cause = "", cast("BaseException | None", caught.value)
        while cause is not None:
            told, cause = told + str(cause), cause.__cause__
        assert file.name in told
        assert TableLog.open(shop.uri("copy")) is None


def test_the_refusals_are_permanent() -> None:
    assert issubclass(SchemaMismatch, PermanentError)
    assert issubclass(TableMissing, PermanentError)
