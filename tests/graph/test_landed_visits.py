"""The account of landed visits on the blog's own assets, run by the engine: what is planted is what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_delta import LocalConfig
from deltalake import DeltaTable, write_deltalake
from seeding import seed

from de_assets.contracts.devices import Devices
from de_assets.contracts.users import Users
from de_assets.contracts.visits import BronzeVisits
from de_assets.gold import referral_stats, visits_cube_daily
from de_assets.landed_visits import LANDED, LETTERS
from de_assets.partitions import daily, hourly
from de_assets.silver.visits import valid_visits
from de_assets.silver.visits_enriched import visits_enriched
from de_resources.contract import Contract
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("dynamic_late_data_integrator")

HOURS = hourly.get_partition_keys()[:4]
TAKES = timedelta(hours=2)
DAY = daily.get_partition_keys()[0]
CUBE = visits_cube_daily.visits_cube_daily
OUTSIDE = [
    dg.AssetSpec(key, partitions_def=hourly, metadata={"partition_expr": "landing_hour"}) for key in (LANDED, LETTERS)
]
LOOKED_UP = [
    dg.AssetSpec(["silver", name], metadata={"contract": Contract.of(model).path})
    for name, model in (("users", Users), ("devices", Devices))
]
REFERRALS = referral_stats.referral_stats
ASSETS = [*OUTSIDE, *LOOKED_UP, valid_visits, visits_enriched, CUBE, REFERRALS]
CHECK, OF_REFERRALS = (
    check
    for module in (visits_cube_daily, referral_stats)
    for check in module.checks
    if check.check_key.name == "landed_rows_are_accounted_for"
)


@dataclass
class World:
    """Four hours of landed visits, and what the platform makes of them."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance

    def land(self, visits: Sequence[tuple[str, datetime, datetime]]) -> None:
        """Visits that land: identity, event, and hour of landing."""
        rows = [
            {"visit_id": id_, "event_time": at, "user_id": "u", "page": "/", "raw": f"{at}", "source_file": "log"}
            | {"landing_hour": hour, "was_dead_lettered": False}
            for id_, at, hour in visits
        ]
        columns = Contract.of(BronzeVisits).struct_type()
        seed(self.path("bronze", "visits"), rows, columns, partitioned_by=["landing_hour"])

    def run(self, *assets: dg.AssetsDefinition, keys: Sequence[str] = HOURS) -> None:
        bounds = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        selected = dg.AssetSelection.assets(*assets).without_checks()
        done = dg.materialize(
            ASSETS, tags=bounds, instance=self.instance, selection=selected, resources=self.resources()
        )
        assert done.success

    def judge(self, check: dg.AssetChecksDefinition = CHECK) -> dg.AssetCheckEvaluation:
        job = dg.define_asset_job("look", dg.AssetSelection.all_asset_checks())
        defs = dg.Definitions(ASSETS, asset_checks=[check], jobs=[job], resources=self.resources())
        (found,) = defs.resolve_job_def("look").execute_in_process(instance=self.instance).get_asset_check_evaluations()
        return found

    def resources(self) -> dict[str, Any]:
        storage: dict[str, Any] = {"root_uri": str(self.root), "storage_options": LocalConfig(), "spark": self.engine}
        return {"io_manager": SparkDeltaIOManager(**storage), "lake": Lake(**storage)}

    def path(self, layer: str, name: str) -> str:
        return str(self.root / layer / name)


def figures(found: dg.AssetCheckEvaluation) -> dict[str, int]:
    names = ("landed", "counted", "dead", "duplicates", "too old", "ahead", "waiting", "unexplained")
    return {name: int(str(found.metadata[name].value)) for name in names}


