"""The conditions that datasets declare about their rows, beside the code that makes the rows: each finds what was counted."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_assets.gold.visits_cube_daily import DIMENSIONS, visits_cube_daily
from de_assets.gold.visits_cube_weekly import visits_cube_weekly
from de_assets.serving.daily_traffic import BY_COUNTRY, TOTAL, by_relation, of_both, served_traffic
from de_assets.transforms.data_value.distributed_aggregator import cube
from de_assets.transforms.data_value.mergeable_measures import sketch_of
from de_assets.transforms.data_value.weekly_cube import weekly_cube
from de_resources.tracing.condition import ROW_LINEAGE

pytestmark = pytest.mark.pattern("fine_grained_tracker")

DAYS = [datetime(2024, 10, 10, 23, 59), datetime(2024, 10, 11, 0, 0)]
VALUES = [("DE", "phone", "x"), ("DE", None, "x"), (None, "phone", None), ("FR", "tablet", "y"), ("FR", "phone", "x")]


@pytest.fixture(scope="module")
def visits(spark: SparkSession) -> DataFrame:
    rows = [
        (n, day, *each) for n, (day, each) in enumerate((day, each) for day in DAYS for each in [*VALUES, *VALUES[:2]])
    ]
    return spark.createDataFrame(
        rows, "id INT, event_time TIMESTAMP, country STRING, device_type STRING, referral STRING"
    )


@pytest.fixture(scope="module")
def counted(visits: DataFrame) -> DataFrame:
    dated = visits.withColumn("event_date", F.to_date("event_time"))
    same = {name: F.count(F.lit(1)) for name in ("visits", "users", "bot_visits")}
    return cube(dated, "event_date", DIMENSIONS, same).localCheckpoint()


def condition(asset: object, key: str, source: str) -> str:
    (spec,) = [each for each in asset.specs if each.key.to_user_string() == key]  # type: ignore[attr-defined]
    return str(spec.metadata[ROW_LINEAGE][source])


def test_a_row_of_the_cube_has_the_visits_that_it_counts(visits: DataFrame, counted: DataFrame) -> None:
    """Every grouping, with values that are not known beside dimensions that are summed up."""
    on = condition(visits_cube_daily, "gold/visits_cube_daily", "silver/visits_enriched")
    key = ["event_date", "grouping", *DIMENSIONS]
    found = counted.alias("o").join(visits.alias("s"), F.expr(on), "left")
    traced = (
        found.groupBy(*(F.col(f"o.{name}") for name in key), "o.visits").agg(F.count("s.id").alias("traced")).collect()
    )
    assert len(traced) == counted.count()
    assert {row["grouping"] for row in traced} == set(range(8))
    assert [row for row in traced if row["traced"] != row["visits"]] == []


@pytest.mark.pattern("distributed_aggregator")
def test_a_row_of_the_week_has_the_days_that_it_adds_up(visits: DataFrame, counted: DataFrame) -> None:
    dated = visits.withColumn("event_date", F.to_date("event_time"))
    sketches = cube(dated, "event_date", DIMENSIONS, {"visitors": sketch_of(F.col("id").cast("string"))})
    weeks = weekly_cube(counted, sketches, DIMENSIONS).localCheckpoint()
    for source, parts in (("gold/visits_cube_daily", counted), ("gold/visitor_sketches_daily", sketches)):
        on = condition(visits_cube_weekly, "gold/visits_cube_weekly", source)
        found = (
            weeks.alias("o")
            .join(parts.alias("s"), F.expr(on), "left")
            .groupBy("o.week_start", "o.grouping", *(f"o.{d}" for d in DIMENSIONS))
        )
        traced = found.agg(F.max("o.days").alias("days"), F.count("s.event_date").alias("traced")).collect()
        assert len(traced) == weeks.count()
        assert [row for row in traced if row["traced"] != row["days"]] == []


@pytest.mark.parametrize(
    ("relation", "key"), [(TOTAL, "serving/daily_traffic"), (BY_COUNTRY, "serving/daily_traffic_by_country")]
)
def test_a_served_row_has_its_one_row_of_the_cube(
    spark: SparkSession, counted: DataFrame, relation: object, key: str
) -> None:
    rows = by_relation(of_both(counted))[relation]  # type: ignore[index]
    assert rows
    served = spark.createDataFrame([{"country": None, **row} for row in rows], of_both(counted).schema)
    found = served.alias("o").join(counted.alias("s"), F.expr(condition(served_traffic, key, "gold/visits_cube_daily")))
    pairs = found.select(F.col("o.visits").alias("own"), F.col("s.visits").alias("theirs")).collect()
    assert len(pairs) == len(rows)
    assert [row for row in pairs if row["own"] != row["theirs"]] == []
