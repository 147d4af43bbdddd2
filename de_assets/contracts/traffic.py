"""Gold: traffic per day in all dimensions, where it came from, and sessions."""

from datetime import timedelta

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel

OWNER = "team:analytics"


class VisitsCubeDaily(ContractModel):
    """Traffic of one day by country, device type and referral, with all subtotals.

    Grain: one day and combination of dimensions, where `grouping` says which dimensions are summed up (bit 4 country,
    bit 2 device type, bit 1 referral; 7 is the total). Partition: the day of the event.
    """

    event_date: T.DateType = pa.Field(nullable=False, description="Day of the events (UTC)")
    grouping: T.IntegerType = pa.Field(
        nullable=False,
        in_range={"min_value": 0, "max_value": 7},
        description="Bit mask of the dimensions that are summed up",
    )
    country: T.StringType = pa.Field(nullable=True, description="Country; null: summed up, or unknown")
    device_type: T.StringType = pa.Field(nullable=True, description="Kind of device; null: summed up, or unknown")
    referral: T.StringType = pa.Field(nullable=True, description="Where visits came from; null: summed up, or directly")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views")
    users: T.LongType = pa.Field(nullable=False, gt=0, description="Number of distinct visitors; not additive")
    bot_visits: T.LongType = pa.Field(nullable=False, ge=0, description="Page views by known robots")

    class Config:
        """Distinct counts are recounted for every subtotal, never added."""

        name = "gold.visits_cube_daily"
        metadata = {
            "sla": {"takes_at_most": 15, "ready_within": 180, "input_within": 120},
            "owner": OWNER,
            "late_for": timedelta(days=31),
            "key": ["event_date", "grouping", "country", "device_type", "referral"],
            "partitioned_by": ["event_date"],
            "rules": {"users_within_visits": "users <= visits", "bots_within_visits": "bot_visits <= visits"},
        }


class VisitorSketchesDaily(ContractModel):
    """The visitors of one day by country, device type and referral, with all subtotals, as sketches that can be merged.

    Grain and `grouping`: as in `gold.visits_cube_daily`. Partition: the day of the event.
    """

    event_date: T.DateType = pa.Field(nullable=False, description="Day of the events (UTC)")
    grouping: T.IntegerType = pa.Field(
        nullable=False,
        in_range={"min_value": 0, "max_value": 7},
        description="Bit mask of the dimensions that are summed up",
    )
    country: T.StringType = pa.Field(nullable=True, description="Country; null: summed up, or unknown")
    device_type: T.StringType = pa.Field(nullable=True, description="Kind of device; null: summed up, or unknown")
    referral: T.StringType = pa.Field(nullable=True, description="Where visits came from; null: summed up, or directly")
    visitors: T.BinaryType = pa.Field(
        nullable=False,
        description="HLL sketch (Apache DataSketches, lgK 12) of hashed pseudonyms: merge with `hll_union_agg`",
        # Of few visitors a sketch keeps the hashes themselves: whoever has a pseudonym can ask whether it is in it.
        metadata={"personal": True},
    )

    class Config:
        """Read by the weekly cube; not meant for people."""

        name = "gold.visitor_sketches_daily"
        metadata = {
            "owner": OWNER,
            "late_for": timedelta(days=31),
            "key": ["event_date", "grouping", "country", "device_type", "referral"],
            "partitioned_by": ["event_date"],
        }


class VisitsCubeWeekly(ContractModel):
    """Traffic of one ISO week by country, device type and referral, with all subtotals.

    Grain: one week and combination of dimensions, where `grouping` is that of `gold.visits_cube_daily`. Partition: the week.
    """

    week_start: T.DateType = pa.Field(nullable=False, description="Monday of the ISO week (UTC)")
    grouping: T.IntegerType = pa.Field(
        nullable=False,
        in_range={"min_value": 0, "max_value": 7},
        description="Bit mask of the dimensions that are summed up",
    )
    country: T.StringType = pa.Field(nullable=True, description="Country; null: summed up, or unknown")
    device_type: T.StringType = pa.Field(nullable=True, description="Kind of device; null: summed up, or unknown")
    referral: T.StringType = pa.Field(nullable=True, description="Where visits came from; null: summed up, or directly")
    days: T.IntegerType = pa.Field(
        nullable=False,
        in_range={"min_value": 1, "max_value": 7},
        description="Days of the week that have such visits; of grouping 7, all that are counted",
    )
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views")
    bot_visits: T.LongType = pa.Field(nullable=False, ge=0, description="Page views by known robots")
    bot_share: T.DoubleType = pa.Field(
        nullable=False,
        in_range={"min_value": 0, "max_value": 1},
        description="Share of page views by known robots, of all of the week: no mean of the days' shares",
    )
    users_estimate: T.LongType = pa.Field(
        nullable=True, gt=0, description="About how many distinct visitors; null: a day of the week has no sketch"
    )
    users_relative_error: T.DoubleType = pa.Field(
        nullable=True,
        ge=0,
        description="Relative standard error of that: two of three are within one, nearly all within three",
    )

    class Config:
        """Counts are the sums of the days; distinct visitors are not."""

        name = "gold.visits_cube_weekly"
        metadata = {
            "owner": OWNER,
            # Its Monday is over six days before it is.
            "late_for": timedelta(days=25),
            "key": ["week_start", "grouping", "country", "device_type", "referral"],
            "partitioned_by": ["week_start"],
            "rules": {
                "users_within_visits": "users_estimate IS NULL OR users_estimate <= visits",
                "bots_within_visits": "bot_visits <= visits",
                "error_of_estimate": "(users_estimate IS NULL) = (users_relative_error IS NULL)",
            },
        }


