"""What a person decides about audited slices: a false alarm is published, a publication is taken back; nobody copies a row."""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from io_manager_support import ORDERS, Shop
from pyspark.sql import DataFrame
from seeding import signed

from de_assets.automation.maintenance.lake_tables import LakeTables
from de_assets.automation.maintenance.publication import (
    AUDITED,
    PUBLISH,
    ROLL_BACK,
    KeepsNoStage,
    NoSuchPartition,
    audited_tables,
    publication_jobs,
)
from de_assets.definitions import assets as all_assets
from de_checks.publication import NAME, publication_check
from de_resources.delta.log.changed_partitions import changed_partitions
from de_resources.delta.log.retention import OVERRIDE
from de_resources.delta.maintenance import maintain
from de_resources.delta.publish.decisions import NoEarlierPublication, NoReason, NothingStaged, waiting
from de_resources.delta.publish.publication import BreaksConstraints, CannotPublish
from de_resources.delta.publish.staging import STAGES, StagedGone, staging_of
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.refusals import ConcurrentWrite
from de_resources.errors import PlatformError
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("audit_write_audit_publish")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-06")
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"
ORDERS_KEY = dg.AssetKey(["silver", "orders"])


class World(Shop):
    """A shop whose orders are audited, and a person who decides."""

    def orders(self, amounts: Mapping[str, Sequence[float]]) -> dg.AssetsDefinition:
        """One order per amount of each day."""

        @dg.asset(
            key=ORDERS_KEY,
            kinds={"deltalake"},
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={
                "contract": ORDERS,
                "partition_expr": "day",
                "writer": AUDITED,
                "dagster/table_name": "silver.orders",
            },
        )
        def definition(context: dg.AssetExecutionContext) -> DataFrame:
            rows = [
                (n, date.fromisoformat(k), a, "a@b") for k in context.partition_keys for n, a in enumerate(amounts[k])
            ]
            return self.frame(rows, "id long, day date, amount double, email string")

        return definition

    def land(self, amounts: Mapping[str, Sequence[float]]) -> None:
        """Run these days as one range."""
        self.run(self.orders(amounts), keys=(min(amounts), max(amounts)))

    def passes(self, amounts: Mapping[str, Sequence[float]]) -> bool:
        """Run these days as one range, with the check; whether what is downstream goes on."""
        definition = self.orders(amounts)
        done = dg.materialize(
            [definition, publication_check(definition)],
            instance=self.instance,
            resources={"io_manager": self.manager, "lake": self.lake},
            tags={
                "dagster/asset_partition_range_start": min(amounts),
                "dagster/asset_partition_range_end": max(amounts),
            },
            raise_on_error=False,
        )
        return done.success

    def files_gone(self, day: str) -> list[tuple[bool, Any]]:
        """Whether the check passes a day, and of how many files it tells that they are gone."""
        definition = self.orders({})
        found = self.judged(publication_check(definition), definition, day)
        return [(each.passed, each.metadata.get("files_gone")) for each in found]

    def decide(self, job: str, partition: str = D1, reason: str = "looked at it", **config: Any) -> dict[str, Any]:
        """Run the job; the metadata of its output."""
        (chosen,) = (j for j in publication_jobs([self.orders({})]) if j.name == job)
        (op,) = chosen.graph.node_defs
        settings = {"table": "silver/orders", "partition": partition, "reason": reason, **config}
        try:
            result = chosen.execute_in_process(
                instance=self.instance,
                resources={"lake": self.lake},
                run_config={"ops": {op.name: {"config": settings}}},
            )
        except dg.DagsterError as error:
            raise error.__cause__ or error from None
        (output,) = (e for e in result.events_for_node(op.name) if e.is_successful_output)
        return {name: value.value for name, value in output.step_output_data.metadata.items()}

    def amounts(self, *, engine: bool = False) -> list[tuple[str, float]]:
        """What readers see without an engine, or by it."""
        rows = (self.rows_by_the_engine if engine else self.rows)("orders")
        return sorted((str(day), amount) for _, day, amount, _ in rows)

    @property
    def table(self) -> Table:
        return Table("silver.orders", self.uri("orders"))


@pytest.fixture
def world(engine: SparkEngine, lake: Path) -> World:
    return World(engine, lake)


