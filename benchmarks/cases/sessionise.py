"""A day of 10 million visits, 500,000 visitors: their sessions, by pauses of half an hour, in one go.

`sessions`, the definition that every sessionizer here follows, beside the idiom: `lag` finds the pauses, a running sum numbers
the sessions, a grouping adds them up. Both tell first and last page by time and visit, and give each session an identity
by SHA-256, as a hexadecimal text. Staged Parquet in, every value computed, nothing written. Equal: all sessions, in all
columns. DuckDB, on the same files, for orientation.
"""

from datetime import timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from benchmarks import visits
from benchmarks.by_hand import Pair
from benchmarks.figure import Figure
from benchmarks.in_duckdb import InDuckDB
from benchmarks.workbench import Workbench
from de_assets.transforms.data_value.sessions import sessions

IN_DUCKDB = """
WITH pauses AS (
    SELECT *, epoch_us(event_time) - epoch_us(lag(event_time) OVER in_order) AS pause FROM visits
    WINDOW in_order AS (PARTITION BY user_id ORDER BY event_time, visit_id)
), numbered AS (
    SELECT *, sum(CASE WHEN pause < 1_800_000_000 THEN 0 ELSE 1 END) OVER in_order AS number FROM pauses
    WINDOW in_order AS (PARTITION BY user_id ORDER BY event_time, visit_id)
), grouped AS (
    SELECT user_id, min(event_time) AS started_at, max(event_time) AS ended_at, count(*) AS visits,
           arg_min(page, (event_time, visit_id)) AS first_page, arg_max(page, (event_time, visit_id)) AS last_page
    FROM numbered GROUP BY user_id, number
)
SELECT * EXCLUDE (start), sha256(concat(length(user_id), ':', user_id, ',', length(start), ':', start, ',')) AS session_id
FROM (SELECT *, CAST(epoch_us(started_at) AS VARCHAR) AS start FROM grouped)
"""


def run(bench: Workbench) -> list[Figure]:
    """The price of one definition of a session for all."""
    rows = visits.rows_of(bench)
    staged = visits.staged(bench, "sessionise", visits.visits(bench.spark, rows))
    in_duckdb = InDuckDB(IN_DUCKDB, {"visits": visits.files_of(bench, "sessionise")})
    pair = Pair("sessionise", f"sessions of {rows:,} visits", sessions(staged), by_hand(staged), in_duckdb)
    return pair.figures(bench, at_most=7)


def by_hand(found: DataFrame) -> DataFrame:
    """As everybody writes it. The identity is that of `stable_key`: each part with its length before it."""
    in_order = Window.partitionBy("user_id").orderBy("event_time", "visit_id")
    previous = F.lag("event_time").over(in_order)
    starts = previous.isNull() | (F.col("event_time") - previous >= F.lit(timedelta(minutes=30)))
    numbered = found.withColumn("starts", starts.cast("int")).withColumn("number", F.sum("starts").over(in_order))
    place = F.struct("event_time", "visit_id")
    grouped = numbered.groupBy("user_id", "number").agg(
        F.min("event_time").alias("started_at"),
        F.max("event_time").alias("ended_at"),
        F.count("*").alias("visits"),
        F.min_by("page", place).alias("first_page"),
        F.max_by("page", place).alias("last_page"),
    )
    start = F.unix_micros("started_at").cast("string")
    named = F.format_string("%d:%s,%d:%s,", F.length("user_id"), F.col("user_id"), F.length(start), start)
    return grouped.drop("number").withColumn("session_id", F.sha2(named, 256))
