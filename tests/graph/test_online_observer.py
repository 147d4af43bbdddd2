"""Online Observer: the figures of a write come from its own pass, and tell only what landed."""

import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from io_manager_support import CHANGES, ORDERS, Shop, asset
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from test_io_manager_metadata import counted_jobs

from de_resources.delta.write.crash_points import at
from de_resources.observers import online
from de_resources.observers.online import MOST_COLUMNS, ObserverFailed, OnlineObserver
from de_resources.observers.settings import NoSuchSetting
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("online_observer")

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
ORDER = "id long, day date, amount double, email string"
KEY, DAY = "2024-01-01", date(2024, 1, 1)
OBSERVER = "de_resources.observers.online:OnlineObserver"


class Broken(OnlineObserver):
    """One that cannot look."""

    def measures(self, *_: Any) -> list[Any]:
        raise ZeroDivisionError("no figure is known")


BROKEN = f"{__name__}:Broken"


@pytest.fixture
def shop(engine: SparkEngine, lake: Path) -> Shop:
    return Shop(engine, lake)


def orders(shop: Shop, rows: list[tuple[Any, ...]], **metadata: Any) -> dg.AssetsDefinition:
    settings = {"partition_expr": "day", "contract": ORDERS, "writer": OBSERVER, **metadata}
    return asset("orders", lambda _: shop.frame(rows, ORDER), partitions=DAILY, **settings)


def observed(shop: Shop, result: dg.ExecuteInProcessResult, prefix: str = "observer/") -> dict[str, Any]:
    """What the observer told, by column and figure; without its table for people."""
    found = shop.metadata(result, "orders")
    told = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
    told.pop("columns", None)
    return told


def test_figures_are_those_of_the_rows_that_landed(shop: Shop) -> None:
    amounts = [1.0, 2.0, 3.0, 4.0, 100.0, None, math.nan, math.inf]
    rows = [(n, DAY, amount, "ann@example.org" if n % 2 else None) for n, amount in enumerate(amounts)]
    result = shop.run(orders(shop, rows), key=KEY)
    assert observed(shop, result) == {
        "rows": 8,
        "id/nulls": 0,
        "id/min": 0,
        "id/max": 7,
        "id/median": 3,
        "day/nulls": 0,
        "day/distinct": 1,
        "amount/nulls": 1,
        "amount/min": 1.0,
        "amount/max": 100.0,
        "amount/median": 3.0,
        "amount/not_finite": 2,
        "email/nulls": 4,
        "email/distinct": 1,
    }
    table = shop.metadata(result, "orders")["observer/columns"]
    assert "| day | 0 | 1 | 2024-01-01 |" in table
    assert "example.org" not in table