def test_a_false_alarm_is_published_with_its_reason_and_taken_back_again(world: World) -> None:
    world.land({D1: [1.0], D2: [2.0]})
    world.land({D1: [-1.0], D2: [3.0]})
    assert world.amounts() == [(D1, 1.0), (D2, 3.0)]
    assert [(w.key, w.staged) for w in waiting(world.table)] == [(D1, 1)]
    files = set(Path(world.uri("orders")).rglob("*.parquet"))

    told = world.decide(PUBLISH, reason="a refund is no mistake")
    assert told["publication/bytes_written"] == 0
    assert world.amounts() == [(D1, -1.0), (D2, 3.0)]
    assert waiting(world.table) == []
    (commit,) = world.log("orders").commits(1)
    publication = commit.stamp["publication"]
    assert (publication["by"], publication["reason"]) == ("person", "a refund is no mistake")
    # What is downstream goes on: the newest materialisation of the day has a verdict, and it is good.
    key = dg.AssetCheckKey(ORDERS_KEY, NAME)
    (record,) = world.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    wanted = dg.AssetRecordsFilter(asset_key=ORDERS_KEY, asset_partitions=[D1])
    (newest,) = world.instance.fetch_materializations(wanted, limit=1).records
    assert record.evaluation is not None
    assert record.evaluation.passed
    assert record.evaluation.target_materialization_data is not None
    assert record.evaluation.target_materialization_data.storage_id == newest.storage_id
    # The late data of others is told by the log, and so is this.
    version = world.version("orders")
    assert [p for p, c in changed_partitions(world.log("orders")).changed.items() if c.version == version] == [(D1,)]

    assert "skipped" in world.decide(PUBLISH, reason="again")
    assert world.version("orders") == version
    world.decide(ROLL_BACK, reason="it was one after all")
    assert world.amounts() == world.amounts(engine=True) == [(D1, 1.0), (D2, 3.0)]
    assert set(Path(world.uri("orders")).rglob("*.parquet")) == files
    with pytest.raises(NoEarlierPublication):
        world.decide(ROLL_BACK)
    world.decide(ROLL_BACK, version=version)
    assert world.amounts() == [(D1, -1.0), (D2, 3.0)]


@pytest.mark.red_check("is_published")
def test_held_days_are_mended_or_published_and_what_is_shown_survives_maintenance_and_a_foreign_vacuum_is_seen(
    world: World,
) -> None:
    """The life of some days: `D1` is always good, `D2` was shown and is held then, of `D3` nobody has seen anything."""
    assert world.passes({D1: [1.0], D2: [2.0]})
    assert not world.passes({D1: [5.0, 6.0], D2: [-2.0], D3: [-3.0]}), "held, and what is downstream waits"
    _maintain_and_roll_back(world)
    _publish_by_two_at_once(world, D3)
    assert world.amounts() == [(D1, 5.0), (D1, 6.0), (D2, 2.0), (D3, -3.0)]
    key = dg.AssetCheckKey(ORDERS_KEY, NAME)
    (record,) = world.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.evaluation is not None
    assert record.evaluation.passed
    _vacuum_the_stage_around_the_platform(world)
    assert world.passes({D1: [7.0], D2: [4.0]}), "mended at their source, what is gone and what was held"
    assert world.files_gone(D1) == [(True, None)]
    assert world.amounts() == [(D1, 7.0), (D2, 4.0), (D3, -3.0)]


def _maintain_and_roll_back(world: World) -> None:
    stamp = CommitInfo("silver.orders", "maintenance", "all", "m", "m", "m/1")
    # Old files that were given up just now: the retention is counted from then.
    long_ago = time.time() - timedelta(days=30).total_seconds()
    for file in Path(world.uri("orders"), "_staged").rglob("*.parquet"):
        os.utime(file, (long_ago, long_ago))
    maintain(world.spark, world.table, stamp, query_runs=0)
    world.decide(ROLL_BACK)
    assert world.amounts() == [(D1, 1.0), (D2, 2.0)]
    world.decide(ROLL_BACK, version=2)
    assert world.amounts() == [(D1, 5.0), (D1, 6.0), (D2, 2.0)]
    maintain(world.spark, world.table, stamp, retention=timedelta(), override=OVERRIDE, query_runs=0)
    # Beyond the retention only what nobody sees and nothing waits for is gone, and a rollback to it says so.
    assert world.amounts() == [(D1, 5.0), (D1, 6.0), (D2, 2.0)]
    with pytest.raises(StagedGone, match="were vacuumed"):
        world.decide(ROLL_BACK)


def _publish_by_two_at_once(world: World, day: str) -> None:
    """The second one looks again at what is there."""
    met: list[str] = []

    def meet(_: str) -> None:
        if not met:
            met.append("another one was faster")
            world.decide(PUBLISH, partition=day)

    # Nothing was shown of the day before, so that the two commits touch no file in common: both would be taken.
    with at("before_switch", meet):
        assert "skipped" in world.decide(PUBLISH, partition=day)
    assert met
    assert world.log("orders").rows_by_partition()[(date.fromisoformat(day),)] == 1


