"""Sessions as they happen, in the database: read from the topic `visits`, written by key.

Grain: one session of one user, by the broker's clock. Patterns: Keyed Idempotency - a session's id derives from its user and
the append time of its first visit, so that late visits, restarts and replays hit the same row; Checkpointer, managed by the
consumer - positions are committed after the write (at least once), and repeated writes change nothing. Remove the
consumer group `sessions_live` to replay the topic from its start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from psycopg2.sql import SQL
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from de_assets.automation.triggers.polling import behind, poll
from de_assets.contracts.serving import SessionsLive
from de_assets.dataset import reads, served
from de_assets.sources.systems import VISITS_TOPIC
from de_assets.sources.topics import VISITS
from de_assets.transforms.data_value.sessions import GAP
from de_assets.transforms.error_management.visit_parser import ERROR, parse_visits
from de_assets.transforms.idempotency.append_time_sessionizer import KNOWN, continued_sessions
from de_checks.factory import CheckRun, check_of_asset
from de_resources.contract import Contract
from de_resources.delta.write.constraints import told as blocked_rules
from de_resources.engine.utc_rows import utc_rows
from de_resources.errors import PermanentError
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.checkpoints import Checkpoint, GroupCheckpoints
from de_resources.kafka.consumer import Consumed, Increment, consume
from de_resources.kafka.increments import by_time
from de_resources.kafka.stream import placed, topic_slice
from de_resources.kafka.topic import from_milliseconds
from de_resources.lineage.inputs import read_as
from de_resources.lineage.record import lineage_of_output
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.upsert import create_if_missing, exists, keyed_relation, upsert
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

CONSUMER = "sessions_live"
ITSELF = dg.AssetKey(["gold", "sessions_live"])
RELATION = keyed_relation(Contract.of(SessionsLive))
# An increment's sessions are collected to be written; its visits stay in the engine.
AT_MOST = 50_000
SETTLE = timedelta(seconds=10)
JUDGED = timedelta(days=7)
_TOO_CLOSE = """
    SELECT count(*), count(*) FILTER (WHERE started_at < previous + %s) FROM (
        SELECT started_at, lag(ended_at) OVER (PARTITION BY user_id ORDER BY started_at, session_id) AS previous
        FROM {0} WHERE ended_at > (SELECT max(ended_at) FROM {0}) - %s) AS each
"""
BEGIN_AGAIN = (
    f"to begin again drop the table `{RELATION.name}`, delete the consumer group `{CONSUMER}` at the broker, and run."
)
_KNOWN_COLUMNS = [column.strip().split(" ")[0] for column in KNOWN.split(",")]


class ClockWentBack(PermanentError):
    """Visits that the broker dated before a time up to which all of them had been read."""

    def __init__(self, topic: str, since: datetime, oldest: datetime) -> None:
        self.topic, self.since, self.oldest = topic, since, oldest
        super().__init__(
            f"`{topic}` got records dated {oldest.isoformat()} after it was read up to {since.isoformat()}: a broker's clock "
            f"was set back, or runs apart from this one by more than {SETTLE.total_seconds():g} s. Nothing of this increment "
            f"was written. Correct the clock, and {BEGIN_AGAIN}"
        )


class TableLost(PermanentError):
    """A consumer that goes on though what it wrote is gone."""

    def __init__(self) -> None:
        super().__init__(
            f"The consumer group `{CONSUMER}` has read the topic up to its checkpoint, but the table `{RELATION.name}` is "
            f"gone. Nothing was written, for it would lack all sessions before. Restore the table; or {BEGIN_AGAIN}"
        )


@dataclass
class Totals:
    """What the increments of a run add up to."""

    records: int = 0
    not_understood: int = 0
    upserted: int = 0
    blocked: Mapping[str, int] = field(default_factory=dict)
    computed: DataFrame | None = None
    """The sessions of the last increment, as the engine's plan: all of them have the same."""


class Cut(dg.Config):
    """How far before the present a run stops reading."""

    settle_seconds: float = SETTLE.total_seconds()
    """More than brokers and this machine disagree about the time, and than a broker needs to show what it took."""


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **served(
        SessionsLive,
        kind="postgres",
        patterns=["keyed_idempotency", "checkpointer"],
        # It reads the topic, whose records are kept as rows there.
        row_lineage={
            "bronze/visits_stream": "s.user_id = o.user_id AND s.append_time BETWEEN o.started_at AND o.ended_at"
        },
        **reads(VISITS, f"group {CONSUMER}"),
    ),
    deps=[VISITS_TOPIC],
)
def sessions_live(
    context: dg.AssetExecutionContext,
    config: Cut,
    broker: KafkaBroker,
    spark: SparkEngine,
    database: PostgresDatabase,
) -> dg.MaterializeResult[None]:
    """Write the sessions of what was published since the last run, close those whose gap is over, and stop."""
    broker.check()
    log = AppendLog(broker.client_config(), VISITS)
    log.require_append_time()
    settle = timedelta(seconds=config.settle_seconds)
    told, done = fill(spark.spark_session, broker, log, database, datetime.now(UTC), settle=settle)
    lineage = lineage_of_output(context, told.computed) if told.computed is not None else {}
    return dg.MaterializeResult(
        metadata={
            "topic": VISITS,
            "records_read": told.records,
            "records_not_understood": told.not_understood,
            "sessions_upserted": told.upserted,
            "increments": done.increments,
            "checkpoint/before": dg.MetadataValue.json(_described(done.before)),
            "checkpoint/after": dg.MetadataValue.json(_described(done.after)),
            **blocked_rules(told.blocked),
            **lineage,
            **database.description(),
        }
    )