class TrafficLive(ContractModel):
    """Traffic of the hours of today, each from when it was over and was found right; late visits included.

    Grain: one hour.
    """

    event_hour: T.TimestampType = pa.Field(nullable=False, description="Hour of the events (UTC)")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views, each once")
    users: T.LongType = pa.Field(nullable=False, gt=0, description="Number of distinct visitors; not additive")
    bot_visits: T.LongType = pa.Field(nullable=False, ge=0, description="Page views by known robots")

    class Config:
        """A day of them is there before the day's files are."""

        name = "gold.traffic_live"
        metadata = {
            "owner": OWNER,
            "key": ["event_hour"],
            "rules": {"users_within_visits": "users <= visits", "bots_within_visits": "bot_visits <= visits"},
        }


class ReferralStats(ContractModel):
    """Visits per day and referral, with those that arrived late.

    Grain: one day and referral. Partition: the day of the event.
    """

    event_date: T.DateType = pa.Field(nullable=False, description="Day of the events (UTC)")
    referral: T.StringType = pa.Field(nullable=False, description="Where visits came from; `direct`: from nowhere else")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views, each once")
    users: T.LongType = pa.Field(nullable=False, gt=0, description="Number of distinct visitors; not additive")
    late_visits: T.LongType = pa.Field(
        nullable=False, ge=0, description="Page views among them that arrived in a later hour than theirs"
    )
    is_approximate: T.BooleanType = pa.Field(
        nullable=False, description="Whether late visits could still change the day when it was computed"
    )

    class Config:
        """A late visit is a visit."""

        name = "gold.referral_stats"
        metadata = {
            "owner": OWNER,
            "late_for": timedelta(days=15),
            "key": ["event_date", "referral"],
            "partitioned_by": ["event_date"],
            "rules": {"users_within_visits": "users <= visits", "late_within_visits": "late_visits <= visits"},
        }


class DailyReport(ContractModel):
    """The figures of one day as they are known, with how complete they are.

    Grain: one day. Partition: the day of the events.
    """

    report_date: T.DateType = pa.Field(nullable=False, description="Day of the report (UTC)")
    visits: T.LongType = pa.Field(nullable=False, ge=0, description="Number of page views that came in time")
    users: T.LongType = pa.Field(nullable=False, ge=0, description="Number of distinct visitors; not additive")
    pages: T.LongType = pa.Field(nullable=False, ge=0, description="Number of distinct pages that were viewed")
    figures_of: T.DateType = pa.Field(
        nullable=False, description="Day whose figures these are: an earlier one, where nothing of the day was there"
    )
    basis: T.StringType = pa.Field(
        nullable=False,
        isin=["all hours", "some hours", "earlier day", "nothing"],
        description="What the figures are: of all hours of the day, of some, those of an earlier day, or nothing",
    )
    completeness: T.DoubleType = pa.Field(
        nullable=False,
        in_range={"min_value": 0.0, "max_value": 1.0},
        description="Share of the day's hours that were there",
    )
    is_approximate: T.BooleanType = pa.Field(nullable=False, description="Whether an hour of the day was missing")
    hours_expected: T.IntegerType = pa.Field(nullable=False, gt=0, description="Hours of which the day consists")
    hours_there: T.IntegerType = pa.Field(nullable=False, ge=0, description="Hours that were there")
    missing_hours: T.StringType = pa.Field(
        nullable=False, description="The hours that were not there, by their partition keys; empty: none"
    )

    class Config:
        """No reader can take an approximation for the truth: what says so is never null."""

        name = "gold.daily_report"
        metadata = {
            "owner": OWNER,
            "late_for": timedelta(days=31),
            "key": ["report_date"],
            "partitioned_by": ["report_date"],
            "rules": {
                "approximate_while_incomplete": "is_approximate = (hours_there < hours_expected)",
                "missing_hours_have_names": "is_approximate = (missing_hours <> '')",
                "basis_says_what_is_there": "(basis = 'all hours') = (NOT is_approximate) "
                "AND (basis IN ('earlier day', 'nothing')) = (hours_there = 0)",
                "other_figures_say_whose": "(figures_of < report_date) = (basis = 'earlier day')",
                "users_within_visits": "users <= visits",
            },
        }


