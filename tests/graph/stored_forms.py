"""Rows that are stored in another form than they are judged in: a small variant, and a merge by it for both kinds of session.

`Sealed` does what an encryption does to a table, without a key: texts of the columns that the asset names under `sealed` are
stored backwards in base64, behind a word that is never the same twice, and `amount` below zero. `Opened` undoes it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import date
from typing import Any
from uuid import uuid4

import dagster as dg
from io_manager_support import ORDERS, Shop, asset
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_resources.delta.read.reader import Read, Reader
from de_resources.delta.read.request import ReadRequest
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import Writer

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
D1, D2 = "2024-01-01", "2024-01-02"
SCHEMA = "id long, day date, amount double, email string"
Order = tuple[int, str, float, str | None]


class Sealed(Writer):
    """Stores texts sealed, with a nonce, and amounts as `-1 - amount`."""

    def stored(self, request: WriteRequest, frame: DataFrame) -> DataFrame:
        """Nulls stay nulls."""
        for column in request.metadata.get("sealed", ["email"]):
            text = F.base64(F.encode(F.reverse(column), "utf-8"))
            frame = frame.withColumn(
                column, F.when(F.col(column).isNotNull(), F.concat(F.expr("uuid()"), F.lit("|"), text))
            )
        return frame.withColumn("amount", -1 - F.col("amount")) if "amount" in frame.columns else frame


class Opened(Reader):
    """Reads what `Sealed` has stored."""

    def read(self, request: ReadRequest, proceed: Read) -> DataFrame:
        """The rows as they were meant."""
        frame = proceed(request)
        for column in request.metadata.get("sealed", ["email"]):
            text = F.decode(F.unbase64(F.substring_index(column, "|", -1)), "utf-8")
            frame = frame.withColumn(column, F.reverse(text))
        return frame.withColumn("amount", -1 - F.col("amount")) if "amount" in frame.columns else frame


class Moved(Writer):
    """Stores each row a day later than it is."""

    def stored(self, request: WriteRequest, frame: DataFrame) -> DataFrame:  # noqa: ARG002
        """In the partition of another run."""
        return frame.withColumn("day", F.date_add("day", 1))


FORM: dict[str, Any] = {"writer": f"{__name__}:Sealed", "reader": f"{__name__}:Opened"}


def orders(shop: Shop, given: list[Order], name: str = "orders", **metadata: Any) -> dg.AssetsDefinition:
    """The asset `silver/orders`, or of another name, with these orders, whatever the partition of the run."""

    def make(_: dg.AssetExecutionContext) -> DataFrame:
        rows = [(id_, date.fromisoformat(day), amount, email) for id_, day, amount, email in given]
        return shop.frame(rows, SCHEMA)

    settings = {"contract": ORDERS, "partition_expr": "day", **FORM}
    return asset(name, make, partitions=DAYS, **{**settings, **metadata})


def seed(shop: Shop, given: list[Order], name: str = "orders") -> None:
    """The same orders as `Sealed` stores them, in a table that is there before, written without the engine."""
    shop.seed(
        name,
        [(id_, date.fromisoformat(day), -1 - amount, _sealed(email)) for id_, day, amount, email in given],
        SCHEMA,
    )


def _sealed(text: str | None) -> str | None:
    return text and f"{uuid4()}|{b64encode(text[::-1].encode()).decode()}"


def moved(shop: Shop, name: str = "orders", **metadata: Any) -> dg.AssetsDefinition:
    """An order that would be stored in another partition than its own."""
    return orders(
        shop, [(2, D1, 6.0, "bob@x.org")], name=name, writer=[FORM["writer"], f"{__name__}:Moved"], **metadata
    )


def opened(shop: Shop, name: str = "orders", *, sealed: tuple[int, ...] = (3,)) -> list[tuple[Any, ...]]:
    """The stored rows, opened by plain Python; `sealed` are the positions of the sealed texts. Each nonce is a new one."""
    rows, nonces = [], []
    for stored in shop.rows(name):
        row = list(stored)
        for place in sealed:
            if row[place] is not None:
                nonce, _, text = row[place].partition("|")
                nonces.append(nonce)
                row[place] = b64decode(text).decode()[::-1]
        if len(row) == len(SCHEMA.split(",")):
            row[1], row[2] = str(row[1]), -1 - row[2]
        rows.append(tuple(row))
    assert len(set(nonces)) == len(nonces)
    return sorted(rows, key=repr)


def merged(shop: Shop) -> dict[str, Any]:
    """A merge by a sealed key into other orders, of which one is the same: the rows after it, and what it changed."""
    rule = {"mode": "merge", "merge_keys": ["email"], "merge_vanished": "delete"}
    seed(shop, THERE)
    told = shop.metadata(shop.run(orders(shop, MERGED, **rule), key=D1), "orders")
    return {"rows": opened(shop), "changes": told["merge/changes"]}


THERE: list[Order] = [(1, D1, 5.0, "ann@x.org"), (2, D1, 6.0, "bob@x.org"), (3, D1, 7.0, "cid@x.org")]
MERGED: list[Order] = [(1, D1, 5.0, "ann@x.org"), (2, D1, 8.0, "bob@x.org"), (4, D1, 9.0, "dan@x.org")]
CHANGED = {"update": 1, "insert": 1, "delete": 1}
"""What is there already is no change, whatever it is stored as."""
