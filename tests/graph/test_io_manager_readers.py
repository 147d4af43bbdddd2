"""The seam around a read: the rows of an input pass the classes that the asset and the input name."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark.sql.types as T
import pytest
from dagster_delta import LocalConfig
from documentation import snippets
from io_manager_support import ORDERS, Shop, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from seeding import seed_day

from de_resources.delta.asset_settings import NotAtRunTime
from de_resources.delta.read.reader import NotAReader, Read, Reader
from de_resources.delta.read.request import ReadRequest
from de_resources.delta.read_versions import READ
from de_resources.proxy.io_manager import ProxyDeltaIOManager
from de_resources.spark import SparkEngine

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


def seen_by(seen: list[tuple[float, str]], **input_: Any) -> dg.AssetsDefinition:
    """An asset that stores nothing; amounts and addresses that its input gives are added to `seen`."""

    @dg.asset(
        key=["silver", "seen"],
        partitions_def=DAYS,
        ins={"orders": dg.AssetIn(["silver", "orders"], metadata=input_)},
    )
    def definition(orders: DataFrame) -> None:
        seen.extend((row.amount, row.email) for row in orders.collect())

    return definition


def read(
    shop: Shop, first: dg.AssetsDefinition, second: dg.AssetsDefinition, key: str | None = D1
) -> Mapping[str, Any]:
    """Compute the copy only; its metadata."""
    return shop.metadata(shop.run(first, second, key=key, select=[second.key]), "copy")


def test_an_input_passes_the_asset_s_reader_and_then_its_own_and_the_table_stays_as_it_is(shop: Shop) -> None:
    source = orders(shop, 1.0, reader=SHOUTED)
    shop.seed("orders", [(day, date(2024, 1, day), 1.0, f"{day}@x.org") for day in (1, 2)], SCHEMA)
    read(shop, source, copied())
    assert shop.rows("copy") == [(1, date(2024, 1, 1), 1.0, "1@X.ORG")]
    assert [row[-1] for row in shop.rows("orders")] == ["1@x.org", "2@x.org"]


def test_columns_are_chosen_of_what_the_reader_gives(shop: Shop) -> None:
    source = orders(shop, 1.0, reader=SHOUTED)
    shop.seed("orders", [(2, date(2024, 1, 2), 1.0, "2@x.org")], SCHEMA)
    read(shop, source, copied(reader=MASKED, columns=["day", "email"]), D2)
    assert shop.rows("copy") == [(date(2024, 1, 2), "2@…")]


@pytest.mark.pattern("data_overwrite")
def test_a_pinned_version_is_read_and_told_as_the_one_that_was(shop: Shop) -> None:
    source = orders(shop, 2.0)
    shop.seed("orders", [(1, date(2024, 1, 1), 1.0, "1@x.org")], SCHEMA)
    shop.seed("orders", [(2, date(2024, 1, 1), 2.0, "2@x.org")], SCHEMA)
    newest = shop.version("orders")
    told = read(shop, source, copied(reader=PINNED, version=newest - 1))
    assert shop.rows("copy") == [(1, date(2024, 1, 1), 1.0, "1@x.org")]
    assert told[READ]["silver.orders"]["version"] == newest - 1


@pytest.mark.pattern("stateful_merger")
def test_of_a_stateful_table_a_reader_gets_the_state_after_the_partition_or_the_version_that_is_pinned(
    shop: Shop,
) -> None:
    rule = {"mode": "merge", "stateful": True, "merge_keys": ["id"]}
    source = asset("orders", lambda _: None, partitions=DAYS, reader=SHOUTED, **rule)
    for day in (1, 2):
        row = {"id": day, "day": date(2024, 1, day), "amount": 1.0, "email": f"{day}@x.org"}
        columns = T.StructType.fromDDL(SCHEMA)
        seed_day(shop.uri("orders"), [row], columns, writer="silver/orders", key=f"2024-01-0{day}")
    first = shop.version("orders") - 1

    def seen(key: str, **input_: Any) -> list[str]:
        rows: list[tuple[float, str]] = []
        looking = seen_by(rows, **input_)
        shop.run(source, looking, key=key, select=[looking.key])
        return sorted(email for _, email in rows)

    assert seen(D1) == ["1@X.ORG"]
    assert seen(D2) == ["1@X.ORG", "2@X.ORG"]
    assert seen(D2, reader=[MASKED, PINNED], version=first) == ["1@…"], "not what came in with the second day"


@pytest.mark.pattern("proxy")
def test_of_a_dataset_behind_a_proxy_a_reader_gets_what_is_live_or_the_number_that_is_pinned(shop: Shop) -> None:
    manager = ProxyDeltaIOManager(root_uri=str(shop.root), storage_options=LocalConfig(), spark=shop.engine)
    seen: list[tuple[float, str]] = []

    def run(amount: float, looking: dg.AssetsDefinition, *only: dg.AssetsDefinition) -> None:
        source = orders(shop, amount, reader=SHOUTED, versions="manifest")
        resources = {"io_manager": manager}
        chosen = list(only) or [source, looking]
        assert dg.materialize([source, looking], resources=resources, partition_key=D1, selection=chosen).success

    run(1.0, seen_by(seen))
    run(2.0, seen_by(seen))
    pinned = seen_by(seen, reader=[MASKED, PINNED], version=1)
    run(2.0, pinned, pinned)
    assert seen == [(1.0, "1@X.ORG"), (2.0, "1@X.ORG"), (1.0, "1@…")]


def test_what_is_no_reader_is_refused_before_anything_is_read(shop: Shop) -> None:
    source = orders(shop, 1.0)
    shop.seed("orders", [(1, date(2024, 1, 1), 1.0, "1@x.org")], SCHEMA)
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
