"""Visits through the layers: as landed, as dead letters, valid, late, and enriched."""

from datetime import timedelta

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel
from de_resources.moments import CONCEIVABLE, EARLIEST, LATEST
from de_resources.sql.literals import literal

OWNER = "team:web"
_PERSONAL = {"personal": True}
# An index of PostgreSQL takes no key above some 2,700 bytes; identities are far shorter.
_IDENTITY = {"min_value": 1, "max_value": 512}


class VisitColumns(ContractModel):
    """What every dataset of visits has: one row per page view.

    A record that breaks a rule of these columns is a dead letter: whatever follows may rely on them.
    """

    visit_id: T.StringType = pa.Field(
        nullable=False, str_length=_IDENTITY, description="Identity of the page view, given by its producer"
    )
    event_time: T.TimestampType = pa.Field(
        nullable=False, in_range=CONCEIVABLE, description="When the page was viewed, by the producer's clock"
    )
    user_id: T.StringType = pa.Field(
        nullable=False, str_length=_IDENTITY, description="Pseudonymous visitor: registered or guest"
    )
    page: T.StringType = pa.Field(
        nullable=False, str_length={"min_value": 1, "max_value": 2048}, description="Path or name of the page"
    )
    keep_private: T.BooleanType = pa.Field(nullable=True, description="Whether the visitor asked not to be profiled")
    referral: T.StringType = pa.Field(nullable=True, description="Where the visitor came from; null: directly")
    ad_id: T.StringType = pa.Field(nullable=True, description="Advertisement that led here, if any")
    ip: T.StringType = pa.Field(nullable=True, description="Network address of the visitor", metadata=_PERSONAL)
    login: T.StringType = pa.Field(nullable=True, description="Login name of a registered visitor", metadata=_PERSONAL)
    connected_since: T.TimestampType = pa.Field(
        nullable=True, in_range=CONCEIVABLE, description="When the visitor logged in"
    )
    browser: T.StringType = pa.Field(nullable=True, description="Browser family")
    browser_version: T.StringType = pa.Field(nullable=True, description="Browser version")
    network_type: T.StringType = pa.Field(nullable=True, description="Kind of network connection")
    device_type: T.StringType = pa.Field(nullable=True, description="Kind of device; refers to silver.devices")
    device_version: T.StringType = pa.Field(nullable=True, description="Device version; refers to silver.devices")
    is_bot: T.BooleanType = pa.Field(nullable=True, description="Whether the visitor is a known robot")


class BronzeVisits(VisitColumns):
    """Visits as they landed, parsed, one row per landed record that could be understood; duplicates included.

    Grain: one landed record. Partition: the hour in which it landed.
    """

    raw: T.StringType = pa.Field(nullable=False, description="The landed line, untouched", metadata=_PERSONAL)
    source_file: T.StringType = pa.Field(nullable=False, description="Landed file that held the line")
    landing_hour: T.TimestampType = pa.Field(nullable=False, description="Hour in which the line landed (UTC)")
    was_dead_lettered: T.BooleanType = pa.Field(
        nullable=False, description="Whether the line came through a replay of dead letters"
    )

    class Config:
        """Bronze keeps what came; rules only say what every later step relies on."""

        name = "bronze.visits"
        metadata = {
            "sla": {"takes_at_most": 10, "ready_within": 60, "input_within": 30},
            "owner": OWNER,
            "partitioned_by": ["landing_hour"],
            "freshness": {"silence": timedelta(hours=3)},
        }


class DeadLetterColumns(ContractModel):
    """What every dataset of rejected visits has: the record, and why it was rejected."""

    payload: T.BinaryType = pa.Field(nullable=False, description="The bytes as they came", metadata=_PERSONAL)
    raw: T.StringType = pa.Field(
        nullable=False, description="The payload as text, broken bytes replaced", metadata=_PERSONAL
    )
    reason: T.StringType = pa.Field(nullable=False, description="Why the record was rejected")
    field: T.StringType = pa.Field(nullable=True, description="The failing field, where one is to blame")


