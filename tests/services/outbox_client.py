"""A process that sends a feed to the partner of its home, and that dies where `DE_KILL_AT` says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import Contract, ContractModel
from de_resources.delivery.bin_pack_orderer import Patience, deliver
from de_resources.delivery.feed import FeedDelivery, run_feed
from de_resources.delivery.outbox import FeedRow, Outbox
from de_resources.delivery.receiver import BulkReceiver
from de_resources.delivery.topic_sender import TopicSender
from de_resources.kafka import KafkaBroker
from de_resources.postgres import PostgresDatabase


class Orders(ContractModel):
    """What is sent: the state of a shop's orders.

    Grain: one shop and moment.
    """

    shop: T.StringType = pa.Field(nullable=False, description="Key of the order")
    moment: T.LongType = pa.Field(nullable=False, description="Place among those of the shop")
    total: T.LongType = pa.Field(nullable=True, description="What it was then")

    class Config:
        """The name is replaced."""

        name = "shop.orders"
        metadata = {"owner": "team:shop", "key": ["shop", "moment"]}  # noqa: RUF012 - read by pandera


Rows = dict[str, dict[tuple[str, int], int]]
"""By slice, shop and moment: the total."""


def outbox_of(name: str) -> Outbox:
    """The outbox of a feed of this name."""
    return Outbox(PostgresDatabase(), replace(Contract.of(Orders), name=name))


def feed(
    rows: Rows, name: str, *, receiver: BulkReceiver | None = None, patience: Patience | None = None, **more: object
) -> FeedDelivery:
    """Send what is new of these rows."""
    slices = {
        slice_: [
            FeedRow(shop, f"{moment:04}", {"shop": shop, "moment": moment, "total": total})
            for (shop, moment), total in each.items()
        ]
        for slice_, each in rows.items()
    }
    # Pauses without jitter of a test's own length.
    patience = patience or Patience(attempts=50, first_pause=0.001)
    with (receiver or BulkReceiver(first_pause=0.01)).open() as connection:
        in_bins = partial(deliver, send=connection.send, limits=connection.limits(), patience=patience)
        return run_feed(outbox_of(name), slices, in_bins, "run", **more)  # type: ignore[arg-type]


def into_topic(name: str, topic: str, rows: list[tuple[str, str, int, int]]) -> None:
    """Send rows of (slice, shop, moment, total) into a topic, a few at a time."""
    found = [
        FeedRow(shop, f"{moment:04}", {"shop": shop, "moment": moment, "total": total})
        for _, shop, moment, total in rows
    ]
    with TopicSender(KafkaBroker().client_config(), topic) as sender:
        run_feed(outbox_of(name), {"1": found}, partial(sender.pipelined, window=20), "run")


def main(name: str, rows: list[tuple[str, str, int, int]]) -> None:
    """Send rows of (slice, shop, moment, total)."""
    slices: Rows = {}
    for slice_, shop, moment, total in rows:
        slices.setdefault(slice_, {})[shop, moment] = total
    feed(slices, name)
