"""Advertisements as they were shown on pages, and visits with what was shown after them."""

from datetime import timedelta

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_assets.contracts.visits import OWNER
from de_resources.contract import ContractModel
from de_resources.moments import CONCEIVABLE

WITHIN_MINUTES = 2
"""How long after a visit an advertisement on its page belongs to it."""
_TEXT = {"min_value": 1, "max_value": 512}
_PAGE = {"min_value": 1, "max_value": 2048}


class AdsStream(ContractModel):
    """Advertisements read from the broker, understood or not: a record that was not has `error`, and its columns are null.

    Grain: one broker record (partition, offset). Not partitioned: a stream appends.
    """

    showing_id: T.StringType = pa.Field(
        nullable=True, str_length=_TEXT, description="Identity of the showing, given by the ad server"
    )
    shown_at: T.TimestampType = pa.Field(
        nullable=True, in_range=CONCEIVABLE, description="When it came up, by the ad server's clock"
    )
    page: T.StringType = pa.Field(nullable=True, str_length=_PAGE, description="Path or name of the page")
    ad: T.StringType = pa.Field(nullable=True, str_length=_TEXT, description="The advertisement that was shown")
    payload: T.BinaryType = pa.Field(nullable=True, description="The record's value as it came; null: it had none")
    error: T.StringType = pa.Field(nullable=True, description="Why the record could not be understood; null: it was")
    topic_partition: T.IntegerType = pa.Field(nullable=False, ge=0, description="Partition of the topic")
    topic_offset: T.LongType = pa.Field(nullable=False, ge=0, description="Offset in that partition")
    append_time: T.TimestampType = pa.Field(nullable=False, description="When the broker appended the record")

    class Config:
        """The position in the topic identifies a record."""

        name = "bronze.ads_stream"
        metadata = {
            "owner": OWNER,
            "key": ["topic_partition", "topic_offset"],
            "rules": {"understood_or_explained": "(error IS NULL) = (showing_id IS NOT NULL)"},
            # Shown when a page is: as seldom as visits come, and a page, which is the key, may have none for half a day.
            "freshness": {"column": "append_time", "silence": timedelta(hours=12)},
        }


class VisitsWithAds(ContractModel):
    """Visits with the advertisements that came up on their page within two minutes, those without one included.

    Grain: one visit and one advertisement shown after it; a visit after which none was shown has one row. A visit is here
    when nothing can be shown for it any more. Not partitioned: a stream appends.
    """

    visit_id: T.StringType = pa.Field(nullable=False, description="Identity of the page view, given by its producer")
    event_time: T.TimestampType = pa.Field(
        nullable=False, description="When the page was viewed, by the producer's clock"
    )
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor: registered or guest")
    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page")
    is_bot: T.BooleanType = pa.Field(nullable=True, description="Whether the visitor is a known robot")
    showing_id: T.StringType = pa.Field(nullable=True, description="Identity of the showing; null: no ad was shown")
    shown_at: T.TimestampType = pa.Field(nullable=True, description="When the advertisement came up")
    ad: T.StringType = pa.Field(nullable=True, description="The advertisement that was shown")

    class Config:
        """A visit and a showing are matched once."""

        name = "silver.visits_with_ads"
        metadata = {
            "owner": OWNER,
            "key": ["visit_id", "showing_id"],
            "rules": {
                "shown_or_not": "(showing_id IS NULL) = (shown_at IS NULL) AND (showing_id IS NULL) = (ad IS NULL)",
                "shown_within_bound": "shown_at IS NULL OR "
                f"shown_at BETWEEN event_time AND event_time + INTERVAL {WITHIN_MINUTES} MINUTES",
            },
        }
