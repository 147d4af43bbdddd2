"""Visits at the size at which the cases about data value measure: a day of them, with users and devices beside them.

Pure functions of a row's number, staged as Parquet first, so that every contender reads the same files.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.workbench import Workbench

START = datetime(2026, 1, 5, tzinfo=UTC)
DAY_SECONDS = 86_400
VISITS_PER_USER = 20
COPIED = 10
"""Of so many landed visits, one is a copy of another one of its hour."""
_DEVICES = ["phone", "tablet", "laptop", "tv"]
_VERSIONS = 25
_COUNTRIES = ["de", "fr", "it", "es", "pl", "se", "jp", "br"]


def rows_of(bench: Workbench) -> int:
    """How many visits a day has."""
    return bench.pick(small=40_000, full=10_000_000)


def files_of(bench: Workbench, name: str) -> Path:
    """Where `staged` puts the rows of that name."""
    return bench.folder("visits_of_a_day") / name


def staged(bench: Workbench, name: str, frame: DataFrame) -> DataFrame:
    """The frame over Parquet files that hold these rows."""
    path = str(files_of(bench, name))
    frame.write.mode("error").parquet(path)
    return bench.spark.read.parquet(path)


def landed(spark: SparkSession, rows: int) -> DataFrame:
    """A day as it lands: `visits` with the hour in which each landed, every tenth a copy of the one before, a second later."""
    numbers = spark.range(rows)  # before the functions: columns need a session
    is_copy = F.col("id") % COPIED == COPIED - 1
    came = _visits(numbers.select((F.col("id") - is_copy.cast("int")).alias("n"), is_copy.alias("is_copy")), rows)
    came = came.withColumn("landing_hour", F.col("event_hour"))
    a_second_later = F.timestamp_micros(F.unix_micros("event_time") + F.col("is_copy").cast("int") * 1_000_000)
    came = came.withColumn("event_time", a_second_later).drop("is_copy", "n")
    return came.withColumn("raw", F.concat_ws(" ", "visit_id", F.col("event_time").cast("string"), "page"))


def visits(spark: SparkSession, rows: int) -> DataFrame:
    """A day of visits, in no order of time: a visitor for each twenty, at pseudo-random times."""
    return _visits(spark.range(rows).withColumnRenamed("id", "n"), rows).drop("n")


def _visits(numbers: DataFrame, rows: int) -> DataFrame:
    n = F.col("n")
    chance = F.pmod(F.xxhash64(n), F.lit(2**62))
    user = F.pmod(F.xxhash64(n, F.lit(1)), F.lit(rows // VISITS_PER_USER))
    event_time = F.timestamp_micros(F.lit(_micros(START)) + chance % (DAY_SECONDS * 1_000_000))
    origin = F.concat(F.lit("https://example.org/"), (chance % 20).cast("string"))
    return numbers.select(
        "*",
        F.lower(F.lpad(F.hex(n), 16, "0")).alias("visit_id"),
        F.concat(F.lit("u"), user.cast("string")).alias("user_id"),
        event_time.alias("event_time"),
        F.concat(F.lit("/page/"), (chance % 1_000).cast("string")).alias("page"),
        F.when(chance % 3 > 0, origin).alias("referral"),
        F.when(chance % 11 == 0, F.concat(F.lit("ad"), (chance % 40).cast("string"))).alias("ad_id"),
        _one_of(["firefox", "chrome", "safari"], chance).alias("browser"),
        F.upper(_one_of(_DEVICES, F.pmod(F.xxhash64(n, F.lit(2)), F.lit(2**62)))).alias("device_type"),
        F.concat(F.lit("v"), (chance % (_VERSIONS + 5)).cast("string")).alias("device_version"),
        (chance % 97 == 0).alias("is_bot"),
        F.date_trunc("HOUR", event_time).alias("event_hour"),
    )


def with_country(found: DataFrame) -> DataFrame:
    """Visits with the country of their visitor, which nobody knows of every tenth; as `silver/visits_enriched` has them."""
    chance = F.pmod(F.xxhash64("user_id", F.lit(3)), F.lit(2**62))
    known = F.when(chance % 10 > 0, _one_of(_COUNTRIES, chance))
    return found.withColumns({"device_type": F.lower("device_type"), "country": known})


def users(spark: SparkSession, rows: int) -> DataFrame:
    """Versions of the visitors of `visits`: of nine in ten, one until noon and one from then on."""
    numbers = spark.range(2 * (rows // VISITS_PER_USER))
    number, second = F.call_function("div", F.col("id"), F.lit(2)), F.col("id") % 2 == 1
    noon = F.timestamp_micros(F.lit(_micros(START) + DAY_SECONDS * 500_000))
    return numbers.where(number % 10 > 0).select(
        F.concat(F.lit("u"), number.cast("string")).alias("user_id"),
        _one_of(_COUNTRIES, F.pmod(F.xxhash64("id"), F.lit(2**62))).alias("country"),
        F.when(second, noon).otherwise(F.timestamp_micros(F.lit(0))).alias("valid_from"),
        F.when(~second, noon).alias("valid_to"),
    )


def devices(spark: SparkSession) -> DataFrame:
    """The devices that have a name: not all that visits tell of."""
    numbers = spark.range(len(_DEVICES) * _VERSIONS)
    kind, version = F.col("id") % len(_DEVICES), F.call_function("div", F.col("id"), F.lit(len(_DEVICES)))
    return numbers.select(
        _one_of(_DEVICES, kind).alias("type"),
        F.concat(F.lit("v"), version.cast("string")).alias("version"),
        F.concat_ws(" ", F.lit("Device"), F.col("id").cast("string")).alias("full_name"),
    )


def _one_of(values: list[str], number: Column) -> Column:
    return F.element_at(F.array(*map(F.lit, values)), (number % len(values) + 1).cast("int"))


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
