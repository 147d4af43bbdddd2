"""Online Observer: the figures of a write come from its own pass, and tell only what landed."""

import math
import os
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from uuid import uuid4

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from dagster_delta import WriteMode
from io_manager_support import CHANGES, DAILY, OBSERVER, ORDER, ORDERS, Orders, Shop, asset
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from de_resources.compat.java_process import wait_until_told
from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.slices import Slice, make_slice
from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write import stream
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.stored_form import AS_IT_IS, StoredForm
from de_resources.delta.write.stream import CHECKPOINT
from de_resources.delta.write.writer import Write
from de_resources.observers import online
from de_resources.observers.online import MOST_COLUMNS, ObserverFailed, OnlineObserver
from de_resources.observers.settings import NoSuchSetting

pytestmark = pytest.mark.pattern("online_observer")

CLOSELY = {"closely": ["pages", "share", "born", "day", "pay"]}
KEY, DAY = "2024-01-01", date(2024, 1, 1)


class Broken(OnlineObserver):
    """One that cannot look."""

    def measures(self, *_: Any) -> list[Any]:
        raise ZeroDivisionError("no figure is known")


BROKEN = f"{__name__}:Broken"


def orders(shop: Shop, rows: list[tuple[Any, ...]], **metadata: Any) -> dg.AssetsDefinition:
    settings = {"partition_expr": "day", "contract": ORDERS, "writer": OBSERVER, **metadata}
    return asset("orders", lambda _: shop.frame(rows, ORDER), partitions=DAILY, **settings)


def observed(shop: Shop, result: dg.ExecuteInProcessResult, prefix: str = "observer/") -> dict[str, Any]:
    """What the observer told, by column and figure; without its table for people."""
    found = shop.metadata(result, "orders")
    told = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
    told.pop("columns", None)
    return told


def append(request: WriteRequest) -> Written:
    """What is inside of the observer, without all that a run and the platform's own writer do besides: Spark appends."""
    table, frame = request.table, request.form.encoded(request.frame, request.table.name)
    writer = frame.write.format("delta").partitionBy(*table.partitioned_by).options(**table.properties)
    writer.mode("append").save(table.uri)
    log = table.log()
    assert log is not None
    (commit,) = log.commits(1)
    return Written(commit.version, commit, None, None, 0.0)


def told_of(
    shop: Shop,
    frame: DataFrame,
    contract: type[pa.DataFrameModel] | None = None,
    *,
    observer: type[OnlineObserver] = OnlineObserver,
    inside: Write = append,
    slice_: Slice | None = None,
    properties: Mapping[str, str] | None = None,
    form: StoredForm = AS_IT_IS,
    **observe: Any,
) -> dict[str, Any]:
    """What an observer alone tells of a frame that is appended."""
    by = slice_.columns if slice_ else ()
    own = Contract.of(contract) if contract else None
    table = Table("silver.orders", shop.uri("orders"), own, tuple(by), properties or {})
    stamp = CommitInfo("silver.orders", "silver/orders", "all", "run", "run", uuid4().hex)
    metadata = {"observe": observe} if observe else {}
    request = WriteRequest(shop.spark, frame, table, slice_, stamp, WriteMode.append, metadata=metadata, form=form)
    around = observer()
    written = around.write(request, inside)
    assert not around.record_by_key(request, written)
    told = around.record(request, written)
    return {name.replace("observer/", ""): getattr(figure, "value", figure) for name, figure in told.items()}


def without_table(told: dict[str, Any]) -> dict[str, Any]:
    """The figures, without the table for people."""
    return {name: figure for name, figure in told.items() if name != "columns"}


def test_figures_are_those_of_the_rows_that_landed(shop: Shop) -> None:
    amounts = [1.0, 2.0, 3.0, 4.0, 100.0, None, math.nan, math.inf]
    rows = [(n, DAY, amount, "ann@example.org" if n % 2 else None) for n, amount in enumerate(amounts)]
    told = told_of(shop, shop.frame(rows, ORDER), Orders, slice_=make_slice([KEY], DAILY, "day"))
    table = told.pop("columns")
    assert told == {
        "rows": 8,
        "id/nulls": 0,
        "id/min": 0,
        "id/max": 7,
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
    assert "| day | 0 | 1 | 2024-01-01 |" in table
    assert "example.org" not in table


def test_a_range_of_too_many_figures_tells_of_the_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "MOST_AGGREGATES", 3 * 2 - 1)  # rows and distinct of one column, by day
    rows = [(n, date(2024, 1, 2 if n else 1), float(n), None) for n in range(3)]
    days = make_slice(["2024-01-01", "2024-01-02", "2024-01-03"], DAILY, "day")
    told = told_of(shop, shop.frame(rows, ORDER), Orders, slice_=days, columns=["email"])
    assert told.pop("run/columns")
    assert told == {"run/rows": 3, "run/email/nulls": 3, "run/email/distinct": 0}


