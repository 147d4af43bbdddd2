"""Live visits behind the broker: valid, set apart, and what the next run has to know."""

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_assets.contracts.visits import OWNER, DeadLetterColumns, VisitColumns
from de_resources.contract import ContractModel

_POSITION = ["topic_partition", "topic_offset"]


class LiveColumns(VisitColumns):
    """A visit and its place in the topic."""

    topic_partition: T.IntegerType = pa.Field(nullable=False, ge=0, description="Partition of the topic")
    topic_offset: T.LongType = pa.Field(nullable=False, ge=0, description="Offset in that partition")
    append_time: T.TimestampType = pa.Field(nullable=False, description="When the broker appended the record")


class VisitsLive(LiveColumns):
    """Live visits that were understood, on time, and first of their kind within the window.

    Grain: one page view; copies that came beyond the window are rows of their own. Not partitioned: a stream appends.
    """

    event_hour: T.TimestampType = pa.Field(nullable=False, description="Hour of the event (UTC)")

    class Config:
        """A run replaces its own stretch of the topic."""

        name = "silver.visits_live"
        metadata = {
            "owner": OWNER,
            "key": _POSITION,
            "rules": {"hour_is_that_of_event": "event_hour = date_trunc('HOUR', event_time)"},
        }


class VisitsLiveHours(LiveColumns):
    """Live visits of the hours that are over and were found right; an hour is there as a whole or not at all.

    Grain: one record of the topic that was understood; copies of a visit are rows of their own.
    """

    event_hour: T.TimestampType = pa.Field(nullable=False, description="Hour of the event (UTC)")

    class Config:
        """An hour is shown once it was judged."""

        name = "silver.visits_live_hours"
        metadata = {
            "owner": OWNER,
            "partitioned_by": ["event_hour"],
            "rules": {"hour_is_that_of_event": "event_hour = date_trunc('HOUR', event_time)"},
        }


class VisitsLiveLate(LiveColumns):
    """Live visits set apart: they came behind the watermark, or are dated in the future.

    Grain: one page view, within the window of deduplication.
    """

    verdict: T.StringType = pa.Field(
        nullable=False, isin=["late", "future"], description="`late`, or `future`: ahead of the broker's clock"
    )
    watermark: T.TimestampType = pa.Field(nullable=True, description="What judged it; null: nothing was known yet")
    lateness_seconds: T.LongType = pa.Field(
        nullable=True, description="From the event to the watermark; negative: dated in the future"
    )

    class Config:
        """A run replaces its own stretch of the topic."""

        name = "silver.visits_live_late"
        metadata = {
            "owner": OWNER,
            "key": _POSITION,
            "rules": {"late_is_behind": "verdict <> 'late' OR event_time < watermark"},
        }


class VisitsLiveDeadLetter(DeadLetterColumns):
    """Live records that could not be understood: as they came, why, and where they are in the topic.

    Grain: one broker record. Not partitioned: a run replaces its own stretch of the topic.
    """

    job_version: T.StringType = pa.Field(nullable=False, description="Version of the code that set it apart")
    topic_partition: T.IntegerType = pa.Field(nullable=False, ge=0, description="Partition of the topic")
    topic_offset: T.LongType = pa.Field(nullable=False, ge=0, description="Offset in that partition")
    append_time: T.TimestampType = pa.Field(nullable=False, description="When the broker appended the record")

    class Config:
        """The payload may be anything; its place identifies it."""

        name = "silver.visits_live_dead_letter"
        metadata = {"owner": OWNER, "key": _POSITION}


class VisitsLiveState(ContractModel):
    """How far the live visits were judged: watermark, positions and totals, and the visits that are remembered.

    Grain: one partition of the topic (`source`), or one remembered visit (`key`).
    """

    entry: T.StringType = pa.Field(nullable=False, isin=["source", "key"], description="`source` or `key`")
    source: T.IntegerType = pa.Field(nullable=True, description="Partition of the topic")
    position: T.LongType = pa.Field(nullable=True, description="Last offset that was judged; -1: none yet")
    records: T.LongType = pa.Field(nullable=True, ge=0, description="Records that were judged so far")
    valid: T.LongType = pa.Field(nullable=True, ge=0, description="of these, in silver.visits_live")
    late: T.LongType = pa.Field(nullable=True, ge=0, description="of these, behind the watermark")
    future: T.LongType = pa.Field(nullable=True, ge=0, description="of these, dated in the future")
    duplicates: T.LongType = pa.Field(nullable=True, ge=0, description="of these, removed as copies")
    malformed: T.LongType = pa.Field(nullable=True, ge=0, description="of these, dead letters")
    tracked: T.TimestampType = pa.Field(nullable=True, description="Greatest event time before the newest batch")
    seen: T.TimestampType = pa.Field(nullable=True, description="Last sign of life before the newest batch")
    newest_tracked: T.TimestampType = pa.Field(nullable=True, description="Greatest event time in the newest batch")
    newest_seen: T.TimestampType = pa.Field(nullable=True, description="The newest batch, where the source is in it")
    batch: T.TimestampType = pa.Field(nullable=True, description="The newest batch, by the broker's clock")
    watermark: T.TimestampType = pa.Field(nullable=True, description="The watermark that judged the newest batch")
    visit_id: T.StringType = pa.Field(nullable=True, description="A visit that was seen")
    remembered_until: T.TimestampType = pa.Field(nullable=True, description="Watermark at which the visit is forgotten")

    class Config:
        """Written last, as a whole."""

        name = "silver.visits_live_state"
        metadata = {
            "owner": OWNER,
            "rules": {
                "all_are_accounted_for": "entry = 'key' OR records = valid + late + future + duplicates + malformed",
                "either_source_or_key": "(entry = 'key') = (visit_id IS NOT NULL)",
            },
        }


class PagesPerVisit(ContractModel):
    """How often each visit of the topic was announced, and with which pages.

    Grain: one visit, by the key of its records. Not partitioned: a run replaces all of it by what the topic holds.
    """

    visit_id: T.StringType = pa.Field(nullable=False, description="Key of the records: the identity of the page view")
    announcements: T.LongType = pa.Field(nullable=False, ge=1, description="Records of it, understood or not")
    pages: T.ArrayType(T.StringType()) = pa.Field(  # type: ignore[valid-type]
        nullable=False, description="Pages that it was announced with, sorted; more than one: a contradiction"
    )
    topic_partition: T.IntegerType = pa.Field(nullable=False, ge=0, description="Partition in which its records lie")
    first_announced: T.TimestampType = pa.Field(nullable=False, description="When the broker took the first of them")
    last_announced: T.TimestampType = pa.Field(nullable=False, description="When the broker took the last of them")

    class Config:
        """A visit lies in one partition of the topic."""

        name = "gold.pages_per_visit"
        metadata = {"owner": OWNER, "key": ["visit_id"]}
