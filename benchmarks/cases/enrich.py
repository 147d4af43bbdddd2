"""A day of 10 million visits: each with the country that its visitor had then, and with the name of its device.

What `silver/visits_enriched` does with the visits of its hours, called on frames, beside its two left joins written
out: with the version of the user that was valid at the visit, of 450,000 visitors with two versions each, and with 100
devices. Of every tenth visitor nothing is known, and some devices have no name: those visits stay. Late visits are not
in it. Staged Parquet in, every value computed, nothing written. Equal: all rows, in all columns. DuckDB, on the same files,
for orientation.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import visits
from benchmarks.by_hand import Pair
from benchmarks.case import require_equal
from benchmarks.figure import Figure
from benchmarks.in_duckdb import InDuckDB
from benchmarks.workbench import Workbench
from de_assets.silver.visits_enriched import enriched

IN_DUCKDB = """
SELECT visit_id, event_time, v.user_id, page, referral, ad_id, browser, lower(device_type) AS device_type,
       full_name AS device_name, country, u.user_id IS NOT NULL AS is_registered, is_bot, event_hour
FROM v
LEFT JOIN u ON v.user_id = u.user_id AND event_time >= valid_from AND (valid_to IS NULL OR event_time < valid_to)
LEFT JOIN d ON lower(device_type) = d.type AND device_version = d.version
"""


def run(bench: Workbench) -> list[Figure]:
    """The price of joins that have a name."""
    rows = visits.rows_of(bench)
    found = visits.staged(bench, "enrich", visits.visits(bench.spark, rows))
    users = visits.staged(bench, "users", visits.users(bench.spark, rows))
    devices = visits.staged(bench, "devices", visits.devices(bench.spark))
    ours = enriched(found, users, devices)
    in_duckdb = InDuckDB(
        IN_DUCKDB,
        {view: visits.files_of(bench, name) for view, name in (("v", "enrich"), ("u", "users"), ("d", "devices"))},
    )
    what = f"{rows:,} visits with user and device"
    pair = Pair("enrich", what, ours, by_hand(found, users, devices), in_duckdb)
    figures = pair.figures(bench, at_most=9)
    require_equal("enrich (visits)", rows, ours.count())
    return figures


def by_hand(found: DataFrame, users: DataFrame, devices: DataFrame) -> DataFrame:
    """As everybody writes it."""
    v, u, d = found.alias("v"), users.alias("u"), devices.alias("d")
    was_valid = "v.event_time >= u.valid_from AND (u.valid_to IS NULL OR v.event_time < u.valid_to)"
    same_device = "lower(v.device_type) = d.type AND v.device_version = d.version"
    joined = v.join(u, F.expr(f"v.user_id = u.user_id AND {was_valid}"), "left").join(d, F.expr(same_device), "left")
    return joined.select(
        *(f"v.{name}" for name in ("visit_id", "event_time", "user_id", "page", "referral", "ad_id", "browser")),
        F.lower("v.device_type").alias("device_type"),
        F.col("d.full_name").alias("device_name"),
        "u.country",
        F.col("u.user_id").isNotNull().alias("is_registered"),
        "v.is_bot",
        "v.event_hour",
    )