def test_a_write_that_was_not_repeated_tells_nothing_of_its_own(shop: Shop) -> None:
    """Nobody computes its rows: who asked for their figures would wait for ever."""
    known = Written(7, None, None, None, 0.0, skipped="it was already committed", repeated=True)
    told = told_of(shop, shop.frame([(1, DAY, 1.0, None)], ORDER), Orders, inside=lambda _: known)
    assert told == {"not_observed": "it was already committed"}


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
    told = told_of(shop, shop.frame([(1, DAY, 1.0, None)], ORDER), Orders)
    assert told == {"not_observed": "2 rows were seen and 1 committed"}


def test_a_write_that_is_refused_is_not_told(shop: Shop) -> None:
    shop.failure(orders(shop, [(1, date(2024, 1, 2), 1.0, None)]), key=KEY)
    records = shop.instance.fetch_materializations(dg.AssetKey(["silver", "orders"]), limit=1).records
    assert not records
    assert TableLog.open(shop.uri("orders")) is None


class TestFailing:
    """What fails in looking is told, and fails the write where the asset says so only."""

    ROWS: list[tuple[Any, ...]] = [(1, DAY, 1.0, None)]  # noqa: RUF012

    def test_the_rows_are_written(self, shop: Shop) -> None:
        told = told_of(shop, shop.frame(self.ROWS, ORDER), Orders, observer=Broken)
        assert told == {"not_observed": "ZeroDivisionError: no figure is known"}
        assert len(shop.rows("orders")) == 1

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"writer": BROKEN}, "no figure is known"),
            ({"observe": {"columns": ["price"]}}, "there is no column 'price'"),
        ],
        ids=["one that cannot look", "a column that is gone"],
    )
    def test_nothing_is_written_where_it_is_required(self, shop: Shop, options: dict[str, Any], why: str) -> None:
        required = {**options, "observe": {**options.get("observe", {}), "required": True}}
        error = shop.failure(orders(shop, self.ROWS, **required), key=KEY)
        assert isinstance(error, ObserverFailed)
        assert why in str(error)
        assert not error.committed
        assert not Path(shop.uri("orders")).exists()

    @pytest.mark.parametrize("observe", [{"sampel": 0.1}, {"sample": 0}, {"sample": 2}, {"columns": "id"}, "all"])
    def test_a_setting_that_cannot_be_followed_is_refused(self, shop: Shop, observe: object) -> None:
        assert isinstance(shop.failure(orders(shop, self.ROWS, observe=observe), key=KEY), NoSuchSetting)


def test_a_sample_is_looked_at_for_quantiles_and_all_rows_for_the_rest(shop: Shop) -> None:
    rows = [(n, DAY, None if n % 4 == 0 else float(n), None) for n in range(2000)]
    told = without_table(told_of(shop, shop.frame(rows, ORDER), Orders, columns=["amount", "email", "day"], sample=0.2))
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
        observe={"closely": ["gone"]},
    )
    told = observed(shop, shop.run(merged))
    assert (told["rows"], told["seq/max"], told["gone/true"]) == (50, 49, 0)
    assert "not_observed" in observed(shop, shop.run(merged)), "a replay changes nothing"