class VisitsDeadLetter(DeadLetterColumns):
    """What could not be processed: one row per landed record, with payload, reason, place, and what became of it.

    Grain: one rejected record; exact copies within an hour share their `letter_id`. Partition: the hour in which it landed.
    """

    source_file: T.StringType = pa.Field(nullable=False, description="File that held the record")
    source_line: T.LongType = pa.Field(nullable=True, description="Line in that file, where its reader knows it")
    job_version: T.StringType = pa.Field(nullable=False, description="Version of the code that rejected it")
    landing_hour: T.TimestampType = pa.Field(nullable=False, description="Hour in which the record landed (UTC)")
    letter_id: T.StringType = pa.Field(nullable=False, description="Identity of the record, by which `de dlq` names it")
    status: T.StringType = pa.Field(
        nullable=False,
        isin=["open", "replayed", "discarded"],
        description="`open`, `replayed` (a repaired line took its place) or `discarded`",
    )
    repair_of: T.StringType = pa.Field(nullable=True, description="The letter that this line was to repair, if any")
    attempts: T.IntegerType = pa.Field(nullable=False, ge=0, description="How often the record was replayed")
    why: T.StringType = pa.Field(nullable=True, description="Why it was discarded, in a person's words")

    class Config:
        """Dead letters hold personal data: the payload may be anything."""

        name = "bronze.visits_dead_letter"
        metadata = {"owner": OWNER, "partitioned_by": ["landing_hour"]}


class VisitsStream(VisitColumns):
    """Visits read from the broker, understood or not: a record that was not has `error`, and its columns are null.

    Grain: one broker record (partition, offset). Not partitioned: a stream appends.
    """

    visit_id: T.StringType = pa.Field(nullable=True, description="Identity of the page view, given by its producer")
    event_time: T.TimestampType = pa.Field(
        nullable=True, in_range=CONCEIVABLE, description="When the page was viewed, by the producer's clock"
    )
    user_id: T.StringType = pa.Field(nullable=True, description="Pseudonymous visitor: registered or guest")
    page: T.StringType = pa.Field(nullable=True, description="Path or name of the page")
    payload: T.BinaryType = pa.Field(nullable=False, description="The record's value as it came", metadata=_PERSONAL)
    error: T.StringType = pa.Field(nullable=True, description="Why the record could not be understood; null: it was")
    topic_partition: T.IntegerType = pa.Field(nullable=False, ge=0, description="Partition of the topic")
    topic_offset: T.LongType = pa.Field(nullable=False, ge=0, description="Offset in that partition")
    append_time: T.TimestampType = pa.Field(nullable=False, description="When the broker appended the record")

    class Config:
        """The position in the topic identifies a record."""

        name = "bronze.visits_stream"
        metadata = {
            "sla": {"takes_at_most": 15},
            "owner": OWNER,
            "key": ["topic_partition", "topic_offset"],
            "rules": {"understood_or_explained": "(error IS NULL) = (visit_id IS NOT NULL)"},
            "freshness": {"column": "append_time", "every": timedelta(hours=1), "delay": timedelta(minutes=5)},
        }


class Visits(VisitColumns):
    """Valid visits, each once, in the hour of their event: what analyses start from.

    Grain: one page view. Partition: the hour of the event, which is the hour of its arrival for visits on time.
    """

    raw: T.StringType = pa.Field(nullable=False, description="The landed line, untouched", metadata=_PERSONAL)
    event_hour: T.TimestampType = pa.Field(nullable=False, description="Hour of the event (UTC)")

    class Config:
        """A visit identifies itself; the hour follows from the event time."""

        name = "silver.visits"
        metadata = {
            "sla": {"takes_at_most": 10, "ready_within": 90, "input_within": 60},
            "owner": OWNER,
            "key": ["visit_id"],
            "partitioned_by": ["event_hour"],
            "rules": {"hour_is_that_of_event": "event_hour = date_trunc('HOUR', event_time)"},
            "freshness": {"column": "event_time", "silence": timedelta(hours=3)},
        }


class VisitsLate(VisitColumns):
    """Visits that arrived outside the hour of their event: late ones, and ones dated in the future.

    Grain: one page view. Partition: the hour in which it arrived; within it stored by the hour of the event.
    """

    raw: T.StringType = pa.Field(nullable=False, description="The landed line, untouched", metadata=_PERSONAL)
    landing_hour: T.TimestampType = pa.Field(nullable=False, description="Hour in which the visit arrived (UTC)")
    event_hour: T.TimestampType = pa.Field(
        nullable=True, description="Hour of the event (UTC), to which it belongs; null: it came before this was kept"
    )
    lateness_seconds: T.LongType = pa.Field(
        nullable=False, description="From the event to the start of the landing hour; negative: dated in the future"
    )

    class Config:
        """Nothing that is on time belongs here."""

        name = "silver.visits_late"
        metadata = {
            "owner": OWNER,
            "key": ["visit_id"],
            # The log then says which hours a commit is about, and an hour reads what is its own.
            "partitioned_by": ["landing_hour", "event_hour"],
            "rules": {
                "not_on_time": "date_trunc('HOUR', event_time) <> landing_hour",
                "hour_is_that_of_event": "event_hour IS NULL OR event_hour = date_trunc('HOUR', event_time)",
            },
        }


