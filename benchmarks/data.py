"""The rows that are written: page views with a contract of 20 rules, all of which they keep.

Pure functions of the row's number, staged as Parquet first, so that every contender reads the same files.
"""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.case import require_equal
from benchmarks.workbench import Workbench
from de_resources.delta.log import TableLog
from de_resources.delta.slices import Slice, make_slice

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2025-01-01")
_COUNTRIES = ["de", "fr", "it", "es", "pl", "se", "jp", "br"]


class PageViews(pa.DataFrameModel):
    """One row per page view. 20 rules: present, ranges, members, lengths, patterns, and three about whole rows."""

    visit_id: T.StringType = pa.Field(
        nullable=False,
        str_length={"min_value": 16, "max_value": 16},
        str_matches="[0-9a-f]+$",
        description="Identity",
    )
    user_id: T.LongType = pa.Field(nullable=False, ge=0, description="Who")
    event_time: T.TimestampType = pa.Field(nullable=False, description="When")
    day: T.DateType = pa.Field(nullable=False, description="Day of the view")
    page: T.StringType = pa.Field(
        nullable=False, str_startswith="/", str_length={"min_value": 2, "max_value": 100}, description="What"
    )
    country: T.StringType = pa.Field(nullable=False, isin=_COUNTRIES, description="Where")
    duration_ms: T.LongType = pa.Field(
        nullable=False, in_range={"min_value": 0, "max_value": 600_000}, description="How long"
    )
    status: T.IntegerType = pa.Field(nullable=False, isin=[200, 304, 404], description="Answer of the server")
    referral: T.StringType = pa.Field(nullable=True, str_matches="https?://", description="From where; null: directly")

    class Config:
        """Every day is a partition."""

        name = "bench.page_views"
        metadata = {  # noqa: RUF012 - pandera reads it, nobody changes it
            "owner": "team:web",
            "key": ["visit_id"],
            "partitioned_by": ["day"],
            "rules": {
                "day_of_event": "to_date(event_time) = day",
                "errors_are_short": "status <> 404 OR duration_ms < 1000",
                "not_from_itself": "referral IS NULL OR NOT contains(referral, page)",
            },
        }


CONTRACT = f"{__name__}:{PageViews.__name__}"


def day_keys(count: int) -> list[str]:
    """The first days of `DAYS`."""
    return list(DAYS.get_partition_keys()[:count])


def first_day() -> str:
    """The first day as a person would write the predicate."""
    return f"day = DATE '{day_keys(1)[0]}'"


def slice_of(keys: Sequence[str]) -> Slice:
    """The days as what a run may replace."""
    return make_slice(keys, DAYS, "day")


def stage(bench: Workbench, name: str, *, days: int, rows_per_day: int) -> DataFrame:
    """Rows in order of time, as the frame over staged Parquet files; the columns are the contract's."""
    path = str(bench.folder("staged") / name)
    _page_views(bench, days, rows_per_day).write.mode("error").parquet(path)
    return bench.spark.read.parquet(path)


def _page_views(bench: Workbench, days: int, rows_per_day: int) -> DataFrame:
    numbers = bench.spark.range(days * rows_per_day)  # first: columns can be made once there is a session
    number, chance = F.col("id"), F.abs(F.xxhash64("id"))
    second = F.floor(F.pmod(number, F.lit(rows_per_day)) * 86_400 / rows_per_day)
    start = F.unix_timestamp(F.lit(day_keys(1)[0]), "yyyy-MM-dd")
    event_time = F.timestamp_seconds(start + F.floor(number / rows_per_day) * 86_400 + second)
    status = F.when(chance % 50 == 0, 404).when(chance % 7 == 0, 304).otherwise(200)
    origin = F.concat(F.lit("https://example.org/"), (chance % 100).cast("string"))
    return numbers.select(
        F.lower(F.lpad(F.hex("id"), 16, "0")).alias("visit_id"),
        (chance % 50_000).alias("user_id"),
        event_time.alias("event_time"),
        F.to_date(event_time).alias("day"),
        F.concat(F.lit("/page/"), (chance % 1_000).cast("string")).alias("page"),
        F.element_at(F.array(*map(F.lit, _COUNTRIES)), (chance % len(_COUNTRIES) + 1).cast("int")).alias("country"),
        F.when(status == 404, chance % 1_000).otherwise(chance % 600_000).alias("duration_ms"),
        status.cast("int").alias("status"),
        F.when(chance % 3 > 0, origin).alias("referral"),
    )


def fingerprint(bench: Workbench, uri: str, where: str = "TRUE") -> tuple[int, int]:
    """Rows of a table, and a sum over the hashes of all their values."""
    frame = bench.spark.read.format("delta").load(uri).where(where)
    hashes = F.xxhash64(*sorted(frame.columns)).cast("decimal(38,0)")
    (row,) = frame.agg(F.count(F.lit(1)), F.sum(hashes)).collect()
    return int(row[0]), int(row[1])


def require_same_rows(bench: Workbench, what: str, rows: int, *uris: str, where: str = "TRUE") -> None:
    """Raise `ResultsDiffer` unless the tables hold the same rows, and as many as were staged."""
    found = [fingerprint(bench, uri, where) for uri in uris]
    require_equal(f"{what} (rows)", rows, *(count for count, _ in found))
    require_equal(f"{what} (values)", *found)


def newest_commit(uri: str) -> tuple[int, int]:
    """A table's version, and how many files its newest commit added."""
    log = TableLog.open(uri)
    assert log is not None
    (commit,) = log.commits(1)
    return commit.version, commit.metric("numFiles", "numAddedFiles", "numTargetFilesAdded")
