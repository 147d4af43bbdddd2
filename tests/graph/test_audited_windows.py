"""Audit-Write-Audit-Publish of a stream: windows that are over are judged and shown, as a dictionary says beside it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from io_manager_support import Shop, asset
from pyspark.sql import DataFrame

from de_checks.publication import judged
from de_resources.delta.log.retention import OVERRIDE
from de_resources.delta.maintenance import maintain
from de_resources.delta.publish import InputRows, Measured, Rows, Windows
from de_resources.delta.publish.decisions import publish_held, roll_back, waiting
from de_resources.delta.publish.staging import PASSED, NotBySlice
from de_resources.delta.publish.windows import NoWindows
from de_resources.delta.publish.writer import NotAudited
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.crash_points import at
from de_resources.errors import PlatformError
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("audit_write_audit_publish")

SCHEMA = "id long, at timestamp, hour string, amount double"
GRACE = timedelta(minutes=10)
CLOCK = [datetime(2024, 1, 2, tzinfo=UTC)]
HOURS = Windows(
    by="hour",
    every=dg.HourlyPartitionsDefinition("2024-01-01-00:00"),
    event_time="at",
    grace=GRACE,
    clock=lambda: CLOCK[0],
)
AUDITS = [Rows(at_least=1), Measured(what="lowest", sql="min(amount)", low=0)]
INPUT_AUDITS = [InputRows(table="silver.raw")]
WRITER = "de_resources.delta.publish:AuditedWindows"
Order = tuple[int, datetime, str, float]


def hour(n: int) -> str:
    return f"2024-01-01-{n:02}:00"


def order(number: int, hours: int, minutes: int, amount: float = 1.0) -> Order:
    return number, datetime(2024, 1, 1, hours, minutes), hour(hours), amount


@dataclass
class Expected:
    """What readers have to see: a window is judged when it is over, and again whenever rows came for it."""

    rows: dict[str, list[Order]] = field(default_factory=lambda: defaultdict(list))
    shown: dict[str, list[Order]] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    newest: datetime = datetime(2024, 1, 1)

    def take(self, orders: Sequence[Order]) -> None:
        for each in orders:
            self.rows[each[2]].append(each)
            self.newest = max(self.newest, each[1])
        ends = {key: datetime.strptime(key, "%Y-%m-%d-%H:%M") + timedelta(hours=1) for key in self.rows}
        over = self.over | {key for key, end in ends.items() if end <= self.newest - GRACE}
        for key in (over - self.over) | (over & {each[2] for each in orders}):
            if all(each[3] >= 0 for each in self.rows[key]):
                self.shown[key] = list(self.rows[key])
        self.over = over

    def seen(self) -> list[Order]:
        return sorted((each for rows in self.shown.values() for each in rows), key=repr)


@dataclass
class Stream(Shop):
    """The asset `silver/orders`, which follows the table `silver/raw` as a stream."""

    expected: Expected = field(default_factory=Expected)

    def definition(self, **metadata: Any) -> dg.AssetsDefinition:
        def follow(_: dg.AssetExecutionContext) -> DataFrame:
            return self.spark.readStream.format("delta").load(self.uri("raw"))

        settings = {"writer": WRITER, "windows": f"{__name__}:HOURS", "audits": f"{__name__}:AUDITS"}
        retries = metadata.pop("retries", 0)
        layout = {"partitioned_by": ["hour"], "mode": "append"}
        return asset("orders", follow, retries=retries, **{**settings, **layout, **metadata})

    def land(self, *orders: Order) -> None:
        """Rows come at the source; one commit, so that the stream may take them as one micro-batch."""
        self.seed("raw", list(orders), SCHEMA, partitioned_by=None)

    def follow(self, *orders: Order, **metadata: Any) -> dict[str, Any]:
        """Land, take in, and compare with what is expected."""
        if orders:
            self.land(*orders)
        told = self.metadata(self.run(self.definition(**metadata)), "orders")
        self.expected.take(orders)
        assert self.rows("orders") == self.expected.seen()
        assert int(told["dagster/row_count"]) == sum(map(len, self.expected.rows.values()))
        return told

    @property
    def table(self) -> Table:
        return Table("silver.orders", self.uri("orders"), partitioned_by=("hour",))


def stamp() -> CommitInfo:
    return CommitInfo("silver.orders", "ann", "an hour", "by hand", "by hand", "by hand")


@pytest.fixture
def stream(engine: SparkEngine, lake: Path) -> Stream:
    return Stream(engine, lake)


def test_windows_are_shown_when_they_are_over_and_a_bad_one_is_held_while_others_go_on(stream: Stream) -> None:
    told = stream.follow(order(1, 10, 5), order(2, 11, 5, -1.0), order(3, 12, 5), order(4, 13, 9))
    assert [told[f"windows/{what}"] for what in ("shown", "held", "open")] == [
        hour(10),
        hour(11),
        f"{hour(12)}, {hour(13)}",
    ]
    assert not judged(told).passed
    assert "lowest: It is -1" in told["publication/verdict"]

    # An hour goes on, and late rows open two windows again: what was shown of the bad one stays.
    told = stream.follow(order(5, 13, 10), order(6, 10, 59, -5.0), order(8, 10, 58))
    assert (told["windows/shown"], told["windows/held"]) == (hour(12), f"{hour(10)}, {hour(11)}")
    told = stream.follow(order(7, 12, 1))
    assert told["windows/shown"] == hour(12)
    assert stream.rows("orders") == [order(1, 10, 5), order(3, 12, 5), order(7, 12, 1)]

    # Nothing new: nothing is staged or shown.
    before = stream.version("orders"), stream.version("orders/_staged")
    stream.follow()
    assert (stream.version("orders"), stream.version("orders/_staged")) == before

    # A person decides about windows as about partitions.
    assert [w.key for w in waiting(stream.table)] == [hour(10), hour(11)]
    shown, _ = publish_held(stream.table, HOURS.slice_of([hour(11)]), stamp(), reason="a voucher")
    assert (shown.committed, shown.bytes_written) == (True, 0)
    assert order(2, 11, 5, -1.0) in stream.rows("orders")
    roll_back(stream.table, HOURS.slice_of([hour(12)]), stamp(), reason="that row was late for good")
    assert [row for row in stream.rows("orders") if row[2] == hour(12)] == [order(3, 12, 5)]
    told = stream.metadata(stream.run(stream.definition()), "orders")
    assert told["windows/held"] == hour(10)
    # What is mended where it waits is judged again.
    bad = f"hour = '{hour(10)}' AND amount < 0"
    stream.spark.sql(f"DELETE FROM delta.`{stream.uri('orders')}/_staged` WHERE {bad}")
    told = stream.metadata(stream.run(stream.definition()), "orders")
    assert (told["windows/held"], judged(told).passed) == ("none", True)


@pytest.mark.parametrize("point", ["before_commit", "after_commit", "before_switch", "after_switch"])
def test_a_run_that_dies_anywhere_is_taken_up_and_every_row_is_staged_and_shown_once(
    stream: Stream, point: str
) -> None:
    died: list[str] = []

    def die_once(name: str) -> None:
        if not died:
            died.append(name)
            raise RuntimeError("killed")

    orders = [order(1, 10, 5), order(2, 11, 5, -1.0), order(3, 12, 5), order(4, 14, 0)]
    with at(point, die_once):
        told = stream.follow(*orders, retries=1)
    assert died == ["silver.orders"]
    assert told["windows/held"] == hour(11)
    assert stream.rows("orders/_staged") == [(*each, PASSED) for each in orders]
    assert len(stream.log("orders").commits(9)) == 2  # made, and published once


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_any_rows_shows_what_the_dictionary_says(stream: Stream, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    hours = sorted(chance.choices(range(6, 20), k=30))
    orders = [order(n, h, chance.randrange(60), chance.choice((1.0, 1.0, 1.0, -1.0))) for n, h in enumerate(hours)]
    for late in chance.sample(range(30), 6):
        orders.append(orders.pop(late))
    while orders:
        size = chance.randrange(1, 10)
        batch, orders = orders[:size], orders[size:]
        stream.follow(*batch)


def test_maintenance_leaves_what_is_shown_staged_or_held_and_the_stream_goes_on(stream: Stream) -> None:
    stream.follow(order(1, 10, 5), order(2, 11, 5, -1.0), order(3, 13, 0))
    by = CommitInfo("silver.orders", "maintenance", "all", "m", "m", "m/1")
    maintain(stream.spark, stream.table, by, retention=timedelta(), override=OVERRIDE, query_runs=0)
    assert stream.rows("orders") == stream.expected.seen()
    stream.follow(order(4, 10, 6), order(5, 14, 30))
    assert [w.key for w in waiting(stream.table)] == [hour(11)]


def test_a_wrong_clock_of_one_row_and_rows_of_no_window(stream: Stream) -> None:
    CLOCK[0] = datetime(2024, 1, 1, 11, 30, tzinfo=UTC)
    try:
        future = (9, datetime(2124, 1, 1), hour(11), 1.0)
        stream.land(order(1, 10, 5), order(2, 11, 5), future, (3, datetime(2024, 1, 1), "no hour", 1.0))
        told = stream.metadata(stream.run(stream.definition()), "orders")
    finally:
        CLOCK[0] = datetime(2024, 1, 2, tzinfo=UTC)
    assert stream.rows("orders") == [order(1, 10, 5)]
    assert (told["windows/open"], told["windows/rows_outside"]) == (hour(11), 1)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"windows": None}, NoWindows),
        ({"audits": f"{__name__}:INPUT_AUDITS"}, NotAudited),
        ({"partitioned_by": []}, NotBySlice),
        ({"schema_mode": "merge"}, NotAudited),
    ],
)
def test_what_cannot_be_judged_by_windows_is_refused_before_anything_is_staged(
    stream: Stream, settings: dict[str, Any], error: type[PlatformError]
) -> None:
    stream.land(order(1, 10, 5))
    assert isinstance(stream.failure(stream.definition(**settings)), error)
    assert not Path(stream.uri("orders"), "_staged").exists()
