"""Live visits over the real topic: what is set apart, removed and kept is what the simulator put in, hour by hour."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from platform_world import CALENDAR, Lakehouse, Platform

from de_assets.sources.simulator import NONE, Defect, Irregularities, Truth, World, feed_hours, hours_between
from de_assets.sources.topics import VISITS
from de_resources.kafka import KafkaBroker

pytestmark = [
    pytest.mark.services,
    pytest.mark.pattern("dead_letter", "late_data_detector", "windowed_deduplicator", "filter_interceptor"),
]

# A late visit is more than an hour behind the one that it came with: beyond the allowed lateness, whatever its minute.
RATES = Irregularities(
    duplicates=0.05,
    late=0.07,
    late_delays=((2, 0.6), (6, 0.3), (24, 0.1)),
    malformed=0.01,
    missing=0.02,
    future=0.01,
    out_of_order=0.2,
)
WORLD = World(seed=23, epoch=CALENDAR.start - timedelta(days=180), users=50, guests=100)
PER_HOUR = 100
FOLLOW = {
    "assets": [
        "bronze/visits_stream",
        *(f"silver/visits_live{part}" for part in ("", "_dead_letter", "_late", "_state")),
    ]
}


class Fed:
    """The topic, fed hour by hour; and the hour in which each record of the lake came."""

    def __init__(self, platform: Platform, lake: Lakehouse) -> None:
        self.platform, self.lake = platform, lake
        self.truth = Truth(lake.folder / "truth")
        self.hours: list[datetime] = []
        self.begins: list[float] = []

    def publish(self, hours: list[datetime], irregularities: Irregularities = RATES) -> None:
        with self.platform.at_home():
            producer = Producer({**KafkaBroker().client_config(), "log_level": 0})
            for hour in hours:
                self.hours.append(hour)
                self.begins.append(time.time())
                feed_hours(
                    producer,
                    VISITS,
                    WORLD,
                    [hour],
                    per_hour=PER_HOUR,
                    irregularities=irregularities,
                    truth_beside=self.lake.folder / "truth",
                )

    def by_hour(self, table: str) -> dict[datetime, list[dict[str, Any]]]:
        """The rows by the hour whose messages they came with; what others have published before is left out."""
        found: dict[datetime, list[dict[str, Any]]] = {hour: [] for hour in self.hours}
        for row in self.lake.rows(table):
            # Broker's times are whole milliseconds.
            place = bisect_right(self.begins, row["append_time"].replace(tzinfo=UTC).timestamp() + 0.001)
            if place:
                found[self.hours[place - 1]].append(row)
        return found


@pytest.fixture(scope="module")
def fed(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Fed:
    """An hour to begin with, six with defects; a run after three of them, and after the last."""
    fed_platform.up()
    fed = Fed(fed_platform, Lakehouse(fed_platform.services, tmp_path_factory.mktemp("live")))
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    hours = hours_between(now - timedelta(hours=8), now - timedelta(hours=1))
    fed.publish(hours[:1], NONE)
    fed.publish(hours[1:4])
    fed.lake.run(FOLLOW).succeeded()
    fed.publish(hours[4:])
    fed.lake.run(FOLLOW).succeeded()
    return fed


def test_what_is_found_is_what_was_injected_hour_by_hour(fed: Fed) -> None:
    came = fed.by_hour("bronze/visits_stream")
    valid, apart = fed.by_hour("silver/visits_live"), fed.by_hour("silver/visits_live_late")
    dead = fed.by_hour("silver/visits_live_dead_letter")
    for hour in fed.hours[1:]:
        truth = fed.truth.hour(hour)
        late, future = (
            sorted(row["visit_id"] for row in apart[hour] if row["verdict"] == verdict)
            for verdict in ("late", "future")
        )
        assert late == sorted(truth.ids(Defect.LATE)), hour
        assert future == sorted(truth.ids(Defect.FUTURE)), hour
        malformed = len(dead[hour])
        assert malformed == truth.counts[Defect.MALFORMED] + truth.counts[Defect.MISSING] > 0
        blamed = Counter(row["field"] for row in dead[hour] if row["field"])
        assert blamed == Counter(str(row["detail"]).split(":")[0] for row in truth.rows(Defect.MISSING))
        assert len(came[hour]) == truth.lines
        removed = len(came[hour]) - malformed - len(apart[hour]) - len(valid[hour])
        assert removed == truth.counts[Defect.DUPLICATE] > 0
        ids = [row["visit_id"] for row in (*valid[hour], *apart[hour])]
        assert len(ids) == len(set(ids)) == truth.processable


def test_the_totals_per_partition_are_those_of_the_topic(fed: Fed) -> None:
    state = [row for row in fed.lake.rows("silver/visits_live_state") if row["entry"] == "source"]
    came = Counter(row["topic_partition"] for row in fed.lake.rows("bronze/visits_stream"))
    assert {row["source"]: row["records"] for row in state} == came
    tables = {
        "visits_live": ("valid",),
        "visits_live_late": ("late", "future"),
        "visits_live_dead_letter": ("malformed",),
    }
    for table, totals in tables.items():
        kept = Counter(row["topic_partition"] for row in fed.lake.rows(f"silver/{table}"))
        assert kept == Counter({row["source"]: sum(row[total] for total in totals) for row in state})
    # Minutes behind the newest hour, though some visits are dated days ahead.
    (watermark,) = {row["watermark"] for row in state}
    assert fed.hours[-1] - timedelta(minutes=45) < watermark.replace(tzinfo=UTC) < fed.hours[-1] + timedelta(minutes=30)