OF_EVERY_KIND = """
    SELECT CAST(NULL AS DOUBLE) v, CAST(NULL AS STRING) t, CAST('NaN' AS FLOAT) n, 7 one, '' e,
        NAMED_STRUCT('a', 1) s, ARRAY(1) l, MAP('k', 1) m, X'00' b, 1 `a.b`, 2 `c``d`, 3 `e'"f`
    FROM range(3)
"""
"""Only nulls, only NaN, one value, nested and binary ones, hostile names."""


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("SELECT CAST(NULL AS DOUBLE) v FROM range(0)", {"rows": 0, "v/nulls": 0}),
        (
            OF_EVERY_KIND,
            {
                "rows": 3,
                **dict.fromkeys(("v/nulls", "t/nulls"), 3),
                **{f"{column}/nulls": 0 for column in ("n", "one", "e", "s", "l", "m", "b", "a.b", "c`d", "e'\"f")},
                "t/distinct": 0,
                "one/distinct": 1,
                "e/distinct": 1,
                "c`d/distinct": 1,
            },
        ),
    ],
    ids=["empty", "of every kind"],
)
def test_any_frame_is_observed(shop: Shop, frame: str, expected: Mapping[str, object]) -> None:
    rows = shop.spark.sql(frame)
    told = without_table(told_of(shop, rows, columns=rows.columns))
    assert told.items() >= expected.items()
    # Nobody said of any column that it is not personal.
    assert {name.rpartition("/")[2] for name in told} <= {"rows", "nulls", "distinct"}


@pytest.mark.parametrize("columns", [MOST_COLUMNS + 5, 10_000])
def test_of_a_wide_table_the_first_columns_are_observed(shop: Shop, columns: int) -> None:
    wide = ", ".join(f"{n} c{n}" for n in range(columns))
    told = without_table(told_of(shop, shop.spark.sql(f"SELECT {wide}")))
    assert told["columns_left_out"] == columns - MOST_COLUMNS
    assert {name for name in told if name.endswith("/nulls")} == {f"c{n}/nulls" for n in range(MOST_COLUMNS)}


VALUES: Mapping[str, tuple[list[float | None], Mapping[str, float]]] = {
    "2024-01-01": ([None, None, None], {"nulls": 3, "not_finite": 0}),
    "2024-01-02": ([math.nan, math.nan], {"nulls": 0, "not_finite": 2}),
    "2024-01-03": ([math.inf, -math.inf, None], {"nulls": 1, "not_finite": 2}),
    "2024-01-04": ([math.nan, 7.0, math.inf], {"nulls": 0, "not_finite": 2, "min": 7.0, "max": 7.0, "median": 7.0}),
    "2024-01-05": ([7.0, 7.0, 7.0], {"nulls": 0, "not_finite": 0, "min": 7.0, "max": 7.0, "median": 7.0}),
    "2024-01-06": (
        [-0.0, 5e-324, 1.7976931348623157e308],
        {"nulls": 0, "not_finite": 0, "min": 0.0, "max": 1.7976931348623157e308, "median": 5e-324},
    ),
    "2024-01-07": ([], {"nulls": 0, "not_finite": 0}),
}
"""Days that hold: only nulls, only NaN, only infinities, one number among them, one value, the limits, no rows."""


def test_each_partition_of_a_range_tells_of_its_rows_and_what_is_no_number_is_no_bound(shop: Shop) -> None:
    rows = [
        (n, date.fromisoformat(day), value, None)
        for day, (values, _) in VALUES.items()
        for n, value in enumerate(values)
    ]
    result = shop.run(orders(shop, rows, observe={"columns": ["amount"]}), keys=(min(VALUES), max(VALUES)))
    for event in result.asset_materializations_for_node("silver__orders"):
        values, expected = VALUES[str(event.partition)]
        told = {name: figure.value for name, figure in event.metadata.items()}
        found = {name.rpartition("/")[2]: told[name] for name in told if name.startswith("observer/amount/")}
        assert found == expected, event.partition
        assert told["observer/rows"] == len(values)
        assert not [name for name in told if name.startswith("run/observer/")], "each partition has its own"


class Visits(pa.DataFrameModel):
    """What only the commit tells, and what it may not tell."""

    day: T.DateType = pa.Field(nullable=True)
    at: T.TimestampType = pa.Field(nullable=True)
    born: T.DateType = pa.Field(nullable=True, metadata={"personal": True})
    pay: T.LongType = pa.Field(nullable=True, metadata={"personal": True})
    pages: T.IntegerType = pa.Field(nullable=True)
    share: T.DoubleType = pa.Field(nullable=True)

    class Config:
        name = "silver.visits"


