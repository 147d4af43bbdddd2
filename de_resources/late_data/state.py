"""What consumers of changing tables have processed, and who has claimed what, in PostgreSQL.

Several evaluations may run at once, and each may die at any moment. A claim is made under row locks: a partition that
another evaluation is deciding about is passed over (`SKIP LOCKED`), so that each is claimed once. A claim is committed
before its run is requested. If the evaluation dies in between, the claim has no run; after a lease one other evaluation
takes it over as it is, with the same name, so that an orchestrator that did start the run after all starts no second one.

What is recorded can be recorded again, in any order: versions and runs only move forward. A source that was made again
starts from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg2
from psycopg2.extensions import cursor
from psycopg2.extras import execute_values
from psycopg2.sql import SQL, Identifier

from de_resources.delta.log.changed_partitions import LOG_GONE, LONG_AGO, ChangedPartitions, PartitionChange
from de_resources.delta.write.crash_points import crash_point
from de_resources.errors import TransientError
from de_resources.late_data.plan import ConsumerPartition, JudgedPartition, Request
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.creation import create_missing, lock

_CONSUMERS = """
    CREATE TABLE late_data.consumers (
        consumer text PRIMARY KEY, source_id text NOT NULL, scanned_version bigint NOT NULL)
"""
_PARTITIONS = """
    CREATE TABLE late_data.partitions (
        consumer text, partition text, partition_end timestamptz NOT NULL,
        changed_version bigint, changed_at timestamptz, changed_operation text, changed_run text,
        processed_version bigint, processed_by bigint,
        claim text, claimed_by text, claimed_at timestamptz,
        attempts integer NOT NULL DEFAULT 0, need text NOT NULL DEFAULT '', told text NOT NULL DEFAULT '',
        PRIMARY KEY (consumer, partition))
"""
_TABLES = (
    (Identifier("late_data", "consumers"), SQL(_CONSUMERS)),
    (Identifier("late_data", "partitions"), SQL(_PARTITIONS)),
)
_SELECT = """
    SELECT partition, partition_end, changed_version, changed_at, changed_operation, changed_run, processed_version,
    processed_by, claim, attempts, need, told
    FROM late_data.partitions WHERE consumer = %s ORDER BY partition
"""
_CHANGED = """
    INSERT INTO late_data.partitions AS known
    (consumer, partition, partition_end, changed_version, changed_at, changed_operation, changed_run) VALUES %s
    ON CONFLICT (consumer, partition) DO UPDATE SET changed_version = excluded.changed_version,
    changed_at = excluded.changed_at, changed_operation = excluded.changed_operation, changed_run = excluded.changed_run
    WHERE known.changed_version IS NULL OR known.changed_version < excluded.changed_version
"""
_PROCESSED = """
    INSERT INTO late_data.partitions AS known (consumer, partition, partition_end, processed_version, processed_by)
    VALUES %s ON CONFLICT (consumer, partition) DO UPDATE
    SET processed_version = excluded.processed_version, processed_by = excluded.processed_by
    WHERE known.processed_by IS NULL OR known.processed_by < excluded.processed_by
"""
_SCANNED = """
    INSERT INTO late_data.consumers AS known VALUES (%s, %s, %s) ON CONFLICT (consumer) DO UPDATE
    SET source_id = excluded.source_id, scanned_version = greatest(known.scanned_version, excluded.scanned_version)
"""
_SCANNED_SO_FAR = "SELECT source_id, scanned_version FROM late_data.consumers WHERE consumer = %s"
_CLAIM = """
    UPDATE late_data.partitions SET claim = %s, claimed_by = %s, claimed_at = %s, attempts = %s, need = %s
    WHERE consumer = %s AND partition = %s
"""
_TAKE_OVER = """
    UPDATE late_data.partitions SET claimed_at = %s, claimed_by = %s
    WHERE consumer = %s AND claim = %s AND claimed_at <= %s RETURNING partition
