"""The seam around a write: a pattern is a class of its own that the asset names, whatever its mode and its IO manager."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_delta import LocalConfig, WriteMode
from documentation import snippets
from io_manager_support import ORDERS, Shop, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_resources.contract import Contract
from de_resources.delta.asset_settings import NotAtRunTime
from de_resources.delta.table import Table, Written
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import NotAWriter, Write, Writer
from de_resources.errors import PermanentError
from de_resources.proxy.io_manager import ProxyDeltaIOManager
from de_resources.spark import SparkEngine

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
D1, D2 = "2024-01-01", "2024-01-02"
SCHEMA = "id long, day date, amount double, email string"


class Refused(PermanentError):
    """A slice with a negative amount."""


class Audited(Writer):
    """Addresses are stored in lower case. A slice is staged and audited first: one with a negative amount is not shown."""

    def prepare(self, request: WriteRequest) -> WriteRequest:
        return replace(request, frame=request.frame.withColumn("email", F.lower("email")))

    def write(self, request: WriteRequest, proceed: Write) -> Written:
        staged = replace(request.table, uri=f"{request.table.uri}__staged")
        proceed(replace(request, table=staged, mode=WriteMode.overwrite))
        rows = staged.read(request.session)
        if request.slice is not None:
            rows = rows.where(request.slice.predicate(rows.schema))
        if not rows.where("amount < 0").isEmpty():
            raise Refused(f"`{request.table.name}` is not published: an amount is negative.")
        return proceed(replace(request, frame=rows))

    def record(self, request: WriteRequest, written: Written) -> Mapping[str, Any]:
        return {"audit/version": f"{written.version} by {request.stamp.writer}"}


class Exclaimed(Writer):
    """A second layer, whose work shows whether it came before or after another one's."""

    def prepare(self, request: WriteRequest) -> WriteRequest:
        return replace(request, frame=request.frame.withColumn("email", F.concat("email", F.lit("!X"))))


AUDITED, EXCLAIMED = f"{__name__}:Audited", f"{__name__}:Exclaimed"


def orders(shop: Shop, *amounts: float, **metadata: Any) -> dg.AssetsDefinition:
    """The asset `silver/orders`, one order per amount in each partition of the run."""

    def make(context: dg.AssetExecutionContext) -> DataFrame:
        days = [date.fromisoformat(key) for key in context.partition_keys]
        return shop.frame([(n, day, a, "Ann@X.org") for day in days for n, a in enumerate(amounts)], SCHEMA)

    settings = {"contract": ORDERS, "partition_expr": "day", "writer": AUDITED}
    return asset("orders", make, partitions=DAYS, **{**settings, **metadata})


def begun(shop: Shop) -> None:
    """Both tables are there, without a row, written without the engine: how they are created is not asked."""
    for name in ("orders", "orders__staged"):
        shop.seed(name, [], SCHEMA)


def row(key: str, n: int, amount: float, email: str = "ann@x.org") -> tuple[Any, ...]:
    return n, date.fromisoformat(key), amount, email


@pytest.mark.pattern("data_overwrite")
@pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
def test_a_writer_decorates_what_is_written_in_every_mode(shop: Shop, mode: str) -> None:
    begun(shop)
    result = shop.run(orders(shop, 1.0, mode=mode, merge_keys=["id", "day"]), key=D1)
    assert shop.rows("orders") == [row(D1, 0, 1.0)]
    assert shop.metadata(result, "orders")["audit/version"] == f"{shop.version('orders')} by silver/orders"