class VisitsEnriched(ContractModel):
    """Visits with the device's name and what was true of the user when the visit happened.

    Grain: one page view: every one of silver.visits, and those of silver.visits_late that came in time for the contract.
    Partition: the hour of the event.
    """

    visit_id: T.StringType = pa.Field(nullable=False, description="Identity of the page view")
    event_time: T.TimestampType = pa.Field(nullable=False, description="When the page was viewed")
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor")
    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page")
    referral: T.StringType = pa.Field(nullable=True, description="Where the visitor came from; null: directly")
    ad_id: T.StringType = pa.Field(nullable=True, description="Advertisement that led here, if any")
    browser: T.StringType = pa.Field(nullable=True, description="Browser family")
    device_type: T.StringType = pa.Field(nullable=True, description="Kind of device")
    device_name: T.StringType = pa.Field(nullable=True, description="Full name of the device; null: unknown device")
    country: T.StringType = pa.Field(nullable=True, description="Country of the user at the time of the event")
    is_registered: T.BooleanType = pa.Field(
        nullable=False, description="Whether a user was known at the time of the event"
    )
    is_bot: T.BooleanType = pa.Field(nullable=True, description="Whether the visitor is a known robot")
    event_hour: T.TimestampType = pa.Field(nullable=False, description="Hour of the event (UTC)")

    class Config:
        """No column of it identifies a person by itself."""

        name = "silver.visits_enriched"
        metadata = {
            "sla": {"takes_at_most": 10, "ready_within": 120, "input_within": 90},
            # A day longer than the days that are made of it: its first hour is over 23 hours before it is.
            "late_for": timedelta(days=32),
            "owner": OWNER,
            "key": ["visit_id"],
            "partitioned_by": ["event_hour"],
            "rules": {"hour_is_that_of_event": "event_hour = date_trunc('HOUR', event_time)"},
        }


CONCEIVABLE_VISIT = {"conceivable_event_time": f"event_time >= {literal(EARLIEST)} AND event_time < {literal(LATEST)}"}
"""What the legacy system's database does not judge: it knows `infinity` and the year 1, which other readers cannot hold."""


class LegacyColumns(ContractModel):
    """What both datasets of the legacy system have: one row per visit."""

    visit_id: T.StringType = pa.Field(nullable=False, description="Identity of the visit")
    event_time: T.TimestampType = pa.Field(nullable=False, description="When the page was viewed")
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor")
    page: T.StringType = pa.Field(nullable=False, description="Name of the page")
    ip: T.StringType = pa.Field(nullable=True, description="Network address of the visitor", metadata=_PERSONAL)


class LegacyVisits(LegacyColumns):
    """Visits of the legacy system, by the hour in which its database received them.

    Grain: one visit. Partition: the hour of `ingestion_time`, never of the event.
    """

    is_deleted: T.BooleanType = pa.Field(nullable=False, description="Whether the producer took the visit back")
    ingestion_time: T.TimestampType = pa.Field(nullable=False, description="When the database received the row")
    ingestion_hour: T.TimestampType = pa.Field(nullable=False, description="Hour of `ingestion_time` (UTC)")

    class Config:
        """The delta column is the ingestion time: an event time may lie anywhere that a calendar has."""

        name = "bronze.legacy_visits"
        metadata = {
            "owner": "team:legacy",
            "key": ["visit_id"],
            "partitioned_by": ["ingestion_hour"],
            "freshness": {"silence": timedelta(days=1)},
            "rules": {
                "hour_is_that_of_ingestion": "ingestion_hour = date_trunc('HOUR', ingestion_time)",
                **CONCEIVABLE_VISIT,
            },
        }


class CurrentLegacyVisits(LegacyColumns):
    """Visits of the legacy system as they stand: changed ones in their newest state, deleted ones gone.

    Grain: one visit.
    """

    ingestion_time: T.TimestampType = pa.Field(nullable=False, description="When the database received this state")

    class Config:
        """Small enough to be computed as a whole."""

        name = "silver.legacy_visits"
        metadata = {"owner": "team:legacy", "key": ["visit_id"], "rules": CONCEIVABLE_VISIT}
