"""`gold/visits_cube_weekly` by real runs on a real lake: from its days, when one of them changes, and what its checks say."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster_delta import LocalConfig
from deltalake import DeltaTable, write_deltalake

from de_assets.gold import visitor_sketches_daily, visits_cube_daily, visits_cube_weekly
from de_assets.partitions import daily, hourly, weekly
from de_assets.transforms.data_value.mergeable_measures import STANDARD_ERROR
from de_checks.estimate import verdict
from de_checks.keys import KEY_IS_UNIQUE
from de_checks.window import NoWindow, inside
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("distributed_aggregator")

DAYS = daily.get_partition_keys()[:3]
(WEEK,) = weekly.get_partition_keys()
START = daily.time_window_for_partition_key(DAYS[0]).start
SOURCE = dg.AssetSpec(["silver", "visits_enriched"], partitions_def=hourly, metadata={"partition_expr": "event_hour"})
CUBE, SKETCHES = visits_cube_daily.visits_cube_daily, visitor_sketches_daily.visitor_sketches_daily
WEEKLY = visits_cube_weekly.visits_cube_weekly
ASSETS = [CUBE, SKETCHES, WEEKLY, SOURCE]
# That a key comes once: `World.rows` looks, and the checks of `de run` (`ui/conftest.py`).
CHECKS = [
    check
    for check in (visits_cube_daily.checks[0], *visitor_sketches_daily.checks, *visits_cube_weekly.checks)
    if check.check_key.name != KEY_IS_UNIQUE
]
INSTANT = pa.timestamp("us", tz="UTC")
SOURCE_COLUMNS = pa.schema(
    {
        "event_time": INSTANT,
        **dict.fromkeys(("user_id", "country", "device_type", "referral"), pa.string()),
        "is_bot": pa.bool_(),
        "event_hour": INSTANT,
    }
)
Visit = tuple[datetime, str, str | None, str | None, str | None, bool | None]


@dataclass
class World:
    """Three days of enriched visits, the tables that are made of them, and the instance that remembers the runs."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance
    visits: list[Visit] = field(default_factory=list)
    cursor: Any = None

    def land(self, visits: Sequence[Visit]) -> None:
        """Add to the source, which holds hours."""
        self.visits.extend(visits)
        rows = [(*visit, visit[0].replace(minute=0)) for visit in self.visits]
        columns = dict(zip(SOURCE_COLUMNS.names, zip(*rows, strict=True), strict=True))
        path = self.root / "silver" / "visits_enriched"
        table = pa.table(columns, schema=SOURCE_COLUMNS)
        write_deltalake(str(path), table, mode="overwrite", partition_by=["event_hour"])

    def run(self, *assets: dg.AssetsDefinition, keys: Sequence[str]) -> dg.ExecuteInProcessResult:
        """One run over these partitions, with all checks of what it writes."""
        bounds = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        return dg.materialize(
            [*ASSETS, *CHECKS],
            partition_key=keys[0] if len(keys) == 1 else None,
            tags=None if len(keys) == 1 else bounds,
            instance=self.instance,
            selection=dg.AssetSelection.assets(*assets),
            resources=self.resources(),
        )

    def judge(self, name: str) -> dg.AssetCheckEvaluation:
        """What a check of the week says about what is there now."""
        check = dg.AssetSelection.checks(dg.AssetCheckKey(WEEKLY.key, name))
        look = self.definitions(dg.define_asset_job("look", check)).resolve_job_def("look")
        # By its tag: a job of nothing but checks has no partitions of its own.
        done = look.execute_in_process(instance=self.instance, tags={"dagster/partition": WEEK})
        (found,) = done.get_asset_check_evaluations()
        return found

    def requested(self) -> set[str | None]:
        """The weeks that automation asks for now."""
        result = dg.evaluate_automation_conditions(self.definitions(), self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return set(result.get_requested_partitions(WEEKLY.key))

    def definitions(self, *jobs: Any) -> dg.Definitions:
        return dg.Definitions(ASSETS, asset_checks=CHECKS, jobs=jobs, resources=self.resources())

    def resources(self) -> dict[str, Any]:
        storage: dict[str, Any] = {"root_uri": str(self.root), "storage_options": LocalConfig(), "spark": self.engine}
        return {"io_manager": SparkDeltaIOManager(**storage), "lake": Lake(**storage)}

    def rows(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The weekly table: figures by week, grouping and dimensions."""
        table = DeltaTable(str(self.root / "gold" / "visits_cube_weekly")).to_pyarrow_table().to_pylist()
        found = {tuple(row.values())[:5]: tuple(row.values())[5:] for row in table}
        assert len(found) == len(table)
        return found

    def truth(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The same, counted from all visits in plain Python."""
        groups: dict[tuple[Any, ...], list[Visit]] = defaultdict(list)
        for visit in self.visits:
            for grouping in range(8):
                of = [None if grouping & bit else value for bit, value in zip((4, 2, 1), visit[2:5], strict=True)]
                groups[date.fromisoformat(WEEK), grouping, *of].append(visit)
        return {key: _figures(visits) for key, visits in groups.items()}


def verdicts(done: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    """What the checks of a run that ended well say, by their names."""
    assert done.success
    return {each.check_name: each for each in done.get_asset_check_evaluations()}


def _figures(visits: Sequence[Visit]) -> tuple[Any, ...]:
    bots = sum(bool(visit[5]) for visit in visits)
    days, users = {visit[0].date() for visit in visits}, {visit[1] for visit in visits}
    return len(days), len(visits), bots, bots / len(visits), len(users), STANDARD_ERROR


def some(seed: int, count: int = 80) -> list[Visit]:
    """Visits of twenty people in one hour of each of three days; of some nothing else is known."""
    chance = random.Random(seed)  # noqa: S311
    return [
        (
            START + timedelta(days=chance.randrange(3), minutes=chance.randrange(60)),
            f"u{chance.randrange(20)}",
            chance.choice(["AT", "DE", None]),
            chance.choice(["mac", None]),
            chance.choice(["search", None]),
            chance.choice([True, False, None]),
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def world(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """After the first run of everything; each test leaves it as it should be."""
    with dg.DagsterInstance.ephemeral() as instance:
        made = World(engine, tmp_path_factory.mktemp("weeks"), instance)
        made.land(some(1))
        assert made.requested() == set()
        assert made.run(CUBE, SKETCHES, keys=DAYS).success
        assert made.requested() == {WEEK}, "three days of the week are all that the calendar has of it"
        assert made.run(WEEKLY, keys=[WEEK]).success
        yield made


def test_a_week_is_what_its_visits_say(world: World) -> None:
    found = world.rows()
    assert found == world.truth()
    assert {figures[0] for key, figures in found.items() if key[1] == 7} == {3}


@pytest.mark.red_check("adds_up", "estimate_holds")
def test_a_day_without_sketches_has_unknown_visitors_and_one_that_changes_makes_its_week_be_computed_again(
    world: World,
) -> None:
    """First as of a day that was there before sketches were: counts are right, and visitors are unknown instead of too few."""
    DeltaTable(str(world.root / "gold" / "visitor_sketches_daily")).delete(f"event_date = '{DAYS[1]}'")
    judged = verdicts(world.run(WEEKLY, keys=[WEEK]))["estimate_holds"]
    total = world.rows()[date.fromisoformat(WEEK), 7, None, None, None]
    assert total[:3] == world.truth()[date.fromisoformat(WEEK), 7, None, None, None][:3]
    assert total[4:] == (None, None)
    assert (judged.passed, judged.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert judged.metadata["exact"].value == len({visit[1] for visit in world.visits})

    world.land([(START + timedelta(days=1, hours=1), "late", "FR", None, None, False)])
    assert world.run(CUBE, SKETCHES, keys=[DAYS[1]]).success
    judged = world.judge("adds_up")
    assert not judged.passed
    assert judged.metadata["different"].value == 8, "one row of each grouping, some of them new"
    assert world.requested() == {WEEK}
    judged_again = verdicts(world.run(WEEKLY, keys=[WEEK]))
    assert world.rows() == world.truth()
    assert (judged_again["adds_up"].passed, judged_again["estimate_holds"].passed) == (True, True)
    assert world.requested() == set()


def test_an_estimate_is_judged_by_its_stated_error() -> None:
    allowed = 3 * STANDARD_ERROR
    near, far = verdict(10_480, 10_000, allowed), verdict(9_500, 10_000, allowed)
    assert (near.passed, far.passed) == (True, False)
    assert (near.metadata["relative_error"], far.metadata["relative_error"]) == (0.048, 0.05)
    assert verdict(0, 0, allowed).passed
    assert not verdict(1, 0, allowed).passed
    assert not verdict(None, 5, allowed).passed


def test_a_window_is_asked_of_what_has_one(world: World) -> None:
    with pytest.raises(NoWindow, match="`gold/x` has no time partitions"):
        inside(dg.AssetSpec(["gold", "x"]), None, world.engine.spark_session.range(1), "id")