def test_observing_costs_no_job_and_every_row_is_computed_once(shop: Shop, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def witness(number: int) -> int:
        with seen.open("a") as file:
            file.write(".")
        return number

    counting = F.udf(witness, "long").asNondeterministic()
    rows = [(i, DAY, float(i), None) for i in range(100)]

    def definition(**metadata: Any) -> dg.AssetsDefinition:
        def make(_: dg.AssetExecutionContext) -> DataFrame:
            return shop.frame(rows, ORDER).withColumn("id", counting("id"))

        return asset("orders", make, partitions=DAILY, partition_expr="day", contract=ORDERS, **metadata)

    plain, watched = definition(), definition(writer=OBSERVER)
    shop.run(plain, key=KEY)
    jobs: dict[str, int] = {}
    for name, each in {"plain": plain, "watched": watched}.items():
        seen.unlink(missing_ok=True)
        with counted_jobs(shop, name) as group:
            result = shop.run(each, key=KEY)
        jobs[name] = len(group)
        assert seen.stat().st_size == 100
    assert 0 < jobs["watched"] <= jobs["plain"]
    assert observed(shop, result)["rows"] == 100


def told_of_range(shop: Shop, **metadata: Any) -> dict[str, dict[str, Any]]:
    """What each of three days tells that were written by one run, with 1, 2 and 0 rows."""
    rows = [(n, date(2024, 1, 2 if n else 1), float(n), None) for n in range(3)]
    result = shop.run(orders(shop, rows, **metadata), keys=("2024-01-01", "2024-01-03"))
    events = result.asset_materializations_for_node("silver__orders")
    return {str(e.partition): {k: v.value for k, v in e.metadata.items() if "observer/" in k} for e in events}


def test_a_range_tells_of_each_partition(shop: Shop) -> None:
    told = told_of_range(shop)
    assert {key: found["observer/rows"] for key, found in told.items()} == {
        "2024-01-01": 1,
        "2024-01-02": 2,
        "2024-01-03": 0,
    }
    assert [told["2024-01-02"][f"observer/{figure}"] for figure in ("amount/min", "amount/max", "email/nulls")] == [
        1,
        2,
        2,
    ]
    assert "observer/amount/min" not in told["2024-01-03"]
    assert not [name for found in told.values() for name in found if name.startswith("run/")]


def test_a_range_of_too_many_figures_tells_of_the_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "MOST_AGGREGATES", 3 * 3 - 1)  # rows, nulls and distinct of one column, by day
    for found in told_of_range(shop, observe={"columns": ["email"]}).values():
        assert found.pop("run/observer/columns")
        assert found == {"run/observer/rows": 3, "run/observer/email/nulls": 3, "run/observer/email/distinct": 0}


def test_a_retry_that_finds_its_rows_committed_tells_nothing_of_its_own(shop: Shop) -> None:
    died: list[str] = []

    def die_once(table: str) -> None:
        if not died:
            died.append(table)
            raise RuntimeError("after the commit")

    with at("after_commit", die_once):
        result = shop.run(orders(shop, [(1, DAY, 1.0, None)], mode="append", retries=1), key=KEY)
    assert died
    assert len(shop.rows("orders")) == 1
    told = observed(shop, result)
    assert list(told) == ["not_observed"]
    assert "already committed" in told["not_observed"]


def test_rows_that_were_counted_twice_are_not_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a lost stage, which is computed again: the engine's own counter then has more rows than the commit."""
    get = Observation.get.fget  # type: ignore[attr-defined]
    twice = property(lambda o: {k: v * 2 if k == "k0m0" else v for k, v in get(o).items()})
    monkeypatch.setattr(Observation, "get", twice)
    told = observed(shop, shop.run(orders(shop, [(1, DAY, 1.0, None)]), key=KEY))
    assert told == {"not_observed": "2 rows were seen and 1 committed"}


def test_a_write_that_is_refused_is_not_told(shop: Shop) -> None:
    shop.failure(orders(shop, [(1, date(2024, 1, 2), 1.0, None)]), key=KEY)
    records = shop.instance.fetch_materializations(dg.AssetKey(["silver", "orders"]), limit=1).records
    assert not records
    assert shop.rows("orders") == []


class TestFailing:
    """What fails in looking is told, and fails the write where the asset says so only."""

    ROWS: list[tuple[Any, ...]] = [(1, DAY, 1.0, None)]  # noqa: RUF012

    def test_the_rows_are_written(self, shop: Shop) -> None:
        told = observed(shop, shop.run(orders(shop, self.ROWS, writer=BROKEN), key=KEY))
        assert told == {"not_observed": "ZeroDivisionError: no figure is known"}
        assert len(shop.rows("orders")) == 1

    def test_a_column_that_is_gone(self, shop: Shop) -> None:
        told = observed(shop, shop.run(orders(shop, self.ROWS, observe={"columns": ["price"]}), key=KEY))
        assert told == {"not_observed": "LookupError: there is no column 'price'"}

    def test_nothing_is_written_where_it_is_required(self, shop: Shop) -> None:
        error = shop.failure(orders(shop, self.ROWS, writer=BROKEN, observe={"required": True}), key=KEY)
        assert isinstance(error, ObserverFailed)
        assert not error.committed
        assert not Path(shop.uri("orders")).exists()

    @pytest.mark.parametrize("observe", [{"sampel": 0.1}, {"sample": 0}, {"sample": 2}, {"columns": "id"}, "all"])
    def test_a_setting_that_cannot_be_followed_is_refused(self, shop: Shop, observe: object) -> None:
        assert isinstance(shop.failure(orders(shop, self.ROWS, observe=observe), key=KEY), NoSuchSetting)


