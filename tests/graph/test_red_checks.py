"""Red checks of docs/second-day.md that are judged by metadata or by one small table: the cause, the remedy, and green again.

The other rows of the table are proved where their datasets are; `red_check` marks them all (`tests/red_checks.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyarrow as arrow
import pyspark.sql.types as T
import pytest
from checks_world import World
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from de_checks.dead_letters import ACCEPT_TAG as DEAD_LETTERS_ACCEPTED
from de_checks.dead_letters import dead_letter_checks
from de_checks.filter_shares import filter_check
from de_checks.freshness import completeness_check, newest_event_check
from de_checks.keys import reference_check
from de_checks.lag import delay_check
from de_checks.rejections import ACCEPT_TAG as REJECTIONS_ACCEPTED
from de_checks.rejections import rejection_check
from de_resources.delta.metadata import DEAD_LETTERS_OPEN, FILTER_CONDITIONS, FILTER_ROWS_IN
from de_resources.spark import SparkEngine

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
KEYS = DAYS.get_partition_keys()
NOW = datetime(2024, 1, 4, tzinfo=UTC)
ROWS = "dagster/partition_row_count"


class UserVisits(pa.DataFrameModel):
    """Who came."""

    user_id: T.StringType = pa.Field(nullable=False, description="The visitor")

    class Config:
        """The dataset as a whole."""

        name = "silver.visits"


@dataclass
class Told:
    """Assets by day whose materialisations say what the test wants them to, and checks of them."""

    names: Sequence[str]
    said: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        self.assets = [self._asset(name) for name in self.names]
        self.checks: list[dg.AssetChecksDefinition] = []

    def _asset(self, name: str) -> dg.AssetsDefinition:
        @dg.asset(name=name, partitions_def=DAYS)
        def told(context: dg.AssetExecutionContext) -> None:
            context.add_asset_metadata(self.said[name][context.partition_key], partition_key=context.partition_key)

        return told

    def run(
        self, key: str, *, only_check: bool = False, tags: Mapping[str, str] | None = None, **said: Any
    ) -> set[bool]:
        """Materialise a day with this metadata by asset, or only judge it again; the verdicts."""
        for name, metadata in said.items():
            self.said.setdefault(name, {})[key] = metadata
        job = dg.Definitions(self.assets, asset_checks=self.checks).resolve_implicit_global_asset_job_def()
        graph = job.asset_layer.asset_graph
        if only_check:
            job = job.get_subset(asset_selection=set(), asset_check_selection=graph.asset_check_keys)
        done = job.execute_in_process(
            partition_key=key, instance=self.instance, tags=dict(tags or {}), raise_on_error=False
        )
        return {each.passed for each in done.get_asset_check_evaluations()}


def account(rows: int, **removed: int) -> dict[str, Any]:
    """What a filter says of itself."""
    return {FILTER_ROWS_IN: rows, FILTER_CONDITIONS: {c: {"first": n, "alone": n} for c, n in removed.items()}}


@pytest.mark.pattern("filter_interceptor")
@pytest.mark.red_check("no_row_was_rejected")
def test_rows_that_no_table_can_hold_are_mended_at_the_source_or_done_without() -> None:
    told = Told(["loads"])
    told.checks = [rejection_check(told.assets[0])]
    assert told.run(KEYS[0], loads=account(10, conceivable=1)) == {False}
    assert told.run(KEYS[0], loads=account(10, conceivable=0)) == {True}, "mended there, and loaded again"
    assert told.run(KEYS[1], loads=account(10, conceivable=1)) == {False}
    assert told.run(KEYS[1], only_check=True, tags={REJECTIONS_ACCEPTED: "a test of theirs"}) == {True}


@pytest.mark.pattern("filter_interceptor")
@pytest.mark.red_check("filter_shares_are_stable")
def test_a_producer_s_clock_that_was_set_right_ends_the_odd_shares() -> None:
    told = Told(["loads"])
    told.checks = [filter_check(told.assets[0])]
    for key in KEYS[:3]:
        assert told.run(key, loads=account(100, future=5)) == {True}
    assert told.run(KEYS[3], loads=account(100, future=60)) == {False}
    assert told.run(KEYS[3], loads=account(100, future=4)) == {True}


@pytest.mark.pattern("dead_letter")
@pytest.mark.red_check("dead_letters_are_few", "dead_letters_do_not_prevail")
def test_letters_that_were_repaired_or_given_up_do_not_count_and_a_person_may_let_an_hour_pass() -> None:
    told = Told(["dead", "valid"])
    told.checks = dead_letter_checks(told.assets[1], told.assets[0])
    assert told.run(KEYS[0], dead={ROWS: 60}, valid={ROWS: 40}) == {False}
    # 55 were replayed, and are among the valid rows; 4 were discarded.
    assert told.run(KEYS[0], dead={ROWS: 60, DEAD_LETTERS_OPEN: 1}, valid={ROWS: 95}) == {True}
    assert told.run(KEYS[1], dead={ROWS: 60}, valid={ROWS: 40}) == {False}
    accepted = told.run(KEYS[1], only_check=True, tags={DEAD_LETTERS_ACCEPTED: "the producer's test"})
    assert accepted == {False, True}, "the second check lets it pass, the first still says it"


@pytest.mark.pattern("flow_interruption_detector")
@pytest.mark.red_check("partitions_are_complete")
def test_partitions_that_are_backfilled_are_not_missing_any_more() -> None:
    told = Told(["loads"])
    told.checks = [completeness_check(told.assets[0], now=lambda: NOW)]
    assert told.run(KEYS[0], loads={}) == {False}
    assert told.run(KEYS[2], loads={}) == {False}
    assert told.run(KEYS[1], loads={}) == {True}


@pytest.fixture
def world(spark: SparkSession, engine: SparkEngine, tmp_path: Path) -> World:
    return World(spark, engine, tmp_path / "lake")


@pytest.mark.pattern("flow_interruption_detector")
@pytest.mark.red_check("newest_event_is_recent", "delay_is_short")
def test_a_flow_that_goes_on_is_recent_and_fast_again(world: World) -> None:
    came: list[tuple[datetime, float]] = [(NOW - timedelta(hours=9), 60_000.0)]

    @dg.asset(key=["silver", "events"])
    def events() -> DataFrame:
        return world.spark.createDataFrame(came, "event_time timestamp, delay_ms double")

    recent = newest_event_check(events, column="event_time", max_age=timedelta(hours=1), now=lambda: NOW)
    short = delay_check(events, column="delay_ms", since="event_time", median=timedelta(seconds=5))
    world.define(events, recent, short)
    assert {each.passed for each in world.run().get_asset_check_evaluations()} == {False}
    came += [(NOW - timedelta(minutes=n), 900.0) for n in (1, 2)]
    assert {each.passed for each in world.run().get_asset_check_evaluations()} == {True}


@pytest.mark.pattern("constraints_enforcer")
@pytest.mark.red_check("user_id_is_in_silver_users")
def test_the_users_come_and_then_the_partition_again(world: World) -> None:
    users = dg.AssetSpec(["silver", "users"])

    def comes(*names: str, table: str = "users", column: str = "id") -> None:
        write_deltalake(str(world.root / "silver" / table), arrow.table({column: names}), mode="append")

    @dg.asset(key=["silver", "visits"], metadata={"contract": f"{__name__}:UserVisits"})
    def visits() -> DataFrame:
        return world.spark.createDataFrame([("ann",), ("bob",)], "user_id string")

    check = reference_check(visits, "user_id", users.key, "id")
    world.define(users, visits, check)
    # The run that wrote them is over.
    comes("ann", "bob", table="visits", column="user_id")
    world.instance.report_runless_asset_event(dg.AssetMaterialization(visits.key, metadata={"delta/version": 0}))
    comes("ann")
    assert {each.passed for each in world.run(only="checks").get_asset_check_evaluations()} == {False}
    comes("bob")
    assert {each.passed for each in world.run().get_asset_check_evaluations()} == {True}
