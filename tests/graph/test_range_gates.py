"""A range with one bad partition: what passed goes on in the same run, the bad one alone is red, and what waits for it is told.

The whole way of the visits, bronze to gold, on real tables, started as a person starts it without a daemon. The same from
the UI is in `tests/ui/test_backfill_with_a_bad_hour.py`.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable
from instances import silent_instance
from pyspark.sql import functions as F

from de_assets.definitions import defs
from de_assets.filling.execution import reason
from de_assets.partitions import CALENDAR, hourly
from de_assets.ranges import range_tags
from de_assets.resources import resources
from de_assets.sources.landing import hour_folder, incoming, publish
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

GATE = "dead_letters_do_not_prevail"
MIDNIGHT = CALENDAR.start + timedelta(days=1)
HOURS = [MIDNIGHT + timedelta(hours=n) for n in range(-2, 3)]
KEYS = [hourly.get_partition_key(hour) for hour in HOURS]
BAD, GOOD = KEYS[3], {*KEYS} - {KEYS[3]}
FIRST_DAY, SECOND_DAY = f"{CALENDAR.start:%Y-%m-%d}", f"{MIDNIGHT:%Y-%m-%d}"
ROWS = {key: 3 + n for n, key in enumerate(KEYS)}
"""Visits that land in each hour: other numbers, so that no hour is taken for another one."""
BY_HOUR = ["bronze/visits", "silver/visits", "silver/visits_enriched", "staging/visits"]
BY_DAY = [
    "gold/sessions_pending",
    "gold/sessions",
    "gold/visits_cube_daily",
    "gold/visitor_sketches_daily",
    "gold/referral_stats",
]
BY_DAY += ["gold/daily_report", "serving/visits_csv", "serving/visits_export", "serving/page_counts"]


def visit(hour: datetime, number: int) -> bytes:
    context = {"user": {"ip": "192.0.2.1"}, "technical": {"device_type": "PC"}}
    told = {
        "visit_id": f"v{hour:%d%H}-{number}",
        "event_time": hour.isoformat(),
        "user_id": f"u{number}",
        "page": "home",
    }
    return json.dumps({**told, "context": context}).encode()


class Platform:
    """The blog's assets over a landing zone, a lake and an instance of their own."""

    def __init__(self, settings: Settings, engine: SparkEngine, instance: dg.DagsterInstance) -> None:
        self.settings, self.instance = settings, instance
        parts = dg.Definitions(
            assets=defs.assets, asset_checks=defs.asset_checks, resources=resources(settings, engine)
        )
        self.job = parts.resolve_implicit_global_asset_job_def()

    def land(self, hour: datetime, *more: bytes) -> None:
        """Land the hour's visits, and other lines beside them."""
        visits = [visit(hour, n) for n in range(ROWS[hourly.get_partition_key(hour)])]
        with incoming(self.settings.landing) as prepared:
            (prepared / "one.json").write_bytes(b"\n".join([*visits, *more]))
            publish(hour_folder(self.settings.landing, hour), {"one.json": prepared / "one.json"})

    def run(self, assets: list[str], first: str, last: str, *, gates: str = "") -> dg.ExecuteInProcessResult:
        """One run over the range, without a daemon, with all gates, or with those behind this asset alone."""
        keys = [dg.AssetKey.from_user_string(name) for name in assets]
        chosen = {k for key in keys for k in self.job.asset_layer.asset_graph.get(key).execution_set_asset_keys}
        graph = self.job.asset_layer.asset_graph
        guarded = {dg.AssetKey.from_user_string(gates)} if gates else chosen
        checks = {c for c in graph.asset_check_keys if c.asset_key in guarded and graph.get(c).blocking}
        job = self.job.get_subset(asset_selection=chosen, asset_check_selection=checks)
        return job.execute_in_process(instance=self.instance, tags=range_tags(first, last), raise_on_error=False)

    def rows(self, name: str, column: str) -> Counter[str]:
        """Rows by partition of what lies in the lake."""
        root = self.settings.staging_root if name.startswith("staging/") else self.settings.lake_root
        table = DeltaTable(f"{root}/{name}").to_pyarrow_table(columns=[column])
        at = "%Y-%m-%d-%H:00" if column.endswith("hour") else "%Y-%m-%d"
        return Counter(f"{value:{at}}" for value in table[column].to_pylist())

    def judge(self, asset: str, check: str, key: str) -> bool:
        """The verdict of one check on what is there."""
        gate = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), check)
        job = self.job.get_subset(asset_selection=set(), asset_check_selection={gate})
        done = job.execute_in_process(instance=self.instance, tags=range_tags(key, key), raise_on_error=False)
        (verdict,) = done.get_asset_check_evaluations()
        return verdict.passed


def materialised(result: dg.ExecuteInProcessResult, name: str) -> set[str]:
    key = dg.AssetKey.from_user_string(name)
    events = result.get_asset_materialization_events()
    return {str(e.partition) for e in events if e.asset_key == key}


def red(result: dg.ExecuteInProcessResult) -> set[tuple[str, str, str | None]]:
    """Verdicts that hold something back: asset, check, partition."""
    judged = result.get_asset_check_evaluations()
    return {(e.asset_key.to_user_string(), e.check_name, e.partition) for e in judged if not e.passed}


