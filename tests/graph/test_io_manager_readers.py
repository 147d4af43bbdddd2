"""The seam around a read: the rows of an input pass the classes that the asset and the input name."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from documentation import snippets
from io_manager_support import ORDERS, Shop, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_resources.delta.asset_settings import NotAtRunTime
from de_resources.delta.read.reader import NotAReader, Read, Reader
from de_resources.delta.read.request import ReadRequest
from de_resources.delta.read_versions import READ
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("data_overwrite")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
D1, D2 = "2024-01-01", "2024-01-02"
SCHEMA = "id long, day date, amount double, email string"


class Shouted(Reader):
    """Addresses in capitals: what decryption is to an asset, whoever reads it."""

    def read(self, request: ReadRequest, proceed: Read) -> DataFrame:
        return proceed(request).withColumn("email", F.upper("email"))


class Masked(Reader):
    """Addresses up to their sign."""

    def read(self, request: ReadRequest, proceed: Read) -> DataFrame:
        return proceed(request).withColumn("email", F.regexp_replace("email", "@.*", "@…"))


class Pinned(Reader):
    """The version that the input names."""

    def prepare(self, request: ReadRequest) -> ReadRequest:
        return replace(request, version=request.input["version"])


SHOUTED, MASKED, PINNED = (f"{__name__}:{reader.__name__}" for reader in (Shouted, Masked, Pinned))


@pytest.fixture
def shop(engine: SparkEngine, lake: Path) -> Shop:
    return Shop(engine, lake)


def orders(shop: Shop, amount: float, **metadata: Any) -> dg.AssetsDefinition:
    """The asset `silver/orders`, one order in each partition of the run."""

    def make(context: dg.AssetExecutionContext) -> DataFrame:
        days = [date.fromisoformat(key) for key in context.partition_keys]
        return shop.frame([(day.day, day, amount, f"{day.day}@x.org") for day in days], SCHEMA)

    return asset("orders", make, partitions=DAYS, contract=ORDERS, partition_expr="day", **metadata)


def copied(partitions: Any = DAYS, **input_: Any) -> dg.AssetsDefinition:
    """The asset `silver/copy`: what the input gives."""

    @dg.asset(
        key=["silver", "copy"],
        partitions_def=partitions,
        ins={"orders": dg.AssetIn(["silver", "orders"], metadata=input_)},
        metadata={"partition_expr": "day"} if partitions else {},
    )
    def definition(orders: DataFrame) -> DataFrame:
        return orders

    return definition


def read(
    shop: Shop, first: dg.AssetsDefinition, second: dg.AssetsDefinition, key: str | None = D1
) -> Mapping[str, Any]:
    """Compute the copy only; its metadata."""
    return shop.metadata(shop.run(first, second, key=key, select=[second.key]), "copy")


def test_an_input_passes_the_asset_s_reader_and_then_its_own_and_the_table_stays_as_it_is(shop: Shop) -> None:
    source = orders(shop, 1.0, reader=SHOUTED)
    shop.run(source, key=D1)
    shop.run(source, key=D2)
    read(shop, source, copied())
    assert shop.rows("copy") == [(1, date(2024, 1, 1), 1.0, "1@X.ORG")]
    assert [row[-1] for row in shop.rows("orders")] == ["1@x.org", "2@x.org"]


def test_columns_are_chosen_of_what_the_reader_gives(shop: Shop) -> None:
    source = orders(shop, 1.0, reader=SHOUTED)
    shop.run(source, key=D2)
    read(shop, source, copied(reader=MASKED, columns=["day", "email"]), D2)
    assert shop.rows("copy") == [(date(2024, 1, 2), "2@…")]


def test_a_pinned_version_is_read_and_told_as_the_one_that_was(shop: Shop) -> None:
    for amount in (1.0, 2.0):
        shop.run(orders(shop, amount), key=D1)
    source, newest = orders(shop, 2.0), shop.version("orders")
    told = read(shop, source, copied(reader=PINNED, version=newest - 1))
    assert shop.rows("copy") == [(1, date(2024, 1, 1), 1.0, "1@x.org")]
    assert told[READ]["silver.orders"]["version"] == newest - 1


def test_what_is_no_reader_is_refused_before_anything_is_read(shop: Shop) -> None:
    source = orders(shop, 1.0)
    shop.run(source, key=D1)
    error = shop.failure(source, copied(reader="Masked"), key=D1, select=["silver/copy"])
    assert isinstance(error, NotAReader)
    assert (error.asset, error.path) == ("silver/orders", "Masked")


def test_a_run_cannot_leave_the_reader_out(shop: Shop) -> None:
    def make(context: dg.AssetExecutionContext) -> DataFrame:
        context.add_output_metadata({"reader": MASKED})
        return shop.frame([(1, None, 1.0, "1@x.org")], SCHEMA)

    assert isinstance(shop.failure(asset("orders", make, reader=SHOUTED)), NotAtRunTime)


def test_the_reader_of_the_documentation(engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, snippet = snippets("io-managers.md", "engine")
    assert engine.spark_session is not None
    monkeypatch.chdir(tmp_path)
    snippet.execute()  # it ends with what it promises, as an assertion
