"""Sessions by the broker's clock, continued from increment to increment in the rows that were already written.

Pattern: Keyed Idempotency. A session's id is the key of its user and of the time at which the broker took its first event.
Neither changes when an event comes late, when a run is repeated, or when the topic is read again from its start. Nor
does any other column: every row is the total of all events up to its `ended_at`, so that an event that is already in a row is
recognised by its time and not counted again. Sessions in event time, which late events do change, are `sessionizer`'s.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from de_resources.stable_key import stable_key_column

GAP = timedelta(minutes=30)
EVENTS = (
    "user_id STRING, append_time TIMESTAMP, topic_partition INT, topic_offset BIGINT, event_time TIMESTAMP, page STRING"
)
KNOWN = (
    "user_id STRING, started_at TIMESTAMP, ended_at TIMESTAMP, visits BIGINT, first_event_time TIMESTAMP, "
    "last_event_time TIMESTAMP, first_page STRING, last_page STRING"
)


def continued_sessions(events: DataFrame, known: DataFrame, until: datetime, gap: timedelta = GAP) -> DataFrame:
    """The sessions that `events` begin or continue, and those of `known`, each with its totals.

    `events` (columns `EVENTS`) are all of an increment in append time that ends before `until`. `known` (columns `KNOWN`)
    are rows that were written before: of each user at most one, the session that was still open where the increment
    begins; it may be further than that. `is_closed`: no event to come can belong to the session.

    A pause as long as the gap, or longer, starts a new session. Any cuts of a topic into increments give the same rows.
    """
    pieces = events.select(
        "user_id",
        F.col("append_time").alias("started_at"),
        F.col("append_time").alias("ended_at"),
        F.lit(1).cast("long").alias("visits"),
        F.col("event_time").alias("first_event_time"),
        F.col("event_time").alias("last_event_time"),
        F.col("page").alias("first_page"),
        F.col("page").alias("last_page"),
        # Events of one millisecond have an order, too: the same on every run.
        F.struct("topic_partition", "topic_offset").alias("__de_place"),
        F.lit(False).alias("__de_known"),
    )
    before = known.withColumns({
        "__de_place": F.struct(F.lit(-1).alias("topic_partition"), F.lit(-1).cast("long").alias("topic_offset")),
        "__de_known": F.lit(True),
    })  # fmt: skip
    all_pieces = pieces.unionByName(before.select(*pieces.columns))
    counted = F.max(F.when(F.col("__de_known"), F.col("ended_at"))).over(Window.partitionBy("user_id"))
    is_new = F.col("__de_known") | F.col("__de_counted").isNull() | (F.col("started_at") > F.col("__de_counted"))
    return _joined(all_pieces.withColumn("__de_counted", counted).where(is_new), until, gap)


def _joined(pieces: DataFrame, until: datetime, gap: timedelta) -> DataFrame:
    """Pieces of sessions that do not overlap, joined wherever the pause between two is shorter than the gap."""
    ordered = Window.partitionBy("user_id").orderBy("started_at", "__de_place")
    previous = F.lag("ended_at").over(ordered)
    starts = F.when(previous.isNull() | (F.col("started_at") >= previous + F.lit(gap)), 1).otherwise(0)
    numbered = pieces.withColumn("__de_start", starts).withColumn("__de_session", F.sum("__de_start").over(ordered))
    place = F.struct("started_at", "__de_place")
    grouped = numbered.groupBy("user_id", "__de_session").agg(
        F.min("started_at").alias("started_at"),
        F.max("ended_at").alias("ended_at"),
        F.sum("visits").alias("visits"),
        F.min("first_event_time").alias("first_event_time"),
        F.max("last_event_time").alias("last_event_time"),
        F.min_by("first_page", place).alias("first_page"),
        F.max_by("last_page", place).alias("last_page"),
    )
    identity = stable_key_column(F.col("user_id"), F.unix_millis("started_at"))
    closed = F.col("ended_at") + F.lit(gap) <= F.lit(until)
    return grouped.drop("__de_session").withColumn("session_id", identity).withColumn("is_closed", closed)