VISITS = "day date, at timestamp, born date, pay long, pages int, share double"
SEEN = [
    (None, datetime(2024, 1, 2, 3, 4, 5, 678000), date(1970, 5, 6), 7000, 3, math.nan),
    (date(2024, 1, 3), datetime(2023, 12, 31, 23, 59, 59), date(1980, 1, 1), 8000, None, 0.25),
    (date(2024, 1, 2), None, None, None, 9, None),
]
TOLD = {
    "rows": 3,
    "day/nulls": 1,
    "day/distinct": 2,
    "at/nulls": 1,
    "born/nulls": 1,
    "born/distinct": 2,
    "pay/nulls": 1,
    "pay/distinct": 2,
    "pages/nulls": 1,
    "pages/distinct": 2,
    "pages/min": 3,
    "pages/max": 9,
    "pages/median": 3,
    "share/nulls": 1,
    "share/not_finite": 1,
    "share/min": 0.25,
    "share/max": 0.25,
    "share/median": 0.25,
}
BOUNDS = "| day | 1 | 2 | 2024-01-02 |  |  |  |  |  | 2024-01-03 |"
MOMENTS = "| at | 1 |  | 2023-12-31 23:59:59 |  |  |  |  |  | 2024-01-02 03:04:05.678000 |"


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.dataSkippingNumIndexedCols": "0"},
        {"delta.dataSkippingNumIndexedCols": "2"},
        {"delta.dataSkippingStatsColumns": "at"},
        {"delta.columnMapping.mode": "name"},
    ],
    ids=["all", "none", "the first two", "chosen ones", "under other names"],
)
def test_the_figures_are_the_same_whatever_statistics_the_commit_has(shop: Shop, properties: Mapping[str, str]) -> None:
    told = told_of(shop, shop.frame(SEEN, VISITS), Visits, properties=properties, **CLOSELY)
    table = told.pop("columns")
    assert told == TOLD
    assert BOUNDS in table
    assert MOMENTS in table
    assert not any(personal in table for personal in ("1970", "1980", "7,000", "8,000"))


def test_rows_that_are_stored_in_another_form_are_told_as_they_were_meant(shop: Shop) -> None:
    """Another number is stored than is meant."""
    turned = StoredForm(
        lambda frame: frame.withColumn("pages", -F.col("pages")).withColumn("day", F.lit(None).cast("date"))
    )
    told = told_of(shop, shop.frame(SEEN, VISITS), Visits, form=turned, **CLOSELY)
    assert BOUNDS in told.pop("columns")
    assert told == TOLD
    assert {row[0] for row in shop.rows("orders")} == {None}, "it is stored otherwise"