@pytest.mark.pattern("data_overwrite")
def test_a_writer_refuses_what_it_has_staged_and_readers_see_what_they_saw(shop: Shop) -> None:
    begun(shop)
    shop.seed("orders", [row(D1, 0, 1.0), row(D2, 0, 1.0)], SCHEMA)
    before = shop.version("orders")
    error = shop.failure(orders(shop, 2.0, -1.0), key=D2)
    assert isinstance(error, Refused)
    assert shop.version("orders") == before
    assert shop.rows("orders") == [row(D1, 0, 1.0), row(D2, 0, 1.0)]
    assert shop.rows("orders__staged") == [row(D2, 0, 2.0), row(D2, 1, -1.0)]
    # Only the staged slice is judged that the run owns: the neighbour's does not hold it back.
    shop.run(orders(shop, 3.0), key=D1)
    assert shop.rows("orders") == [row(D1, 0, 3.0), row(D2, 0, 1.0)]


@pytest.mark.pattern("data_overwrite")
def test_a_retry_publishes_what_was_staged_and_commits_each_table_once(shop: Shop) -> None:
    begun(shop)
    died: list[str] = []

    def die_once(table: str) -> None:
        if not died:
            died.append(table)
            raise RuntimeError("after the commit of the staged slice")

    with at("after_commit", die_once):
        shop.run(orders(shop, 1.0, mode="append", retries=2), key=D1)
    assert died == ["silver.orders"]
    assert shop.rows("orders") == shop.rows("orders__staged") == [row(D1, 0, 1.0)]


@pytest.mark.parametrize(
    ("writers", "email"), [([EXCLAIMED, AUDITED], "ann@x.org!x"), ([AUDITED, EXCLAIMED], "ann@x.org!X")]
)
def test_several_writers_prepare_from_the_outermost_in(shop: Shop, writers: list[str], email: str) -> None:
    begun(shop)
    shop.run(orders(shop, 1.0, writer=writers), key=D1)
    assert shop.rows("orders") == [row(D1, 0, 1.0, email)]


@pytest.mark.pattern("proxy")
def test_the_same_writer_stands_before_a_version_is_shown(shop: Shop) -> None:
    manager = ProxyDeltaIOManager(root_uri=str(shop.root), storage_options=LocalConfig(), spark=shop.engine)
    live = manager.stored_as(Table("silver.orders", shop.uri("orders"), Contract.load(ORDERS)))

    def publish(*amounts: float) -> bool:
        definition = orders(shop, *amounts, versions="manifest")
        return dg.materialize(
            [definition], resources={"io_manager": manager}, partition_key=D1, raise_on_error=False
        ).success

    def shown() -> list[tuple[Any, ...]]:
        return sorted(tuple(found) for found in live.read(shop.spark).collect())

    assert publish(1.0)
    assert not publish(2.0, -1.0)
    assert shown() == [row(D1, 0, 1.0)]
    assert publish(2.0)
    assert shown() == [row(D1, 0, 2.0)]


@pytest.mark.parametrize(
    ("writer", "why"),
    [
        ("nowhere.to_be:Found", "No module named 'nowhere'"),
        (f"{__name__}:Missing", "has no attribute 'Missing'"),
        (f"{__name__}:Refused", "it is no subclass of `Writer`"),
        ("Audited", "No module named 'Audited'"),
    ],
)
def test_what_is_no_writer_is_refused_by_name(shop: Shop, writer: str, why: str) -> None:
    error = shop.failure(orders(shop, 1.0, writer=writer), key=D1)
    assert isinstance(error, NotAWriter)
    assert (error.asset, error.path) == ("silver/orders", writer)
    assert why in str(error)
    assert not shop.root.exists()


@pytest.mark.pattern("data_overwrite")
def test_a_run_cannot_leave_its_writer_out(shop: Shop) -> None:
    def make(context: dg.AssetExecutionContext) -> DataFrame:
        context.add_output_metadata({"writer": EXCLAIMED})
        return shop.frame([(1, None, -1.0, "Ann@X.org")], SCHEMA)

    assert isinstance(shop.failure(asset("orders", make, writer=AUDITED)), NotAtRunTime)
    assert not shop.root.exists()


def test_the_writer_of_the_documentation(engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippet, _ = snippets("io-managers.md", "engine")
    assert engine.spark_session is not None
    monkeypatch.chdir(tmp_path)
    snippet.execute()  # it ends with what it promises, as an assertion
