"""Sessions of the events that the frame holds: a pause as long as the gap, or longer, starts a new one.

Source: the gap-and-island method over window functions; session windows as in T. Akidau et al., *The Dataflow Model*.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

DEFAULT_GAP = "INTERVAL 30 MINUTES"


def sessions(events: DataFrame, key: Sequence[str], at: str, tie: str, page: str, gap: str = DEFAULT_GAP) -> DataFrame:
    """One row per session of `key`: the key, `session_id`, bounds, `duration_seconds`, `visits`, first and last page.

    `gap` is a SQL interval. `tie` orders events of one instant, so that first and last are the same on every run. The id
    is a digest of key and start: stable over reruns.
    """
    ordered = Window.partitionBy(*key).orderBy(at, tie)
    previous = F.lag(at).over(ordered)
    starts = F.when(previous.isNull() | (F.col(at) >= previous + F.expr(gap)), 1).otherwise(0)
    numbered = events.withColumn("__de_start", starts).withColumn("__de_session", F.sum("__de_start").over(ordered))
    position = F.struct(at, tie)
    grouped = numbered.groupBy(*key, "__de_session").agg(
        F.min(at).alias("started_at"),
        F.max(at).alias("ended_at"),
        F.count(F.lit(1)).alias("visits"),
        F.min_by(page, position).alias("first_page"),
        F.max_by(page, position).alias("last_page"),
    )
    identity = F.sha2(F.concat_ws("|", *key, F.unix_micros("started_at").cast("string")), 256)
    return grouped.select(
        identity.alias("session_id"),
        *key,
        "started_at",
        "ended_at",
        (F.unix_timestamp("ended_at") - F.unix_timestamp("started_at")).alias("duration_seconds"),
        "visits",
        "first_page",
        "last_page",
    )