def test_what_the_commit_tells_is_not_measured_as_well(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    watched = online.measures_of
    monkeypatch.setattr(
        online,
        "measures_of",
        lambda *a, **k: [m for m in watched(*a, **k) if not measured.append(f"{m.column}/{m.name}")],  # type: ignore[func-returns-value]
    )
    told = told_of(shop, shop.frame(SEEN, VISITS), Visits, **CLOSELY)
    assert BOUNDS in told.pop("columns")
    assert told == TOLD
    assert sorted(measured) == [
        "/rows",
        "born/distinct",
        "day/distinct",
        "pages/distinct",
        "pages/number",
        "pay/distinct",
        "share/number",
    ]


def test_statistics_of_other_rows_are_not_taken_for_those_of_the_write(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an engine writes without them: what they alone would tell is left out, and nothing is guessed."""
    monkeypatch.setattr(online, "told_by", lambda *_: None)
    told = without_table(told_of(shop, shop.frame(SEEN, VISITS), Visits, **CLOSELY))
    assert told["rows"] == 3
    assert not [name for name in told if name.endswith(("/nulls", "not_finite"))]
    assert told["pages/max"] == 9


class Wide(pa.DataFrameModel):
    """More columns than are looked at closely."""

    name: T.StringType = pa.Field(nullable=True)
    n1: T.LongType = pa.Field(nullable=True)
    n2: T.LongType = pa.Field(nullable=True)
    n3: T.IntegerType = pa.Field(nullable=True)
    d1: T.DoubleType = pa.Field(nullable=True)
    d2: T.DoubleType = pa.Field(nullable=True)
    price: T.DecimalType = pa.Field(nullable=True)
    flag: T.BooleanType = pa.Field(nullable=True)

    class Config:
        name = "silver.wide"


class TestClosely:
    """Nulls and bounds of all columns; distinct values, quantiles and the like of those that matter."""

    SCHEMA = "name string, n1 long, n2 long, n3 int, d1 double, d2 double, price decimal(10,0), flag boolean"
    ROWS: list[tuple[Any, ...]] = [  # noqa: RUF012
        ("a", 1, 10, 5, 0.1, math.nan, Decimal(3), True),
        (None, 3, 20, None, 2.5, 7.0, None, False),
        ("b", 3, 30, 9, None, None, Decimal(8), None),
    ]
    BOUNDS: Mapping[str, object] = {
        "rows": 3,
        "name/nulls": 1,
        "n1/nulls": 0,
        "n1/min": 1,
        "n1/max": 3,
        "n2/nulls": 0,
        "n2/min": 10,
        "n2/max": 30,
        "n3/nulls": 1,
        "n3/min": 5,
        "n3/max": 9,
        "d1/nulls": 1,
        "d1/min": 0.1,
        "d1/max": 2.5,
        "d2/nulls": 1,
        "price/nulls": 1,
        "price/min": 3.0,
        "price/max": 8.0,
        "flag/nulls": 1,
    }

    def told(self, shop: Shop, **options: Any) -> dict[str, Any]:
        # In one file, where NaN is beside a number.
        return without_table(told_of(shop, shop.frame(self.ROWS, self.SCHEMA).coalesce(1), Wide, **options))

    def test_where_nobody_says_the_first_numbers_are_looked_at(self, shop: Shop) -> None:
        """Three figures: those of the first whole number, and the quantiles of the first measurement."""
        close = {"n1/distinct": 2, "n1/median": 3.0, "d1/median": 0.1, "d1/not_finite": 0}
        assert self.told(shop) == {**self.BOUNDS, **close}

    def test_an_asset_says_which_matter(self, shop: Shop) -> None:
        close = {"d2/min": 7.0, "d2/max": 7.0, "d2/median": 7.0, "d2/not_finite": 1, "flag/true": 1}
        assert self.told(shop, closely=["d2", "flag"]) == {**self.BOUNDS, **close}

    def test_none_may_be_looked_at_closely(self, shop: Shop) -> None:
        assert self.told(shop, closely=[]) == self.BOUNDS

    def test_columns_that_are_named_are_looked_at_closely(self, shop: Shop) -> None:
        told = self.told(shop, columns=["name", "price"])
        assert told == {
            "rows": 3,
            "name/nulls": 1,
            "name/distinct": 2,
            "name/longest": 1,
            "price/nulls": 1,
            "price/min": 3.0,
            "price/max": 8.0,
            "price/median": 3.0,
        }

    def test_the_bounds_are_measured_where_the_commit_does_not_tell_them(self, shop: Shop) -> None:
        told = self.told(shop, closely=[], properties={"delta.dataSkippingNumIndexedCols": "0"})
        # Those of the numbers, which a commit with NaN in it cannot tell.
        assert told == {**self.BOUNDS, "d2/min": 7.0, "d2/max": 7.0}


class TestStream:
    """Each micro-batch is measured on its own job; one file makes a batch."""

    FIELDS = "day date, at timestamp, born date, pay long, pages int, share double"
    FILES = (
        '{"day": "2024-01-03", "at": "2024-01-02T03:04:05", "born": "1970-05-06", "pay": 7000, "pages": 3, "share": "NaN"}\n'
        '{"day": null, "at": null, "born": null, "pay": null, "pages": 9, "share": 0.25}\n',
        '{"day": "2024-01-02", "at": "2023-12-31T23:59:59", "born": null, "pay": 1, "pages": null, "share": -4.5}\n',
        '{"day": null, "at": null, "born": null, "pay": 2, "pages": null, "share": null}\n',
    )
    TOLD: Mapping[str, object] = {
        "rows": 4,
        "day/nulls": 2,
        "at/nulls": 2,
        "born/nulls": 3,
        "pay/nulls": 1,
        "pages/nulls": 2,
        "pages/min": 3,
        "pages/max": 9,
        "share/nulls": 1,
        "share/not_finite": 1,
        "share/min": -4.5,
        "share/max": 0.25,
    }

    def land(self, shop: Shop, *files: str) -> None:
        inbox = shop.root / "inbox"
        inbox.mkdir(parents=True, exist_ok=True)
        for text in files:
            place = len(list(inbox.iterdir()))
            (inbox / f"{place}.json").write_text(text)
            os.utime(inbox / f"{place}.json", (place, place))

    def drain(self, shop: Shop, name: str = "orders", **metadata: Any) -> dg.ExecuteInProcessResult:
        def lines(_: dg.AssetExecutionContext) -> DataFrame:
            stream = shop.spark.readStream.schema(self.FIELDS).option("maxFilesPerTrigger", 1)
            return stream.option("allowNonNumericNumbers", True).json(str(shop.root / "inbox"))

        metadata = {"contract": f"{__name__}:Visits", "mode": "append", "writer": OBSERVER, **metadata}
        return shop.run(asset(name, lines, **metadata))

    @pytest.mark.parametrize(
        "properties",
        [{}, {"delta.dataSkippingNumIndexedCols": "0"}, {"delta.dataSkippingNumIndexedCols": "2"}],
        ids=["all", "none", "the first two"],
    )
    def test_its_figures_are_those_of_all_micro_batches(self, shop: Shop, properties: Mapping[str, str]) -> None:
        first, *others = self.FILES
        self.land(shop, first, "".join(others))
        result = self.drain(shop, table_configuration=properties)
        assert observed(shop, result) == {**self.TOLD, "batches": ANY}
        batches = shop.metadata(result, "orders")["observer/batches"].splitlines()[2:]
        assert [re.findall(r"^\| (\d+) \| \d+ \| (\d+) \|", line) for line in batches] == [
            [("0", "2")],
            [("1", "2")],
        ]
        assert "born 2, pages 2" in batches[1]
        shown = shop.metadata(result, "orders")["observer/columns"]
        assert not any(personal in shown for personal in ("1970", "7,000"))

    def test_the_keys_are_those_of_any_increment(self, shop: Shop) -> None:
        self.land(shop, self.FILES[0])
        first = observed(shop, self.drain(shop))
        self.land(shop, self.FILES[0], self.FILES[0])
        assert set(observed(shop, self.drain(shop))) == set(first)

    def test_the_next_increment_tells_of_its_own_rows_though_one_was_committed_before_a_death(self, shop: Shop) -> None:
        """The stream died after a commit and before it noted it: the next run repeats the batch, and adds nothing."""
        name, kept = stream._PROGRESS_KEPT
        self.land(shop, self.FILES[0], self.FILES[2])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream, "_PROGRESS_KEPT", (name, "2"))  # one of them, and how it ended
            told = observed(shop, self.drain(shop))
        shop.spark.conf.set(name, kept)
        assert told == {"not_observed": "the engine did not tell of every micro-batch"}

        newest = max((Path(shop.uri("orders")) / CHECKPOINT / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        self.land(shop, self.FILES[1])
        told = observed(shop, self.drain(shop))
        assert len(shop.rows("orders")) == 4
        assert (told["rows"], told["share/min"], told["share/max"], told["pages/nulls"]) == (1, -4.5, -4.5, 1)

    def test_observing_it_costs_no_job(self, shop: Shop) -> None:
        jobs = []
        self.land(shop, self.FILES[0])
        for name, metadata in {"plain": {"writer": []}, "watched": {}}.items():
            before = self.newest_job(shop)
            self.drain(shop, name=name, **metadata)
            jobs.append(self.newest_job(shop) - before)
        plain, watched = jobs
        assert 0 < watched <= plain

    @staticmethod
    def newest_job(shop: Shop) -> int:
        """The number of the last job of all, for a stream's jobs are in a group of its own."""
        wait_until_told(shop.spark)
        jobs = shop.spark.sparkContext._jsc.sc().statusStore().jobsList(None)
        return max(jobs.apply(place).jobId() for place in range(jobs.size()))

    def test_a_column_that_is_gone(self, shop: Shop) -> None:
        self.land(shop, self.FILES[0])
        told = observed(shop, self.drain(shop, observe={"columns": ["price"]}))
        assert told == {"not_observed": "LookupError: there is no column 'price'"}
        assert len(shop.rows("orders")) == 2
