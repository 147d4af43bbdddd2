"""Ads as the simulator announces them, and as nobody can read them: a row with a reason, never a loss."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_assets.contracts.ads import AdsStream
from de_assets.sources.simulator import World, showings
from de_assets.transforms.error_management.ad_parser import parse_ads
from de_resources.contract import Contract

pytestmark = pytest.mark.pattern("dead_letter")

HOURS = [datetime(2026, 1, 5, 10, tzinfo=UTC) + timedelta(hours=n) for n in range(3)]
SOUND = '{"showing_id": "s", "shown_at": "2026-01-05T10:00:00Z", "page": "p", "ad": "a", "of_tomorrow": 1}'
BAD = {
    None: "the record has no value",
    b"": "no showing of an ad in JSON",
    b"[1, 2]": "no showing of an ad in JSON",
    b"\xff\xfe": "no showing of an ad in JSON",
    SOUND.replace('"p"', "null").encode(): "page is missing",
    SOUND.replace('"s"', '"  "').encode(): "showing_id is missing",
    SOUND.replace("2026-01-05T10:00:00Z", "10:05").encode(): "shown_at is no time",
    SOUND.replace("2026-", "9999-").encode(): "shown_at is no time",
    SOUND.replace('"a"', f'"{"a" * 513}"').encode(): "ad is not of length 1-512",
}


def test_what_the_simulator_announces_is_what_its_truth_says(spark: SparkSession) -> None:
    told = showings(World(seed=3), HOURS, per_hour=50)
    assert told.messages == showings(World(seed=3), HOURS, per_hour=50).messages
    rows = parse_ads(spark.createDataFrame([(m.value,) for m in told.messages], "payload BINARY"), "payload").collect()
    good = [row for row in rows if row.error is None]
    assert Counter(bytes(row.payload) for row in rows if row.error) == Counter(told.unreadable)
    assert len(good) - len(told.shown) == told.repeated == 8
    assert {row.showing_id: (row.page, row.ad) for row in good} == {
        name: (shown["page"], shown["ad"]) for name, shown in told.shown.items()
    }
    assert {row.showing_id: row.shown_at.replace(tzinfo=UTC) for row in good} == {
        name: datetime.fromisoformat(shown["shown_at"]) for name, shown in told.shown.items()
    }
    assert all(row.page is row.shown_at is row.ad is row.showing_id is None for row in rows if row.error)


def test_every_bad_record_has_its_reason_and_keeps_the_contract(spark: SparkSession) -> None:
    frame = parse_ads(spark.createDataFrame([(payload,) for payload in BAD], "payload BINARY"), "payload")
    rules = [rule for rule in Contract.of(AdsStream).rules if set(rule.columns) <= set(frame.columns)]
    broken = [F.coalesce(F.expr(rule.violated), F.lit(False)).alias(rule.name) for rule in rules]
    rows = frame.select("error", *broken).collect()
    assert [row.error for row in rows] == list(BAD.values())
    assert {rule.name for rule in rules for row in rows if row[rule.name]} == set()
