"""Sessions that a stream keeps open and closes by event time."""

from datetime import timedelta

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_assets.contracts.visits import OWNER
from de_resources.contract import ContractModel

LOGOUT = "logout"
"""The page that ends a session."""
LONGEST = timedelta(hours=12)
"""How long a session lasts at most: who clicks for longer is a program, or two people."""


class SessionsStream(ContractModel):
    """Sessions of the live visits by the time of the visit: ended by a pause of 30 minutes, a logout, or after 12 hours.

    Grain: one session that is over. One that may go on is in the stream's state, and is not here. Not partitioned: a stream
    appends.
    """

    session_id: T.StringType = pa.Field(
        nullable=False, description="Derived from user and first visit: stable over reruns"
    )
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor: registered or guest")
    started_at: T.TimestampType = pa.Field(nullable=False, description="First visit, by the producer's clock")
    ended_at: T.TimestampType = pa.Field(nullable=False, description="Last visit, by the producer's clock")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views, copies not counted")
    first_page: T.StringType = pa.Field(nullable=False, description="Page of the first visit")
    last_page: T.StringType = pa.Field(nullable=False, description="Page of the last visit")
    first_referral: T.StringType = pa.Field(
        nullable=True, description="Where the first visit came from; null: directly"
    )
    closed_by: T.StringType = pa.Field(
        nullable=False,
        isin=["inactivity", "closing_page", "greatest_length"],
        description="The rule that was the first to end it",
    )

    class Config:
        """What is over stays over: a visit that comes too late for it is dropped, and counted."""

        name = "gold.sessions_stream"
        metadata = {
            "owner": OWNER,
            "key": ["session_id"],
            "rules": {
                "ends_after_start": "ended_at >= started_at",
                "shorter_than_the_longest": f"ended_at < started_at + INTERVAL {LONGEST // timedelta(hours=1)} HOURS",
                "closed_by_its_last_page": f"closed_by <> 'closing_page' OR last_page = '{LOGOUT}'",
            },
        }
