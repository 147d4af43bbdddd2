"""`gold/sessions` and `gold/sessions_pending` day after day, by real runs on a real lake, beside one pass of plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster_delta import LocalConfig
from deltalake import DeltaTable, write_deltalake

from de_assets.gold import sessions as gold_sessions
from de_assets.gold import sessions_pending as gold_pending
from de_assets.gold.sessions_pending import KEY, VISITS, DayBeforeMissing
from de_assets.partitions import daily, hourly
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("incremental_sessionizer")

FIRST, SECOND, THIRD = daily.get_partition_keys()[:3]
START = daily.time_window_for_partition_key(FIRST).start
DAYS = 3
INSTANT = pa.timestamp("us", tz="UTC")
Row = tuple[str, datetime, datetime, int]
"""User, first and last visit, number of visits."""


@dataclass
class World:
    """Three days of enriched visits, the two gold tables, and the instance that remembers the runs."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance
    visits: list[tuple[str, datetime]] = field(default_factory=list)

    def land(self, visits: Iterable[tuple[str, datetime]]) -> None:
        """Replace the source by all visits so far, in hours."""
        self.visits.extend(visits)
        moments = [at for _, at in self.visits]
        columns = {
            "user_id": pa.array([user for user, _ in self.visits], pa.string()),
            "event_time": pa.array(moments, INSTANT),
            "visit_id": pa.array([f"v{number}" for number in range(len(moments))], pa.string()),
            "page": pa.array([f"/{number % 5}" for number in range(len(moments))], pa.string()),
            "event_hour": pa.array([at.replace(minute=0, second=0, microsecond=0) for at in moments], INSTANT),
        }
        source = Path(self.path("silver/visits_enriched"))
        source.mkdir(parents=True, exist_ok=True)
        write_deltalake(str(source), pa.table(columns), mode="overwrite", partition_by=["event_hour"])

    def run(self, *assets: dg.AssetsDefinition, key: str | None = None, tags: dict[str, str] | None = None) -> Any:
        storage: dict[str, Any] = {"root_uri": str(self.root), "storage_options": LocalConfig(), "spark": self.engine}
        source = dg.AssetSpec(VISITS, partitions_def=hourly, metadata={"partition_expr": "event_hour"})
        return dg.materialize(
            [*BOTH, source],
            partition_key=key,
            tags=tags,
            instance=self.instance,
            selection=list(assets or BOTH),
            resources={"io_manager": SparkDeltaIOManager(**storage), "lake": Lake(**storage)},
            raise_on_error=False,
        )

    def path(self, name: str) -> str:
        return str(self.root / name)

    def rows(self, name: str, day: str | None = None) -> list[Row]:
        table = DeltaTable(self.path(name)).to_pyarrow_table().to_pylist()
        return sorted(
            (row["user_id"], row["started_at"], row["ended_at"], row["visits"])
            for row in table
            if day is None or row["event_date"].isoformat() == day
        )

    def truth(self) -> tuple[list[Row], list[Row]]:
        """What is over at the end of the last day, and what is open."""
        by_user: dict[str, list[list[datetime]]] = {}
        for user, at in sorted(self.visits):
            runs = by_user.setdefault(user, [])
            if not runs or at - runs[-1][-1] >= timedelta(minutes=30):
                runs.append([])
            runs[-1].append(at)
        end = START + timedelta(days=DAYS)
        found = sorted((user, run[0], run[-1], len(run)) for user, runs in by_user.items() for run in runs)
        over = [row for row in found if row[2] + timedelta(minutes=30) <= end]
        return over, [row for row in found if row not in over]

    def require_truth(self) -> None:
        over, still_open = self.truth()
        assert self.rows("gold/sessions") == over
        assert self.rows("gold/sessions_pending", THIRD) == still_open


BOTH = (gold_pending.sessions_pending, gold_sessions.sessions)


@pytest.fixture
def world(engine: SparkEngine, lake: Path) -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(engine, lake, instance)


def around_midnights(seed: int) -> list[tuple[str, datetime]]:
    """Visits of ten people, most of them near a midnight; some are up all night."""
    chance = random.Random(seed)  # noqa: S311
    midnights = [START + timedelta(days=day) for day in range(1, DAYS + 1)]
    near = [
        (f"u{chance.randrange(10)}", chance.choice(midnights) + timedelta(minutes=chance.randrange(-240, 240)))
        for _ in range(150)
    ]
    through_the_night = [("owl", START + timedelta(hours=20, minutes=25 * n)) for n in range(70)]
    return [(u, at) for u, at in near + through_the_night if at < START + timedelta(days=DAYS)]


def test_a_range_a_late_visit_and_reruns_in_order_give_what_one_pass_gives(world: World) -> None:
    world.land(around_midnights(1))
    everything = {"dagster/asset_partition_range_start": FIRST, "dagster/asset_partition_range_end": THIRD}
    for asset in BOTH:
        assert world.run(asset, tags=everything).success
    world.require_truth()
    owl = [row for row in world.rows("gold/sessions") if row[0] == "owl"]
    assert [row[3] for row in owl] == [70]
    assert owl[0][1].date() < owl[0][2].date(), "midnight cuts nothing"

    before_midnight = START + timedelta(days=1, minutes=-3)
    world.land([("owl", START + timedelta(hours=19, minutes=50)), ("late", before_midnight)])
    for day in (FIRST, SECOND, THIRD):
        assert world.run(key=day).success
    world.require_truth()


def why_refused(result: Any) -> str:
    """What the one step that failed said."""
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    error = failure.step_failure_data.error
    return str(error.cause or error)


def test_neither_the_first_day_of_the_log_nor_one_after_a_quiet_night_misses_a_day(world: World) -> None:
    noon = START + timedelta(days=1, hours=12)
    world.land([("u", noon), ("u", noon + timedelta(days=1))])
    assert world.run(gold_pending.sessions_pending, key=SECOND).success
    assert world.rows("gold/sessions_pending") == []
    assert world.run(gold_sessions.sessions, key=THIRD).success
    assert [row[:2] for row in world.rows("gold/sessions")] == [("u", noon + timedelta(days=1))]


@pytest.mark.faults
def test_a_day_whose_day_before_is_unknown_is_refused_and_one_without_visits_closes_what_was_open(world: World) -> None:
    """Empty and unknown look alike in a table: to take one for the other would lose every session over midnight.

    The instance remembers that the day before was computed: where its table is gone, that is not taken for none.
    """
    late = START + timedelta(hours=23, minutes=50)
    world.land([("u", late)])
    said = why_refused(world.run(gold_pending.sessions_pending, key=SECOND))
    assert DayBeforeMissing.__name__ in said
    assert FIRST in said
    assert not (world.root / "gold").exists()
    assert world.run(gold_pending.sessions_pending, key=FIRST).success
    assert DayBeforeMissing.__name__ in why_refused(world.run(gold_sessions.sessions, key=THIRD))
    assert not (world.root / "gold" / "sessions").exists()
    pending, away = world.root / "gold" / KEY.path[-1], world.root / "away"
    pending.rename(away)
    assert not world.run(gold_sessions.sessions, key=SECOND).success
    assert not (world.root / "gold" / "sessions").exists()
    away.rename(pending)
    assert world.run(key=SECOND).success
    assert world.rows("gold/sessions") == world.rows("gold/sessions", SECOND) == [("u", late, late, 1)]
    assert world.rows("gold/sessions_pending", SECOND) == []
