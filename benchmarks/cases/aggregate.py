"""A day of 10 million visits: counted, with their visitors, for every combination of country, kind of device and referral.

The asset `gold/visits_cube_daily` itself, called on a frame, beside `GROUP BY …, CUBE (…)` in SQL. Distinct visitors are
counted anew for each of the eight groupings: by SQL the engine moves each visit's visitor eight times, and ours once, to where
the visitor's other visits are. Staged Parquet in, every value computed, nothing written. Equal: all rows, in all columns.
DuckDB, on the same files, for orientation.
"""

from typing import cast

from pyspark.sql import DataFrame

from benchmarks import visits
from benchmarks.by_hand import Pair
from benchmarks.figure import Figure
from benchmarks.in_duckdb import InDuckDB
from benchmarks.workbench import Workbench
from de_assets.gold.visits_cube_daily import DIMENSIONS, visits_cube_daily

_DIMENSIONS = ", ".join(DIMENSIONS)
IN_DUCKDB = f"""
SELECT CAST(event_time AS DATE) AS event_date, {_DIMENSIONS}, CAST(grouping({_DIMENSIONS}) AS INT) AS grouping,
       count(*) AS visits, count(DISTINCT user_id) AS users, count(*) FILTER (is_bot) AS bot_visits
FROM visits GROUP BY event_date, CUBE ({_DIMENSIONS})
"""


def run(bench: Workbench) -> list[Figure]:
    """The price of a cube that has a name."""
    rows = visits.rows_of(bench)
    found = visits.staged(bench, "aggregate", visits.with_country(visits.visits(bench.spark, rows)))
    ours = cast("DataFrame", visits_cube_daily(found))
    in_duckdb = InDuckDB(IN_DUCKDB, {"visits": visits.files_of(bench, "aggregate")})
    pair = Pair("aggregate", f"cube of {rows:,} visits", ours, by_hand(found), in_duckdb)
    # The longest calls of these cases: five rounds, of which an interval could be made, would take too long for one case.
    return pair.figures(bench, rounds=3, at_most=3)


def by_hand(found: DataFrame) -> DataFrame:
    """As everybody writes it."""
    wanted = ", ".join(DIMENSIONS)
    return found.sparkSession.sql(
        f"""
        SELECT to_date(event_time) AS event_date, {wanted},
               CAST(grouping_id() AS INT) AS grouping,
               count(*) AS visits, count(DISTINCT user_id) AS users, count_if(is_bot) AS bot_visits
        FROM {{found}}
        GROUP BY to_date(event_time), CUBE ({wanted})
        """,
        found=found,
    )
