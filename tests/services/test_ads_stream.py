"""Ads from a real topic to the visits before them, over the engine that all runs share: what the simulator's truth says."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from instances import silent_instance

from de_assets.bronze.ads_stream import ads_stream
from de_assets.bronze.visits_stream import visits_stream
from de_assets.resources import resources
from de_assets.silver.visits_with_ads import BOUND, visits_with_ads
from de_assets.sources.simulator import World, feed_topic, showings, visit_messages
from de_assets.sources.topics import ADS, TOPICS, VISITS
from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices
from de_resources.settings import Settings
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.pattern("dynamic_joiner", "checkpointer")]

HOURS = [datetime(2026, 1, 5, 10, tzinfo=UTC) + timedelta(hours=n) for n in range(4)]
ASSETS = [visits_stream, ads_stream, visits_with_ads]


def test_what_was_published_is_joined_once_and_a_rerun_adds_nothing(
    lone_services: LocalServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of topics that hold nothing else: which visits are still awaited depends on all that was published."""
    lone_services.up(["kafka", "spark_connect"], topics=TOPICS)
    monkeypatch.setenv("DE_HOME", str(lone_services.settings.home))
    world, lake = World(seed=3), tmp_path / "lake"
    told = showings(world, HOURS[:2], per_hour=300)
    producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
    feed_topic(producer, ADS, told.messages)
    # After the ads nothing but visits: the last two hours bring out the first two.
    feed_topic(producer, VISITS, visit_messages(world, HOURS, per_hour=100))
    try:
        with silent_instance() as instance:
            here = resources(
                Settings.from_environment({"DE_HOME": str(tmp_path), "LAKE_ROOT": str(lake)}), SparkEngine()
            )
            here |= {"broker": KafkaBroker()}
            first, again = (_told(dg.materialize(ASSETS, instance=instance, resources=here)) for _ in range(2))
    finally:
        close_connections()
    ads = _rows(lake, "bronze/ads_stream")
    assert Counter(row["payload"] for row in ads if row["error"]) == Counter(told.unreadable)
    visits = {row["visit_id"]: row for row in _rows(lake, "bronze/visits_stream")}
    assert len(visits) == 400
    joined = _rows(lake, "silver/visits_with_ads")
    assert Counter((row["visit_id"], row["showing_id"]) for row in joined) == _truth(visits, told.shown)
    assert sum(row["showing_id"] is not None for row in joined) > 20
    assert (first["contract/rows"], again["skipped"]) == (len(joined), "nothing new at the source")
    assert first["stream/state_rows"] > 0


def _truth(visits: dict[str, Any], shown: dict[str, dict[str, str]]) -> Counter[tuple[str, str | None]]:
    """Of the visits, each with the ads of its page; those whose time is not over, and that have none, are still awaited."""
    newest = max(row["event_time"] for row in visits.values())
    newest_ad = max(datetime.fromisoformat(each["shown_at"]) for each in shown.values())
    watermark = max(newest - BOUND.idle_after, newest_ad) - BOUND.late
    found: Counter[tuple[str, str | None]] = Counter()
    for name, visit in visits.items():
        until = visit["event_time"] + BOUND.within
        matches = [
            key
            for key, each in shown.items()
            if each["page"] == visit["page"]
            and visit["event_time"] <= datetime.fromisoformat(each["shown_at"]) <= until
        ]
        found.update((name, key) for key in matches)
        if not matches and until < watermark:
            found[(name, None)] += 1
    return found


def _rows(lake: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(lake / table)).to_pyarrow_table().to_pylist()
    return found


def _told(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = done.asset_materializations_for_node("silver__visits_with_ads")
    return {name: value.value for name, value in event.metadata.items()}