@pytest.fixture(scope="module")
def platform(home: Path, engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    assert engine.spark_session is not None
    with pytest.MonkeyPatch.context() as patch, silent_instance() as instance:
        patch.setenv("DE_HOME", str(tmp_path_factory.mktemp("home")))
        it = Platform(Settings.from_environment(), engine, instance)
        for hour, key in zip(HOURS, KEYS, strict=True):
            it.land(hour, *([b"no visit at all"] * 40 if key == BAD else []))
        yield it


@pytest.fixture(scope="module")
def hours(platform: Platform) -> dg.ExecuteInProcessResult:
    """Five hours, one of them bad, through all that is by hour."""
    return platform.run(BY_HOUR, KEYS[0], KEYS[-1])


@pytest.fixture(scope="module")
def days(platform: Platform, hours: dg.ExecuteInProcessResult) -> dg.ExecuteInProcessResult:
    """Both days afterwards. Nothing else in the run needs what the other gates would judge."""
    assert hours.success
    return platform.run(BY_DAY, FIRST_DAY, SECOND_DAY, gates="gold/sessions_pending")


def test_the_good_hours_of_a_range_go_on_in_the_same_run(platform: Platform, hours: dg.ExecuteInProcessResult) -> None:
    assert hours.success
    assert materialised(hours, "bronze/visits") == {*KEYS}, "what is judged is there to be looked at"
    for name in BY_HOUR[1:]:
        assert materialised(hours, name) == GOOD, name
        assert platform.rows(name, "event_hour") == {key: ROWS[key] for key in GOOD}, name


def test_the_bad_hour_alone_is_red_with_its_reason(hours: dg.ExecuteInProcessResult) -> None:
    assert red(hours) == {("bronze/visits", GATE, BAD)}
    (verdict,) = (e for e in hours.get_asset_check_evaluations() if (e.check_name, e.partition) == (GATE, BAD))
    assert "40" in (verdict.description or ""), verdict.description


def test_a_day_with_a_bad_hour_waits_and_the_other_days_go_on(
    platform: Platform, days: dg.ExecuteInProcessResult
) -> None:
    assert days.success
    for name in BY_DAY:
        assert materialised(days, name) == {FIRST_DAY}, name
    assert platform.rows("gold/sessions", "event_date").keys() == {FIRST_DAY}


@pytest.mark.pattern("aligned_fan_in")
def test_every_day_says_of_how_many_hours_it_was_made(days: dg.ExecuteInProcessResult) -> None:
    """Two hours of the first day landed; nothing was asked about the others, and each day says so whatever wrote it."""
    made = {
        event.asset_key.to_user_string(): event.materialization for event in days.get_asset_materialization_events()
    }
    for name in ("sessions_pending", "visits_cube_daily", "visitor_sketches_daily", "referral_stats", "daily_report"):
        told = made[f"gold/{name}"].metadata
        assert (told["completeness"].value, told["is_approximate"].value) == (2 / 24, True), name
        assert len(told["missing_inputs"].value) == 22, name


def test_what_consists_of_bad_partitions_alone_fails_and_says_what_it_waits_for(
    platform: Platform, days: dg.ExecuteInProcessResult
) -> None:
    assert days.success
    waits = platform.run(["gold/sessions"], SECOND_DAY, SECOND_DAY)
    assert not waits.success
    (failed,) = waits.get_step_failure_events()
    assert reason(failed).startswith("de_resources.held_back.HeldBack: `gold/sessions` was not computed")
    assert f"bronze/visits {BAD}, {GATE}" in reason(failed)

    refused = platform.run(BY_HOUR, BAD, BAD)
    assert not refused.success, "of a run without a good partition nothing goes on"
    assert materialised(refused, "silver/visits") == set()


def test_after_its_repair_the_hour_and_its_day_are_there(platform: Platform, days: dg.ExecuteInProcessResult) -> None:
    """`docs/second-day.md`: land the hour again, and materialise it; then what waited."""
    assert days.success
    shutil.rmtree(hour_folder(platform.settings.landing, HOURS[3]))
    platform.land(HOURS[3])
    hours = platform.run(BY_HOUR[:3], BAD, BAD)
    assert hours.success
    assert red(hours) == set()
    assert platform.rows("silver/visits_enriched", "event_hour") == ROWS
    waited = ["gold/sessions_pending", "gold/sessions"]
    after = platform.run(waited, SECOND_DAY, SECOND_DAY, gates="gold/sessions_pending")
    assert after.success
    assert {name: materialised(after, name) for name in waited} == {name: {SECOND_DAY} for name in waited}


def test_a_visit_that_is_there_twice_stops_who_counts_visits_and_not_who_counts_visitors(
    platform: Platform, engine: SparkEngine, days: dg.ExecuteInProcessResult
) -> None:
    """`gold/visitor_sketches_daily` does not need the promise that a key is unique; its siblings do."""
    assert days.success
    uri = f"{platform.settings.lake_root}/silver/visits_enriched"
    visits = engine.spark_session.read.format("delta").load(uri)
    visits.where(F.col("event_hour") == F.lit(HOURS[0])).limit(1).write.format("delta").mode("append").save(uri)
    assert platform.rows("silver/visits_enriched", "event_hour")[KEYS[0]] == ROWS[KEYS[0]] + 1
    assert not platform.judge("silver/visits_enriched", "key_is_unique", KEYS[0])

    both = platform.run(["gold/visits_cube_daily", "gold/visitor_sketches_daily"], FIRST_DAY, FIRST_DAY)
    assert materialised(both, "gold/visits_cube_daily") == set()
    assert materialised(both, "gold/visitor_sketches_daily") == {FIRST_DAY}
    (failed,) = both.get_step_failure_events()
    assert f"silver/visits_enriched {KEYS[0]}, key_is_unique" in reason(failed)
    (sketched,) = both.asset_materializations_for_node("gold__visitor_sketches_daily")
    assert KEYS[0] not in sketched.metadata["missing_inputs"].value, "the hour is in it, and it says so"
