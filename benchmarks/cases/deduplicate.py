"""A day of 10 million landed visits, every tenth of them a copy: the first of each visit is kept, hour by hour.

`numbered_visits`, by which `silver/visits` numbers the copies of an hour, and what it keeps; beside the idiom: `row_number`
over the hour and the visit, and the rows of number one. Staged Parquet in, every value computed, nothing written. Equal:
the rows that are kept, in all columns, and as many as there are visits. DuckDB, on the same files, for orientation: the bar is
what the platform costs beside plain Spark.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from benchmarks import visits
from benchmarks.by_hand import Pair
from benchmarks.case import require_equal
from benchmarks.figure import Figure
from benchmarks.in_duckdb import InDuckDB
from benchmarks.workbench import Workbench
from de_assets.partitions import LOOK_BACK_HOURS
from de_assets.silver.visits import CONDITIONS, COPY, numbered_visits

IN_DUCKDB = """
SELECT * FROM landed
QUALIFY row_number() OVER (PARTITION BY landing_hour, visit_id ORDER BY event_time, raw) = 1
"""


def run(bench: Workbench) -> list[Figure]:
    """The price of copies that are numbered."""
    rows = visits.rows_of(bench)
    landed = visits.staged(bench, "landed", visits.landed(bench.spark, rows))
    files = {"landed": visits.files_of(bench, "landed")}
    what = f"copies of {rows:,} landed visits removed"
    pair = Pair("deduplicate", what, ours(landed), by_hand(landed), InDuckDB(IN_DUCKDB, files))
    figures = pair.figures(bench, at_most=7)
    require_equal("deduplicate (visits)", rows - rows // visits.COPIED, pair.ours.count())
    return figures


def ours(landed: DataFrame) -> DataFrame:
    """As `silver/visits` does it."""
    return numbered_visits(landed, LOOK_BACK_HOURS).where(CONDITIONS["first_copy"]).drop(COPY)


def by_hand(landed: DataFrame) -> DataFrame:
    """As everybody writes it."""
    copies = Window.partitionBy("landing_hour", "visit_id").orderBy("event_time", "raw")
    return landed.withColumn("n", F.row_number().over(copies)).where("n = 1").drop("n")