class UserActivity(ContractModel):
    """What each visitor did so far, up to the last day that was merged.

    Grain: one visitor. A partition is a day that was added; no row belongs to one day.
    """

    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor")
    first_seen: T.TimestampType = pa.Field(nullable=False, description="First visit")
    last_seen: T.TimestampType = pa.Field(nullable=False, description="Last visit")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views so far")
    days: T.LongType = pa.Field(nullable=False, gt=0, description="Number of days with a visit so far")

    class Config:
        """Counts only grow, and so must count every day once."""

        name = "gold.user_activity"
        metadata = {
            "owner": OWNER,
            # A day can be corrected as long as the versions before it are kept.
            "late_for": timedelta(days=30),
            "key": ["user_id"],
            "properties": {
                "delta.deletedFileRetentionDuration": "interval 30 days",
                "delta.logRetentionDuration": "interval 60 days",
            },
            "rules": {"last_not_before_first": "last_seen >= first_seen", "a_visit_on_each_day": "days <= visits"},
        }


class Sessions(ContractModel):
    """Visits of one user without a pause of 30 minutes or more; no midnight ends them.

    Grain: one session that is over. Partition: the day on which it was over, 30 minutes after its last visit.
    """

    session_id: T.StringType = pa.Field(
        nullable=False, description="Derived from user and first visit: stable over reruns"
    )
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor")
    started_at: T.TimestampType = pa.Field(nullable=False, description="First visit")
    ended_at: T.TimestampType = pa.Field(nullable=False, description="Last visit")
    duration_seconds: T.LongType = pa.Field(nullable=False, ge=0, description="From the first to the last visit")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views")
    first_page: T.StringType = pa.Field(nullable=False, description="Page of the first visit")
    last_page: T.StringType = pa.Field(nullable=False, description="Page of the last visit")
    event_date: T.DateType = pa.Field(
        nullable=False, description="Day on which the session was over: 30 minutes after its last visit (UTC)"
    )

    class Config:
        """What is over stays over, unless a late visit comes. Those that may go on are in `gold.sessions_pending`."""

        name = "gold.sessions"
        metadata = {
            "sla": {"takes_at_most": 15, "ready_within": 180, "input_within": 120},
            "owner": OWNER,
            "late_for": timedelta(days=31),
            "key": ["session_id"],
            "partitioned_by": ["event_date"],
            "rules": {
                "ends_after_start": "ended_at >= started_at",
                # Over at midnight belongs to the day that ends there.
                "over_on_its_day": "to_date(ended_at + INTERVAL 30 MINUTES - INTERVAL 1 MICROSECOND) = event_date",
            },
        }


class SessionsPending(ContractModel):
    """Sessions that may go on after the end of a day, as far as they had come by then. For the next day's run, not for reports.

    Grain: one session that is open at the end of one day; at most one per user and day. Partition: that day.
    """

    session_id: T.StringType = pa.Field(nullable=False, description="The id that the session has when it is over")
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor")
    started_at: T.TimestampType = pa.Field(nullable=False, description="First visit")
    ended_at: T.TimestampType = pa.Field(nullable=False, description="Last visit of the day")
    visits: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views so far")
    first_page: T.StringType = pa.Field(nullable=False, description="Page of the first visit")
    last_page: T.StringType = pa.Field(nullable=False, description="Page of the last visit of the day")
    event_date: T.DateType = pa.Field(nullable=False, description="Day at whose end the session was open (UTC)")

    class Config:
        """A day's rows are all that the next day has to know of the days before it."""

        name = "gold.sessions_pending"
        metadata = {
            "sla": {"takes_at_most": 15},
            "owner": OWNER,
            "late_for": timedelta(days=31),
            "key": ["user_id", "event_date"],
            "partitioned_by": ["event_date"],
            "rules": {
                "ends_after_start": "ended_at >= started_at",
                "open_at_the_end_of_its_day": "to_date(ended_at) <= event_date "
                "AND to_date(ended_at + INTERVAL 30 MINUTES - INTERVAL 1 MICROSECOND) > event_date",
            },
        }
