"""Dynamic Late Data Integrator on the blog's graph: who follows what, and hours as the engine writes them."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from io_manager_support import Shop
from pyspark.sql import DataFrame

from de_assets.automation.late_data.runs import Consumer, NotByTime, NotStoredBy
from de_assets.automation.late_data.visits import (
    ENRICHED,
    LATE_OF_HOURS,
    OF_DAYS,
    OF_HOURS,
    OF_TOTALS,
    late_days,
    late_hours,
    late_totals,
)
from de_assets.definitions import defs
from de_assets.partitions import hourly
from de_resources.delta.log.changed_partitions import changed_partitions
from de_resources.lake import Lake
from de_resources.postgres import PostgresDatabase
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("dynamic_late_data_integrator")

GRAPH = defs.resolve_asset_graph()
CONSUMERS = [Consumer(key, source, GRAPH) for key, source in {**OF_HOURS, **OF_DAYS, **OF_TOTALS}.items()]


def test_the_consumers_are_what_their_assets_say() -> None:
    in_order = {"gold/user_activity", "gold/sessions_pending"}
    assert {c.name for c in CONSUMERS if c.is_stateful} == in_order
    assert {c.name for c in CONSUMERS if not c.takes_ranges} == in_order
    for consumer in CONSUMERS:
        assert consumer.source in GRAPH.get(consumer.key).parent_keys, "what is watched is what is read"
        first = consumer.partitions.get_first_partition_key()
        assert first is not None
        assert len(consumer.source_keys(first)) == (1 if consumer.key == ENRICHED else 24)


def test_a_landing_hour_tells_of_exactly_the_hours_whose_late_visits_it_brought(
    engine: SparkEngine, lake: Path
) -> None:
    """As the engine writes it: two late visits of two hours, one with a clock that is ahead by years, one before all hours."""
    shop = Shop(engine, lake)
    ((key, (source, column)),) = LATE_OF_HOURS.items()
    consumer = Consumer(key, source, GRAPH, column)
    layout = {"partition_expr": "landing_hour", "partitioned_by": ["landing_hour", "event_hour"]}

    @dg.asset(key=source.path, partitions_def=hourly, metadata=layout)
    def late(context: dg.AssetExecutionContext) -> DataFrame:
        landing = context.partition_time_window.start.strftime("%Y-%m-%d %H:%M:%S")
        moments = ("2024-10-10 03:00:00", "2024-10-10 05:00:00", "9999-12-31 23:00:00", "1970-01-01 00:00:00")
        rows = [
            f"SELECT TIMESTAMP '{landing}' AS landing_hour, TIMESTAMP '{each}' AS event_hour, 1 AS n"
            for each in moments
        ]
        return shop.spark.sql(" UNION ALL ".join(rows))

    shop.run(late, key="2024-10-11-05:00")
    log = shop.log("visits_late")
    found = consumer.by_partition(changed_partitions(log), log.partition_columns())
    assert set(found) == {"2024-10-10-03:00", "2024-10-10-05:00"}
    assert consumer.name == "silver/visits_enriched of silver/visits_late"
    with pytest.raises(NotStoredBy, match=r"not stored by `event_hour`.*materialised again"):
        consumer.by_partition(changed_partitions(log), ["landing_hour"])


def test_an_asset_without_time_partitions_is_refused() -> None:
    with pytest.raises(NotByTime, match="nothing of it can be late"):
        _ = Consumer(dg.AssetKey(["silver", "users"]), ENRICHED, GRAPH).partitions


@pytest.mark.parametrize("sensor", [late_hours, late_days, late_totals], ids=lambda s: s.name)
def test_in_an_empty_lake_there_is_nothing_to_do(sensor: dg.SensorDefinition, lake: Path) -> None:
    resources = {"lake": Lake(root_uri=str(lake), spark=SparkEngine()), "database": PostgresDatabase()}
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance=instance, definitions=defs, resources=resources) as context,
    ):
        found = sensor(context)
    assert isinstance(found, dg.SensorResult)
    assert not found.run_requests
    assert "does not exist yet" in str(found.skip_reason)


def test_an_hour_as_the_engine_writes_it_is_found_again(engine: SparkEngine, lake: Path) -> None:
    shop = Shop(engine, lake)
    hours = dg.HourlyPartitionsDefinition("2024-10-10-00:00", end_date="2024-10-12-00:00")
    key = ["silver", "visits_enriched"]

    @dg.asset(key=key, partitions_def=hours, metadata={"partition_expr": "event_hour"})
    def visits(context: dg.AssetExecutionContext) -> DataFrame:
        moment = context.partition_time_window.start.strftime("%Y-%m-%d %H:%M:%S")
        return shop.spark.range(1).selectExpr("id", f"TIMESTAMP '{moment}' AS event_hour")

    shop.run(visits, key="2024-10-11-05:00")
    log = shop.log("visits_enriched")
    for consumer in CONSUMERS:
        ((found, (end, change)),) = consumer.by_partition(changed_partitions(log), log.partition_columns()).items()
        day = consumer.key != ENRICHED
        assert found == ("2024-10-11" if day else "2024-10-11-05:00")
        assert end == (datetime(2024, 10, 12, tzinfo=UTC) if day else datetime(2024, 10, 11, 6, tzinfo=UTC))
        assert change.version == log.version
        assert change.run, "the stamp of the platform's own writes names the run"