def test_a_sample_is_looked_at_for_quantiles_and_all_rows_for_the_rest(shop: Shop) -> None:
    rows = [(n, DAY, None if n % 4 == 0 else float(n), None) for n in range(2000)]
    definition = orders(shop, rows, observe={"columns": ["amount", "email", "day"], "sample": 0.2})
    told = observed(shop, shop.run(definition, key=KEY))
    assert (told["rows"], told["amount/nulls"], told["email/nulls"]) == (2000, 500, 2000)
    assert (told["amount/min"], told["amount/max"]) == (1.0, 1999.0)
    assert {name for name in told if name.startswith("day/")} == {"day/nulls"}
    assert 700 < told["amount/median"] < 1300
    assert not [name for name in told if name.endswith("distinct")]


def test_a_merge_tells_what_was_brought(shop: Shop) -> None:
    rows = [(i, i, None, False) for i in range(50)]
    merged = asset(
        "orders",
        lambda _: shop.frame(rows, "id long, seq long, email string, gone boolean"),
        contract=CHANGES,
        mode="merge",
        merge_order="seq",
        writer=OBSERVER,
    )
    told = observed(shop, shop.run(merged))
    assert (told["rows"], told["seq/max"], told["gone/true"]) == (50, 49, 0)
    assert "not_observed" in observed(shop, shop.run(merged)), "a replay changes nothing"


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("SELECT CAST(NULL AS DOUBLE) v FROM range(0)", {"rows": 0}),
        ("SELECT CAST(NULL AS DOUBLE) v, CAST(NULL AS STRING) t FROM range(3)", {"v/nulls": 3, "t/distinct": 0}),
        ("SELECT CAST('NaN' AS FLOAT) v FROM range(3)", {"v/nulls": 0}),
        ("SELECT 7 v, '' t FROM range(3)", {"v/distinct": 1, "t/distinct": 1}),
        (
            "SELECT NAMED_STRUCT('a', 1) s, ARRAY(1) l, MAP('k', 1) m, X'00' b FROM range(2)",
            {"s/nulls": 0, "m/nulls": 0},
        ),
        ("SELECT 1 `a.b`, 2 `c``d`, 3 `e'\"f` FROM range(2)", {"a.b/nulls": 0, "c`d/distinct": 1, "e'\"f/nulls": 0}),
    ],
    ids=["empty", "only nulls", "only NaN", "one value", "nested and binary", "hostile names"],
)
def test_any_frame_is_observed(shop: Shop, frame: str, expected: Mapping[str, object]) -> None:
    definition = asset("orders", lambda _: shop.spark.sql(frame), writer=OBSERVER)
    told = observed(shop, shop.run(definition))
    assert told.items() >= expected.items()
    # Nobody said of any column that it is not personal.
    assert {name.rpartition("/")[2] for name in told} <= {"rows", "nulls", "distinct"}


def test_of_a_wide_table_the_first_columns_are_observed(shop: Shop) -> None:
    wide = ", ".join(f"{n} c{n}" for n in range(MOST_COLUMNS + 5))
    told = observed(shop, shop.run(asset("orders", lambda _: shop.spark.sql(f"SELECT {wide}"), writer=OBSERVER)))
    assert told["columns_left_out"] == 5
    assert len([name for name in told if name.endswith("/nulls")]) == MOST_COLUMNS