def _judge_keys(run: CheckRun) -> dg.AssetCheckResult:
    """One indexed query of the database. Metadata: `sessions`, and of them `too_close` to the one before."""
    database: PostgresDatabase = run.resources.database
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(SQL(_TOO_CLOSE).format(RELATION.identifier), (GAP, JUDGED))
        sessions, too_close = cursor.fetchone() or (0, 0)
    return dg.AssetCheckResult(passed=not too_close, metadata={"sessions": sessions, "too_close": too_close})


def _to_do(context: dg.ScheduleEvaluationContext) -> str | None:
    """Records that the consumer has not read, or sessions that nobody closed though their gap is over."""
    resources: Any = context.resources
    log = AppendLog(resources.broker.client_config(), VISITS)
    checkpoint = GroupCheckpoints(log, CONSUMER).read()
    return behind(log, checkpoint.offsets if checkpoint else None) or _unclosed(resources.database, datetime.now(UTC))


def _unclosed(database: PostgresDatabase, now: datetime) -> str | None:
    if not exists(database, RELATION):
        return None
    question = SQL("SELECT count(*) FROM {} WHERE NOT is_closed AND ended_at < %s").format(RELATION.identifier)
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(question, (now - GAP - SETTLE,))
        (count,) = cursor.fetchone() or (0,)
    return f"{count} sessions are over and not closed" if count else None


checks = [
    check_of_asset(
        sessions_live,
        "each_session_has_one_key",
        _judge_keys,
        description=f"Of the sessions of the last {JUDGED.days} days, no two of a user overlap or are closer than the gap: the "
        "same visits under two keys would be.",
        patterns=["keyed_idempotency"],
        resources=["database"],
    )
]
polls = [
    poll(
        sessions_live,
        "0 * * * *",
        _to_do,
        resources=["broker", "database"],
        # The broker forgets a group's offsets after a week without a commit.
        renewed_after=timedelta(days=3),
    )
]


def fill(
    session: SparkSession,
    broker: KafkaBroker,
    log: AppendLog,
    database: PostgresDatabase,
    now: datetime,
    *,
    gap: timedelta = GAP,
    settle: timedelta = SETTLE,
    at_most: int = AT_MOST,
) -> tuple[Totals, Consumed]:
    """Read the topic from the consumer's checkpoint up to `now - settle`, and write its sessions increment by increment."""
    told, checkpoints = Totals(), GroupCheckpoints(log, CONSUMER)
    if not exists(database, RELATION) and checkpoints.read() is not None:
        raise TableLost
    told.blocked = create_if_missing(database, RELATION, indexed=["ended_at"])

    def write(increment: Increment) -> None:
        records = topic_slice(session, broker, log.topic, increment.start, increment.end.offsets)
        visits, seen = understood(read_as(records, VISITS_TOPIC))
        known = read_as(session.createDataFrame(_open_since(database, increment.since, gap), KNOWN), ITSELF)
        until = increment.end.until
        assert until is not None  # noqa: S101 - increments by time have it
        told.computed = continued_sessions(visits, known, until, gap)
        rows = utc_rows(told.computed)
        # An increment without records ends without an observation: the engine does not run what reads nothing.
        figures = {**_NOTHING_SEEN, **seen.get}
        _require_younger(log.topic, increment.since, figures["oldest"])
        told.records += figures["records"]
        told.not_understood += figures["not_understood"]
        told.upserted += upsert(database, RELATION, rows, forward=["ended_at", "is_closed"])

    done = consume(RELATION.name, checkpoints, lambda at: by_time(log, at, now, settle=settle, at_most=at_most), write)
    return told, done


_NOTHING_SEEN: Mapping[str, Any] = {"records": 0, "not_understood": 0, "oldest": None}


def understood(records: DataFrame) -> tuple[DataFrame, Observation]:
    """The visits among broker records, and what is observed of all of them while they are read."""
    seen = Observation()
    parsed = parse_visits(placed(records), "payload").observe(
        seen,
        F.count(F.lit(1)).alias("records"),
        F.count(ERROR).alias("not_understood"),
        F.unix_millis(F.min("append_time")).alias("oldest"),
    )
    return parsed.where(F.col(ERROR).isNull()), seen


def _open_since(database: PostgresDatabase, since: datetime | None, gap: timedelta) -> Sequence[tuple[Any, ...]]:
    """The sessions, at most one per user, that an increment from `since` on may continue.

    None at the topic's beginning: there, all is derived from the topic, whatever the table holds already.
    """
    if since is None:
        return []
    columns = SQL(", ").join(map(SQL, _KNOWN_COLUMNS))
    question = SQL("SELECT {} FROM {} WHERE started_at < %s AND ended_at > %s").format(columns, RELATION.identifier)
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(question, (since, since - gap))
        return cursor.fetchall()


def _require_younger(topic: str, since: datetime | None, oldest: int | None) -> None:
    if since is not None and oldest is not None and from_milliseconds(oldest) < since:
        raise ClockWentBack(topic, since, from_milliseconds(oldest))


def _described(checkpoint: Checkpoint | None) -> Mapping[str, Any]:
    if checkpoint is None:
        return {}
    offsets = {str(partition): offset for partition, offset in checkpoint.offsets.items()}
    return {"offsets": offsets, "until": checkpoint.until.isoformat() if checkpoint.until else None}