START = hourly.time_window_for_partition_key(HOURS[0]).start
NEXT, MINUTE = START + timedelta(hours=1), timedelta(minutes=1)
LAST, TOO_LATE = NEXT + timedelta(hours=1), NEXT + timedelta(hours=2)
PLANTED = [
    *((f"first {n}", START + n * MINUTE, START) for n in range(7)),
    *((f"first {n}", START + n * MINUTE, START) for n in range(2)),  # came twice
    *((f"next {n}", NEXT + n * MINUTE, NEXT) for n in range(4)),
    ("left early", START + MINUTE, NEXT),  # late by an hour
    ("first 6", START + 6 * MINUTE, NEXT),  # came again, an hour later
    ("ahead", NEXT + 90 * MINUTE, NEXT),  # dated in the future
    ("before the log", START - MINUTE, START),
    ("just in time", NEXT - MINUTE, LAST),  # two hours after its own
    ("left early", START + MINUTE, LAST),  # came again, later than before
    ("too late", NEXT - MINUTE, TOO_LATE),
]
COUNTED = {
    START: {*(f"first {n}" for n in range(7)), "left early", "just in time"},
    NEXT: {f"next {n}" for n in range(4)},
}
TRUTH = dict.fromkeys(("dead", "waiting", "unexplained"), 0) | {
    "landed": 20,
    "counted": sum(map(len, COUNTED.values())),
    "duplicates": 4,
    "too old": 2,
    "ahead": 1,
}