def _vacuum_the_stage_around_the_platform(world: World) -> None:
    """Nobody can refuse it: the stage is a table as any other, and what it no longer lists readers may be shown still."""
    stage = DeltaTable(staging_of(world.table).uri)
    vacuum_without_an_engine(stage)
    assert world.files_gone(D1) == [(True, None)], "what is staged last is kept"
    # As a run leaves it that died before it had staged the day again.
    stage.delete(f"day = '{D1}'")
    vacuum_without_an_engine(stage)
    assert world.files_gone(D1) == [(False, dg.IntMetadataValue(1))]


def test_a_foreign_vacuum_of_the_readers_table_removes_nothing_that_is_staged_or_published(world: World) -> None:
    world.land({D1: [1.0], D2: [2.0]})
    world.land({D1: [-1.0], D2: [3.0]})
    vacuum_around(world, world.table.uri)
    assert world.amounts() == [(D1, 1.0), (D2, 3.0)]
    world.decide(PUBLISH)
    world.decide(ROLL_BACK)
    world.decide(ROLL_BACK, partition=D2)
    assert world.amounts() == [(D1, 1.0), (D2, 2.0)], "also what was published before"


def vacuum_without_an_engine(stage: DeltaTable) -> None:
    """What the same person does in Python."""
    stage.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def vacuum_around(world: World, uri: str) -> None:
    """What a person does with plain Spark who wants the disk back at once."""
    session = world.spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.sql(f"VACUUM delta.`{uri}` RETAIN 0 HOURS")


def test_of_two_publishers_one_takes_its_turn_after_the_other(world: World) -> None:
    world.land({D1: [-1.0], D2: [-2.0]})
    met: list[str] = []

    def meet(_: str) -> None:
        if not met:
            met.append("another one was faster")
            world.decide(PUBLISH, partition=D2)

    with at("before_switch", meet):
        world.decide(PUBLISH, partition=D1)
    assert met
    assert world.amounts() == [(D1, -1.0), (D2, -2.0)]


def test_a_run_that_was_overtaken_does_not_hide_the_newer_rows(world: World) -> None:
    world.land({D1: [1.0]})

    def another_run_stages(_: str) -> None:
        log = staging_of(world.table).log()
        assert log is not None
        stamp = CommitInfo("silver.orders", "silver/orders", D1, "b", "b", "b/1", {STAGES: [D1]})
        log.table.create_write_transaction(
            [], "append", log.table.schema(), log.partition_columns(), commit_properties=signed(stamp)
        )

    with at("after_commit", another_run_stages), pytest.raises(ConcurrentWrite, match="it staged version"):
        world.land({D1: [2.0]})
    assert world.amounts() == [(D1, 1.0)]


@pytest.mark.parametrize(
    ("decision", "error"),
    [
        ({"reason": " "}, NoReason),
        ({"partition": "2024-01-05"}, NothingStaged),
        ({"partition": "2030-01-01"}, NoSuchPartition),
        ({"partition": "soon"}, NoSuchPartition),
        ({"table": "silver/other"}, KeepsNoStage),
    ],
)
def test_what_cannot_be_decided_is_refused(world: World, decision: dict[str, Any], error: type[PlatformError]) -> None:
    with pytest.raises(error):
        world.decide(PUBLISH, **decision)


def test_the_store_has_the_last_word_about_its_constraints(world: World) -> None:
    world.land({D1: [1.0]})
    world.spark.sql(f"ALTER TABLE {world.table.sql} ADD CONSTRAINT sound CHECK (amount >= 0)")
    world.land({D1: [2.0], D2: [-2.0]})
    assert world.amounts() == [(D1, 2.0)]
    with pytest.raises(BreaksConstraints):
        world.decide(PUBLISH, partition=D2)
    world.spark.sql(f"ALTER TABLE {world.table.sql} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    with pytest.raises(CannotPublish, match="enableChangeDataFeed"):
        world.decide(PUBLISH, partition=D2)


def test_the_jobs_of_the_lake_know_what_is_audited() -> None:
    jobs = {job.name: job for job in publication_jobs(all_assets)}
    assert set(jobs) == {PUBLISH, ROLL_BACK}
    assert list(audited_tables(LakeTables.of(all_assets))) == ["gold/visits_cube_daily", "silver/visits_live_hours"]
