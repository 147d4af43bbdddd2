"""Page views of every hour, through the graph's own asset to the partner: told once, in order, and again where they change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from de_assets.filling.stores import Stores
from de_assets.partitions import hourly
from de_assets.serving.partner_feed import checks, partner_feed
from de_resources.delivery.receiver import BulkReceiver
from de_resources.local import LocalServices
from de_resources.local.partner import Behaviour
from de_resources.postgres import PostgresDatabase
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.services, pytest.mark.pattern("bin_pack_orderer")]

Visit = tuple[str, datetime, str, bool | None]
DAY = datetime(2024, 10, 10, tzinfo=UTC)
KEY = "2024-10-10"
VISITS: list[Visit] = [
    (page, DAY + timedelta(hours=hour, minutes=n), f"u{n % 2}", bot)
    for hour in range(0, 24, 3)
    for page, number, bot in (("/a", 3, None), ("/b", hour % 4, False), ("/robots", 2, True))
    for n in range(number)
]


@pytest.fixture
def visits(nothing_served: None, at_home: LocalServices) -> Iterator[list[Visit]]:
    """What has been seen; tests add to it. The partner takes part of a batch."""
    folder = at_home.settings.home / "partner"
    Behaviour(rejects=0.3, records=2, per_second=1e6).behave(folder)
    yield list(VISITS)
    (folder / "behaviour.json").unlink()


def run(visits: list[Visit], **config: Any) -> tuple[dict[str, Any], dg.AssetCheckEvaluation]:
    """What the materialisation tells of the day, and the verdict on it."""

    class Seen(dg.IOManager):
        def handle_output(self, context: dg.OutputContext, obj: object) -> None: ...

        def load_input(self, _context: dg.InputContext) -> DataFrame:
            return SparkEngine().spark_session.createDataFrame(
                [(*each, each[1].replace(minute=0)) for each in visits],
                "page string, event_time timestamp, user_id string, is_bot boolean, event_hour timestamp",
            )

    source = dg.AssetSpec(["silver", "visits_enriched"], partitions_def=hourly)
    result = dg.materialize(
        [source, partner_feed, *checks],
        partition_key=KEY,
        resources={"io_manager": Seen(), "database": PostgresDatabase(), "partner": BulkReceiver(first_pause=0.01)},
        run_config={"ops": {"serving__partner_feed": {"config": config}}},
    )
    (told,) = result.asset_materializations_for_node("serving__partner_feed")
    (verdict,) = result.get_asset_check_evaluations()
    return {name: value.value for name, value in told.metadata.items()}, verdict


def counted(visits: list[Visit]) -> set[tuple[Any, ...]]:
    """The oracle: by hand."""
    users: defaultdict[tuple[str, datetime], list[str]] = defaultdict(list)
    for page, moment, user, bot in visits:
        if not bot:
            users[page, moment.replace(minute=0)].append(user)
    return {(DAY.date(), page, hour, len(each), len(set(each))) for (page, hour), each in users.items()}


def served() -> list[tuple[Any, ...]]:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'UTC'; SELECT event_date, page, hour, views, visitors FROM serving.partner_feed")
        return cursor.fetchall()


def sent() -> list[tuple[str, int, str]]:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT key, sequence, position FROM serving.partner_feed_outbox ORDER BY number")
        return cursor.fetchall()


def test_the_partner_is_told_every_hour_of_every_page_once_and_corrections_after_it(visits: list[Visit]) -> None:
    stores = Stores(Settings.from_environment(), frozenset({partner_feed.key}))
    assert not stores.has(partner_feed.key)
    told, verdict = run(visits)
    assert stores.has(partner_feed.key), "`de run` need not send it again"
    assert len(served()) == len(set(served()))
    assert set(served()) == counted(visits)
    assert {page for page, *_ in sent()} == {"/a", "/b"}, "nobody is told about robots"
    for page in ("/a", "/b"):
        hours = [position for key, _, position in sent() if key == page]
        assert hours == sorted(hours)
    assert told["delivery/delivered"] == told["dagster/partition_row_count"] == len(counted(visits))
    assert told["delivery/rejected"] > 0
    assert verdict.passed

    again, _ = run(visits)
    assert (again["delivery/planned"], again["delivery/requests"]) == (0, 0)

    visits += [("/a", DAY + timedelta(hours=3, minutes=59), "late", None), ("/new", DAY, "u1", None)]
    told, _ = run(visits)
    assert told["delivery/planned"] == 2
    assert set(served()) == counted(visits)
    assert sent()[-1] == ("/a", 9, (DAY + timedelta(hours=3)).isoformat()), "after the hours that were told before"


@pytest.mark.red_check("everything_is_delivered")
def test_what_the_partner_refuses_is_red_until_a_person_gives_it_up(
    visits: list[Visit], at_home: LocalServices
) -> None:
    folder = at_home.settings.home / "partner"
    Behaviour(refuses=("/a",), per_second=1e6).behave(folder)
    told, verdict = run(visits)
    assert not verdict.passed
    assert (told["delivery/undeliverable"], told["delivery/held"]) == (1, 7)
    assert {page for _, page, *_ in served()} == {"/b"}

    Behaviour(per_second=1e6).behave(folder)
    _, verdict = run(visits, release=["/a"])
    assert verdict.passed
    assert len([page for _, page, *_ in served() if page == "/a"]) == 7, "the first hour was given up"
