"""Traffic per day in the database, in total and by country, for who reads with SQL.

Grain: one day; one day and country. Pattern: Transactional Writer - both tables and the row of `serving.loads` change in
one transaction per day, so that no reader ever sees a total that is not the sum of its countries. One step writes both,
and cannot write one of them alone: two steps would be two transactions, each tried again by itself.
Pattern: Metadata Decorator - `serving.loads` is for engineers; business readers see the two tables, without anything technical.
"""

from collections.abc import Iterator
from datetime import date
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets import __version__
from de_assets.automation.conditions import late_cascade
from de_assets.contracts.serving import DailyTraffic, DailyTrafficByCountry
from de_assets.dataset import pattern_tags, served
from de_assets.partitions import daily
from de_resources.contract import Contract
from de_resources.delta.write.constraints import told as blocked_rules
from de_resources.held_back import own_keys
from de_resources.lineage.record import lineage_of_output
from de_resources.metadata_decorator import WriteContext
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import Load, Relation, Rows, write_slice
from de_resources.retries import RETRY_TRANSIENT

# Bits of the dimensions that the cube has summed up.
ALL, ALL_BUT_COUNTRY = 0b111, 0b011
LOAD = "serving.traffic"
TOTAL, BY_COUNTRY = (Relation.of(Contract.of(model)) for model in (DailyTraffic, DailyTrafficByCountry))


def _out(model: Any, cubes_rows: str) -> dg.AssetOut:
    return dg.AssetOut(
        **served(
            model,
            kind="postgres",
            patterns=["transactional_writer", "metadata_decorator"],
            partition="event_date",
            row_lineage={"gold/visits_cube_daily": f"s.event_date = o.event_date AND {cubes_rows}"},
        ),
        dagster_type=dg.Nothing,
        automation_condition=late_cascade(),
    )


@dg.multi_asset(
    retry_policy=RETRY_TRANSIENT,
    name="served_traffic",
    outs={
        "daily_traffic": _out(DailyTraffic, f"s.grouping = {ALL}"),
        "daily_traffic_by_country": _out(
            DailyTrafficByCountry, f"s.grouping = {ALL_BUT_COUNTRY} AND coalesce(s.country, 'unknown') = o.country"
        ),
    },
    ins={"cube": dg.AssetIn(["gold", "visits_cube_daily"])},
    partitions_def=daily,
    backfill_policy=dg.BackfillPolicy.single_run(),  # an AssetOut's own is ignored
    op_tags=pattern_tags("transactional_writer"),
)
def served_traffic(
    context: dg.AssetExecutionContext, cube: DataFrame, database: PostgresDatabase
) -> Iterator[dg.Output[None]]:
    """Replace the run's days, one transaction per day."""
    served_rows = of_both(cube)
    rows = by_relation(served_rows)
    by = WriteContext.of(context, LOAD, __version__)
    load = Load(by.dataset, by.run, by.attempt, by.job_version)
    for key in own_keys(context):
        day = date.fromisoformat(key)
        of_day: dict[Relation, Rows] = {
            r: [row for row in each if row["event_date"] == day] for r, each in rows.items()
        }
        loaded = write_slice(database, load, day, of_day)
        for name, count in loaded.rows.items():
            told = {"dagster/partition_row_count": count, **blocked_rules(loaded.blocked[name])}
            context.add_asset_metadata(told, dg.AssetKey(name.split(".")), key)
    for relation in rows:
        asset = dg.AssetKey(relation.name.split("."))
        lineage = lineage_of_output(context, served_rows.select(*(column for column, _ in relation.columns)), asset)
        metadata = {"load": LOAD, "attempt": by.attempt, **lineage, **database.description()}
        yield dg.Output(None, relation.name.partition(".")[2], metadata=metadata)


def of_both(cube: DataFrame) -> DataFrame:
    """The cube's rows that one of the two tables shows."""
    known = cube.withColumn("country", F.coalesce("country", F.lit("unknown")))
    return known.where(F.col("grouping").isin(ALL, ALL_BUT_COUNTRY))


def by_relation(served_rows: DataFrame) -> dict[Relation, Rows]:
    """The rows of each of the two tables: a few per day."""
    found = served_rows.collect()
    return {
        relation: [row.asDict() for row in found if row["grouping"] == grouping]
        for relation, grouping in ((TOTAL, ALL), (BY_COUNTRY, ALL_BUT_COUNTRY))
    }