"""


class StateInterrupted(TransientError):
    """The database did not finish a statement about late data."""

    def __init__(self, consumer: str, reason: str) -> None:
        self.consumer, self.reason = consumer, reason
        super().__init__(
            f"What `{consumer}` has processed could not be looked up or recorded ({reason}). Nothing was claimed. Look at "
            "`de status`; the next evaluation tries again."
        )


@dataclass(frozen=True)
class Processed:
    """What the last run over a partition had read of the source: `version`, None where it did not say. `by` orders runs."""

    end: datetime
    version: int | None
    by: int


@dataclass(frozen=True)
class Claim:
    """Partitions that were claimed for one run."""

    name: str
    partitions: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """A partition with what people were last told about it."""

    partition: ConsumerPartition
    told: str


@dataclass(frozen=True)
class ClaimDecision:
    """What an evaluation decided under its locks: requests to claim, and what people are now told, by partition."""

    requests: Sequence[Request] = ()
    told: Mapping[str, str] | None = None
    judged: Sequence[JudgedPartition] = ()


@dataclass(frozen=True)
class LateState:
    """The state of one consumer of one source."""

    database: PostgresDatabase
    consumer: str

    def create_if_missing(self) -> None:
        """Make the tables. Evaluations that come first at once make them once. Raises `ServiceUnavailable`."""
        with self._transaction() as statement:
            create_missing(statement, _TABLES)

    def scanned(self, source_id: str) -> int:
        """The version of the source up to which changes are recorded; -1: none, or of another table at its place."""
        with self._transaction() as statement:
            statement.execute(_SCANNED_SO_FAR, (self.consumer,))
            found = statement.fetchone()
        return int(found[1]) if found and found[0] == source_id else -1

    def changed(self, found: ChangedPartitions, by_partition: Mapping[str, tuple[datetime, PartitionChange]]) -> None:
        """Record what changed in the source, as the consumer's partitions (end of their time, last change)."""
        values = [
            (self.consumer, key, end, change.version, change.at, change.operation, change.run)
            for key, (end, change) in sorted(by_partition.items())
        ]
        with self._transaction(alone=True) as statement:
            self._forget_another(statement, found.table_id)
            execute_values(statement, _CHANGED, values)
            if found.gone_before is not None:
                # Partitions that the source lost in commits that are gone cannot be told from those that it kept.
                self._suspect(statement, found.gone_before - 1)
            statement.execute(_SCANNED, (self.consumer, found.table_id, found.through))

    def partitions(self) -> list[Known]:
        """All partitions that are known, without a lock."""
        with self._transaction() as statement:
            statement.execute(_SELECT, (self.consumer,))
            return [_known(row) for row in statement.fetchall()]

    def claims(self) -> list[Claim]:
        """The claims that are open."""
        with self._transaction() as statement:
            statement.execute(
                "SELECT claim, array_agg(partition ORDER BY partition_end) FROM late_data.partitions "
                "WHERE consumer = %s AND claim IS NOT NULL GROUP BY claim ORDER BY claim",
                (self.consumer,),
            )
            return [Claim(name, tuple(keys)) for name, keys in statement.fetchall()]

    def processed(self, by_partition: Mapping[str, Processed], ended: Collection[str] = ()) -> None:
        """Record what runs read, and release the claims whose runs have ended, in one step.

        Released apart, a partition could be claimed again before it is known to be processed.
        """
        values = [(self.consumer, key, p.end, p.version, p.by) for key, p in sorted(by_partition.items())]
        with self._transaction(alone=True) as statement:
            execute_values(statement, _PROCESSED, values)
            statement.execute(
                "UPDATE late_data.partitions SET claim = NULL, claimed_by = NULL, claimed_at = NULL "
                "WHERE consumer = %s AND claim = ANY(%s)",
                (self.consumer, list(ended)),
            )

    def take_over(self, claim: Claim, by: str, now: datetime, lease: timedelta) -> tuple[str, ...]:
        """The partitions of a claim that is older than the lease, now claimed again; none where somebody was faster."""
        with self._transaction(alone=True) as statement:
            statement.execute(_TAKE_OVER, (now, by, self.consumer, claim.name, now - lease))
            taken = {row[0] for row in statement.fetchall()}
        return tuple(key for key in claim.partitions if key in taken)

    def decide(
        self, decision: Callable[[Sequence[Known]], ClaimDecision], *, by: str, now: datetime, wait: bool = False
    ) -> ClaimDecision:
        """Call `decision` with the partitions, locked, and commit what it claims and tells.

        Partitions that another evaluation holds are left out; with `wait` they are waited for, as dependent ones need.
        """
        with self._transaction(alone=wait) as statement:
            statement.execute(f"{_SELECT} FOR UPDATE {'' if wait else 'SKIP LOCKED'}", (self.consumer,))
            decided = decision([_known(row) for row in statement.fetchall()])
            for request in decided.requests:
                for judged in request.partitions:
                    key = judged.partition.key
                    values = (request.claim, by, now, judged.attempt, judged.need, self.consumer, key)
                    statement.execute(_CLAIM, values)
            for key, told in (decided.told or {}).items():
                statement.execute(
                    "UPDATE late_data.partitions SET told = %s WHERE consumer = %s AND partition = %s",
                    (told, self.consumer, key),
                )
            crash_point("before_commit", self.consumer)
        crash_point("after_commit", self.consumer)
        return decided

    def _forget_another(self, statement: cursor, source_id: str) -> None:
        statement.execute(
            "DELETE FROM late_data.consumers WHERE consumer = %s AND source_id <> %s RETURNING 1",
            (self.consumer, source_id),
        )
        if statement.fetchone():
            statement.execute("DELETE FROM late_data.partitions WHERE consumer = %s", (self.consumer,))

    def _suspect(self, statement: cursor, version: int) -> None:
        statement.execute(
            "UPDATE late_data.partitions SET changed_version = %s, changed_at = %s, changed_operation = %s, "
            "changed_run = '' WHERE consumer = %s AND (changed_version IS NULL OR changed_version < %s)",
            (version, LONG_AGO, LOG_GONE, self.consumer, version),
        )

    @contextmanager
    def _transaction(self, *, alone: bool = False) -> Iterator[cursor]:
        """One transaction; `alone` waits for others that change many rows of the consumer, so that none lock each other."""
        try:
            with self.database.connect() as session, session.cursor() as statement:
                if alone:
                    lock(statement, f"late_data: {self.consumer}")
                yield statement
        except psycopg2.Error as error:
            raise StateInterrupted(self.consumer, error.diag.message_primary or type(error).__name__) from error


def _known(row: tuple[Any, ...]) -> Known:
    change = PartitionChange(row[2], row[3], row[4], row[5]) if row[2] is not None else None
    partition = ConsumerPartition(row[0], row[1], change, row[6], row[7], claim=row[8], attempts=row[9], need=row[10])
    return Known(partition, row[11])
