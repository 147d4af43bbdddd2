"""Sessions by the broker's clock, continued from increment to increment in the rows that were already written.

Pattern: Keyed Idempotency. A session's id is the key of its user and of the time at which the broker took its first event.
Neither changes when an event comes late, when a run is repeated, or when the topic is read again from its start. Nor
does any other column: every row is the total of all events up to its `ended_at`, so that an event that is already in a row is
recognised by its time and not counted again. What a session is says `transforms.data_value.sessions`; its clock is the
broker's here. Sessions in event time, which late events do change, are the `incremental_sessionizer`'s.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from de_assets.transforms.data_value.sessions import GAP, TIE, joined, over_at, pieces_of, session_id

_KNOWN = "__de_known"
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

    Any cuts of a topic into increments give the same rows.
    """
    pieces = pieces_of(
        events,
        "append_time",
        # Events of one millisecond have an order, too: the same on every run.
        F.struct("topic_partition", "topic_offset"),
        F.col("event_time").alias("first_event_time"),
        F.col("event_time").alias("last_event_time"),
        F.lit(False).alias(_KNOWN),
    )
    before = known.withColumns({
        TIE: F.struct(F.lit(-1).alias("topic_partition"), F.lit(-1).cast("long").alias("topic_offset")),
        _KNOWN: F.lit(True),
    })  # fmt: skip
    all_pieces = pieces.unionByName(before.select(*pieces.columns))
    counted = F.max(F.when(F.col(_KNOWN), F.col("ended_at"))).over(Window.partitionBy("user_id"))
    is_new = F.col(_KNOWN) | F.col("__de_counted").isNull() | (F.col("started_at") > F.col("__de_counted"))
    found = joined(all_pieces.withColumn("__de_counted", counted).where(is_new), gap, _event_times())
    closed = over_at(gap) <= F.lit(until)
    return found.withColumn("session_id", session_id(F.unix_millis("started_at"))).withColumn("is_closed", closed)


def _event_times() -> dict[str, Column]:
    return {"first_event_time": F.min("first_event_time"), "last_event_time": F.max("last_event_time")}
