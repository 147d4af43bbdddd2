"""Changes of users through the graph's own asset into its topic: a reader who follows them ends where the users are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from de_assets.serving.profile_changes import checks, profile_changes
from de_assets.sources.topics import PROFILE_CHANGES
from de_resources.kafka import KafkaBroker
from de_resources.kafka.reader import read_topic
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.services, pytest.mark.pattern("fifo_orderer")]

Version = tuple[str | None, str | None, datetime, datetime | None]
DAY = timedelta(days=1)
START = datetime(2024, 10, 10, 12, 30, 0, 5, tzinfo=UTC)
VERSIONS: list[Version] = [
    ("moved", "FR", START, START + DAY),
    ("moved", "PL", START + DAY, START + 2 * DAY),
    ("moved", "FR", START + 2 * DAY, None),
    ("gone", "DE", START, START + DAY),
    ("back", "IT", START, START + DAY),
    ("back", "ES", START + 3 * DAY, None),
    ("silent", None, START, None),
]
NOBODY: list[Version] = [(None, "FR", START, None)]
LIVE = {"moved": "FR", "back": "ES", "silent": None}


def run(versions: Sequence[Version], **config: Any) -> tuple[dict[str, Any], dg.AssetCheckEvaluation]:
    class Users(dg.IOManager):
        def handle_output(self, context: dg.OutputContext, obj: object) -> None: ...

        def load_input(self, _context: dg.InputContext) -> DataFrame:
            schema = "user_id string, country string, valid_from timestamp, valid_to timestamp"
            return SparkEngine().spark_session.createDataFrame(list(versions), schema)

    result = dg.materialize(
        [dg.AssetSpec(["silver", "users"]), profile_changes, *checks],
        resources={"io_manager": Users(), "database": PostgresDatabase(), "broker": KafkaBroker()},
        run_config={"ops": {"serving__profile_changes": {"config": config}}},
    )
    (told,) = result.asset_materializations_for_node("serving__profile_changes")
    (verdict,) = result.get_asset_check_evaluations()
    return {name: value.value for name, value in told.metadata.items()}, verdict


def test_a_reader_who_follows_the_topic_ends_where_the_users_live(nothing_served: None, at_home: LocalServices) -> None:
    cursor = read_topic(KafkaBroker().client_config(), PROFILE_CHANGES).cursor
    told, verdict = run(VERSIONS[:2] + VERSIONS[3:])
    assert told["delivery/planned"] == 9, "six versions, and three ends at which no version begins"
    assert verdict.passed
    told, _ = run(VERSIONS)
    # The second stay ends where the third begins: what was told as gone is told again.
    assert told["delivery/planned"] == 1
    assert run(VERSIONS)[0]["delivery/requests"] == 0

    lives: dict[str, str | None] = {}
    last: dict[str, int] = {}
    for record in read_topic(KafkaBroker().client_config(), PROFILE_CHANGES, cursor).records:
        user, sequence = (record.key or b"").decode(), int(dict(record.headers or ())["sequence"] or 0)
        assert sequence == last.get(user, 0) + 1
        last[user] = sequence
        values = json.loads(record.value or b"")["values"]
        if values["is_deleted"]:
            lives.pop(user, None)
        else:
            lives[user] = values["country"]
    assert lives == LIVE
    assert last == {"moved": 4, "gone": 2, "back": 3, "silent": 1}


@pytest.mark.red_check("everything_is_delivered")
def test_a_change_of_nobody_is_set_aside_and_holds_no_user_up(nothing_served: None, at_home: LocalServices) -> None:
    """Nothing says what it comes after: it is red until a person gives it up, and never sent."""
    cursor = read_topic(KafkaBroker().client_config(), PROFILE_CHANGES).cursor
    told, verdict = run([*NOBODY, *VERSIONS])
    assert not verdict.passed
    assert (told["delivery/undeliverable"], told["delivery/held"], told["delivery/waiting"]) == (1, 0, 0)
    assert told["delivery/delivered"] == told["delivery/planned"] - 1 == 9
    again, _ = run([*NOBODY, *VERSIONS])
    assert (again["delivery/planned"], again["delivery/requests"]) == (0, 0)
    sent = [record.key for record in read_topic(KafkaBroker().client_config(), PROFILE_CHANGES, cursor).records]
    assert {key.decode() for key in sent if key} == {"moved", "gone", "back", "silent"}
    assert len(sent) == 9
    assert all(sent)
    _, verdict = run([*NOBODY, *VERSIONS], release=[""])
    assert verdict.passed