@pytest.fixture(scope="module")
def world(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """After the first run of everything, with an age that four hours can show; each test leaves it as it should be."""
    with dg.DagsterInstance.ephemeral() as instance, pytest.MonkeyPatch.context() as patched:
        made = World(engine, tmp_path_factory.mktemp("landed"), instance)
        patched.setattr("de_assets.silver.visits_enriched.TAKES_LATE_FOR", TAKES)
        made.land(PLANTED)
        made.run(valid_visits, visits_enriched)
        made.run(CUBE, keys=[DAY])
        yield made


def test_the_account_of_the_blog_is_what_was_planted(world: World) -> None:
    found = world.judge()
    assert found.passed, found.description
    assert figures(found) == TRUTH


def test_an_hour_has_its_late_visits_and_those_alone(world: World) -> None:
    rows = DeltaTable(world.path("silver", "visits_enriched")).to_pyarrow_table().to_pylist()
    assert Counter(row["visit_id"] for row in rows) == Counter(id_ for ids in COUNTED.values() for id_ in ids)
    for row in rows:
        assert row["visit_id"] in COUNTED[row["event_hour"]]


@pytest.mark.red_check("landed_rows_are_accounted_for")
def test_what_is_lost_is_red_until_its_hour_is_computed_again_and_what_comes_late_waits_for_its_hour_and_the_cube(
    world: World,
) -> None:
    """One visit is lost on the way, one lands in its hour after that was computed, and one two hours after its own."""
    DeltaTable(world.path("silver", "visits_enriched")).delete("visit_id = 'first 3'")
    lost = f"`silver/visits_enriched` {HOURS[0]}: 1 of `silver/visits` missing"
    found = world.judge()
    assert not found.passed
    assert lost in str(found.description)
    world.land([("later", NEXT + 9 * MINUTE, NEXT), ("left later", START + 2 * MINUTE, LAST)])
    found = world.judge()
    assert lost in str(found.description)
    assert figures(found) == {**TRUTH, "landed": 22, "waiting": 1, "unexplained": 1}
    world.run(valid_visits)
    assert figures(world.judge()) == {**TRUTH, "landed": 22, "waiting": 2}, "until their hours are computed again"
    world.run(visits_enriched)
    found = world.judge()
    assert found.passed, found.description
    assert figures(found) == {**TRUTH, "landed": 22, "waiting": 2}, "the cube had never lost it, and has not the others"
    world.run(CUBE, keys=[DAY])
    assert figures(world.judge()) == {**TRUTH, "landed": 22, "counted": 15}


def test_what_the_cube_counts_twice_is_red(world: World) -> None:
    before = figures(world.judge())
    cube = DeltaTable(world.path("gold", "visits_cube_daily"))
    cube.update({"visits": "visits + 1"}, predicate="grouping = 7")
    found = world.judge()
    assert not found.passed
    assert f"`gold/visits_cube_daily` {DAY}: 1 more than `silver/visits_enriched` has" in str(found.description)
    assert figures(found) == {**before, "counted": before["counted"] + 1, "unexplained": -1}


def test_letters_are_counted_as_landed(world: World) -> None:
    before = figures(world.judge())
    letters = world.engine.spark_session.createDataFrame([(START, "broken")] * 3, "landing_hour TIMESTAMP, raw STRING")
    write_deltalake(world.path("bronze", "visits_dead_letter"), letters.toArrow(), partition_by=["landing_hour"])
    found = figures(world.judge())
    assert (found["landed"], found["dead"]) == (before["landed"] + 3, 3)


SECOND, THIRD = START + timedelta(days=1), START + timedelta(days=2)
OF_TWO_DAYS = [
    *((f"first {n}", START + n * MINUTE, START) for n in range(5)),
    ("first 0", START, START),  # came twice in its hour
    ("first 1", START + MINUTE, NEXT),  # and again, an hour later
    ("twice", START + 9 * MINUTE, START),
    ("twice", LAST + 9 * MINUTE, LAST),  # on time in two hours of a day: one visit of the day
    *((f"second {n}", SECOND + n * MINUTE, SECOND) for n in range(3)),
    ("late", START + MINUTE, SECOND),
    ("late", START + MINUTE, SECOND + timedelta(hours=1)),  # late twice
    ("too late", START + MINUTE, THIRD),
    ("ahead", START + timedelta(hours=5), NEXT),
    ("before the log", START - MINUTE, START),
]
TRUE_OF_REFERRALS = dict.fromkeys(("dead", "waiting", "unexplained"), 0) | {
    "landed": 17,
    "counted": 10,
    "duplicates": 4,
    "too old": 2,
    "ahead": 1,
}


@pytest.mark.pattern("static_late_data_integrator")
def test_the_referrals_have_an_account_of_their_own_with_their_own_copies_and_window(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days and not hours take late visits in there, here for a day after their own."""
    for module in ("gold.referral_stats", "landed_visits"):
        monkeypatch.setattr(f"de_assets.{module}.REFERRAL_DAYS", 1)
    hours = [hourly.get_partition_key_for_timestamp(at.timestamp()) for at in (START, THIRD)]
    days = daily.get_partition_keys()[:2]
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(engine, tmp_path, instance)
        world.land(OF_TWO_DAYS)
        world.run(valid_visits, keys=hours)
        world.run(REFERRALS, keys=days)
        found = world.judge(OF_REFERRALS)
        assert found.passed, found.description
        assert figures(found) == TRUE_OF_REFERRALS
        table = DeltaTable(world.path("gold", "referral_stats"))
        rows = {
            f"{row['event_date']}": (row["visits"], row["late_visits"]) for row in table.to_pyarrow_table().to_pylist()
        }
        assert rows == {days[0]: (7, 1), days[1]: (3, 0)}, "who came on time and late was on time"

        table.update({"visits": "visits - 2"}, predicate=f"event_date = '{days[0]}'")
        found = world.judge(OF_REFERRALS)
        assert not found.passed
        assert f"`gold/referral_stats` {days[0]}: 2 of `silver/visits` missing" in str(found.description)
        table.update({"visits": "visits + 2"}, predicate=f"event_date = '{days[0]}'")

        world.land([("later", START + MINUTE, SECOND)])
        world.run(valid_visits, keys=[hourly.get_partition_key_for_timestamp(SECOND.timestamp())])
        found = world.judge(OF_REFERRALS)
        assert (found.passed, figures(found)) == (True, {**TRUE_OF_REFERRALS, "landed": 18, "waiting": 1})
