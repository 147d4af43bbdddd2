"""What is served to other systems: traffic per day and visits by week in the database, valid visits in a topic."""

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_assets.contracts.users import UsersLatest
from de_resources.contract import ContractModel

OWNER = "team:analytics"
# They read with SQL, where no lineage sees them.
_CONSUMERS = ["team:product"]


class TrafficColumns(ContractModel):
    """What every table of served traffic has."""

    event_date: T.DateType = pa.Field(nullable=False, description="Day of the events (UTC)")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views")
    users: T.LongType = pa.Field(nullable=False, gt=0, description="Number of distinct visitors; not additive")
    bot_visits: T.LongType = pa.Field(nullable=False, ge=0, description="Page views by known robots")


class DailyTraffic(TrafficColumns):
    """Traffic of a day, as a table of the database. Its visits are the sum of those by country, at every moment.

    Grain: one day.
    """

    class Config:
        """A day without visits has no row."""

        name = "serving.daily_traffic"
        metadata = {
            "owner": OWNER,
            "key": ["event_date"],
            "partitioned_by": ["event_date"],
            "consumers": _CONSUMERS,
        }


class DailyTrafficByCountry(TrafficColumns):
    """Traffic of a day by country, as a table of the database.

    Grain: one day and country.
    """

    country: T.StringType = pa.Field(
        nullable=False, description="Country of the visitor; `unknown` where it is not known"
    )

    class Config:
        """Nulls are spelled out, so that the country can be part of the key."""

        name = "serving.daily_traffic_by_country"
        metadata = {
            "owner": OWNER,
            "key": ["event_date", "country"],
            "partitioned_by": ["event_date"],
            "references": {"event_date": "serving.daily_traffic.event_date"},
            "consumers": _CONSUMERS,
        }


class WeeklyVisits(ContractModel):
    """Visits with the device's name and the user's country, as a view of the database over one table per week.

    Grain: one page view of silver.visits_enriched, each identity once per week. Partition: the week of the event, from Monday.
    """

    event_date: T.DateType = pa.Field(nullable=False, description="Day of the event (UTC)")
    visit_id: T.StringType = pa.Field(nullable=False, description="Identity of the page view")
    event_time: T.TimestampType = pa.Field(nullable=False, description="When the page was viewed (UTC)")
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor: registered or guest")
    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page")
    referral: T.StringType = pa.Field(nullable=True, description="Where the visitor came from; null: directly")
    device_name: T.StringType = pa.Field(nullable=True, description="Full name of the device; null: unknown device")
    country: T.StringType = pa.Field(nullable=True, description="Country of the user at the time of the event")
    is_bot: T.BooleanType = pa.Field(nullable=True, description="Whether the visitor is a known robot")

    class Config:
        """A new column has to be nullable, and is added to the tables by the job `add_week_columns`."""

        name = "serving.weekly_visits"
        metadata = {
            "owner": OWNER,
            "key": ["visit_id"],
            "partitioned_by": ["event_date"],
            "consumers": _CONSUMERS,
        }


class VisitsReduced(ContractModel):
    """Valid visits as records of the topic `visits_reduced`: JSON, keyed by visit, nothing personal.

    Grain: one record of the topic `visits` that could be understood; duplicates included.
    """

    visit_id: T.StringType = pa.Field(nullable=False, description="Identity of the page view, and the record's key")
    event_time: T.TimestampType = pa.Field(nullable=False, description="When the page was viewed (UTC)")
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor: registered or guest")
    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page")

    class Config:
        """The promise is about the record's JSON."""

        name = "serving.visits_reduced"
        metadata = {"owner": "team:web", "sla": {"takes_at_most": 15}}


class PartnerFeed(ContractModel):
    """How often each page was viewed in each hour, as the partner who embeds the blog's articles has been told.

    Grain: one page and hour with a view by a person; robots are not counted. Partition: the day. Delivered as records, for each
    page in the order of its hours; a change of an hour that was told already is told again. A view over what has arrived.
    """

    event_date: T.DateType = pa.Field(nullable=False, description="Day of the views (UTC)")
    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page, and the key of the order")
    hour: T.TimestampType = pa.Field(nullable=False, description="Hour of the views (UTC)")
    views: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views by people")
    visitors: T.LongType = pa.Field(nullable=False, gt=0, description="Number of distinct visitors; not additive")

    class Config:
        """Nothing in it is about a person."""

        name = "serving.partner_feed"
        metadata = {
            "sla": {"takes_at_most": 15, "ready_within": 240, "input_within": 120},
            "owner": OWNER,
            "key": ["page", "hour"],
            "partitioned_by": ["event_date"],
            "rules": {"visitors_within_views": "visitors <= views"},
            "consumers": ["partner:embedding"],
        }


class ProfileChanges(ContractModel):
    """Where registered users live, change by change, as records of the topic `profile_changes`: JSON, keyed by user.

    Grain: one change of one user. For each user in the order of the changes; a reader that has come to the end knows where a
    user lives now. A view over what the broker has acknowledged.
    """

    user_id: T.StringType = pa.Field(nullable=False, description="Identity of the user, and the record's key")
    changed_at: T.TimestampType = pa.Field(nullable=False, description="Since when it holds (UTC)")
    country: T.StringType = pa.Field(
        nullable=True, description="Country of residence, ISO 3166 alpha-2; null: not said, or deleted"
    )
    is_deleted: T.BooleanType = pa.Field(nullable=False, description="Whether the user is gone since then")

    class Config:
        """Login and e-mail address stay at home."""

        name = "serving.profile_changes"
        metadata = {
            "sla": {"takes_at_most": 15},
            "owner": "team:accounts",
            "key": ["user_id", "changed_at"],
            "consumers": ["partner:newsletter"],
        }


class ServedUsers(UsersLatest):
    """The users of the newest day that has a snapshot, as a view of the database; nothing personal.

    Grain: one user.
    """

    class Config:
        """Replaced as a whole."""

        name = "serving.users_snapshot"
        metadata = {"owner": OWNER, "key": ["user_id"]}


class SessionsLive(ContractModel):
    """Sessions of the topic `visits` by the broker's clock, as a key-value table of the database.

    Grain: one session of one user: visits that the broker took with less than the gap between them. Duplicates count.
    """

    session_id: T.StringType = pa.Field(
        nullable=False, description="SHA-256 of the user and the append time of the first visit: never changes"
    )
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor: registered or guest")
    started_at: T.TimestampType = pa.Field(nullable=False, description="When the broker took the first visit (UTC)")
    ended_at: T.TimestampType = pa.Field(nullable=False, description="When the broker took the last visit (UTC)")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views; duplicates included")
    first_event_time: T.TimestampType = pa.Field(nullable=False, description="Earliest view, by the producers' clocks")
    last_event_time: T.TimestampType = pa.Field(nullable=False, description="Latest view, by the producers' clocks")
    first_page: T.StringType = pa.Field(nullable=False, description="Page of the visit that the broker took first")
    last_page: T.StringType = pa.Field(nullable=False, description="Page of the visit that the broker took last")
    is_closed: T.BooleanType = pa.Field(nullable=False, description="Whether the gap is over: the row is final")

    class Config:
        """No partition: a row is found by its key."""

        name = "gold.sessions_live"
        metadata = {
            "sla": {"takes_at_most": 15},
            "owner": OWNER,
            "key": ["session_id"],
            "rules": {"ends_after_start": "ended_at >= started_at"},
        }
