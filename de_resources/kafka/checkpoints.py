"""Where a consumer of a topic is: kept by the broker for its group, or by a database beside what the consumer writes.

Pattern: Checkpointer, the flavour that the consumer manages itself. A checkpoint is only a place to go on from: whether a
record is lost, repeated or neither is decided by when it is committed (`de_resources.kafka.consumer`) and by the sink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition
from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Identifier

from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.errors import CheckpointNotCommitted, CheckpointUnreadable, PositionTaken
from de_resources.kafka.group import committed, group_client
from de_resources.kafka.topic import from_milliseconds, milliseconds
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.creation import create_missing


@dataclass(frozen=True)
class Checkpoint:
    """The offset that comes next, by partition of the topic with this identity.

    `until`, where the consumer cuts by time: all records older than it are behind, none that is as old or younger.
    """

    topic_id: str
    offsets: Mapping[int, int]
    until: datetime | None = None


class Checkpoints(Protocol):
    """Where a consumer keeps its checkpoint."""

    def read(self) -> Checkpoint | None:
        """The last one that was committed; None where there is none."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Replace it, as a whole. Returns when it is durable."""


@dataclass(frozen=True)
class GroupCheckpoints:
    """As offsets of a consumer group at the broker, which never has members: tools see the lag, deleting the group removes it.

    The broker forgets the offsets of a group after a week without a commit (`offsets.retention.minutes`), and those of a topic
    that is deleted.
    """

    log: AppendLog
    group: str

    def read(self) -> Checkpoint | None:
        """Raises `CheckpointUnreadable`, `TopicMissing`."""
        places = [TopicPartition(self.log.topic, partition) for partition in range(self.log.partitions())]
        with closing(self._member()) as member:
            known = [place for place in committed(member, places) if place.offset >= 0]
        if not known:
            return None
        (said, *others) = {place.metadata for place in known}
        try:
            told = json.loads(said or "")
            until = None if told["until"] is None else from_milliseconds(told["until"])
            topic_id = told["topic"]
        except (ValueError, KeyError, TypeError):
            others = [said]
        if others:
            raise CheckpointUnreadable(self.group, self.log.topic)
        return Checkpoint(topic_id, {place.partition: place.offset for place in known}, until)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Raises `CheckpointNotCommitted`."""
        until = None if checkpoint.until is None else milliseconds(checkpoint.until)
        said = json.dumps({"topic": checkpoint.topic_id, "until": until})
        places = [TopicPartition(self.log.topic, p, o, metadata=said) for p, o in checkpoint.offsets.items()]
        with closing(self._member()) as member:
            try:
                answers = member.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                raise CheckpointNotCommitted(self.group, self.log.topic, error.args[0].str()) from error
        for place in answers or []:
            if place.error is not None:
                raise CheckpointNotCommitted(self.group, self.log.topic, place.error.str())

    def _member(self) -> Consumer:
        return group_client(self.log.config, self.group)


_TABLE = """
    CREATE TABLE {} (consumer text PRIMARY KEY, topic text NOT NULL, topic_id text NOT NULL,
    offsets jsonb NOT NULL, until timestamptz, committed_at timestamptz NOT NULL DEFAULT now())
"""
_COMMIT = """
    INSERT INTO {} (consumer, topic, topic_id, offsets, until) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (consumer) DO UPDATE SET topic = excluded.topic, topic_id = excluded.topic_id,
    offsets = excluded.offsets, until = excluded.until, committed_at = now()
"""
_BEGIN = """
    INSERT INTO {} (consumer, topic, topic_id, offsets, until) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (consumer) DO NOTHING RETURNING 1
"""
_MOVE = """
    UPDATE {} SET offsets = %s, until = %s, committed_at = now()
    WHERE consumer = %s AND topic_id = %s AND offsets = %s RETURNING 1
"""


@dataclass(frozen=True)
class TableCheckpoints:
    """As a row of `<schema>.checkpoints` in the database, where it can be part of the sink's own transaction."""

    database: PostgresDatabase
    schema: str
    consumer: str
    topic: str

    def create_if_missing(self) -> None:
        """Make schema and table; several at once wait for each other."""
        with self.database.connect() as session, session.cursor() as statement:
            create_missing(statement, [(self._table, SQL(_TABLE).format(self._table))])

    def read(self) -> Checkpoint | None:
        """Raises `ServiceUnavailable`."""
        self.create_if_missing()
        question = SQL("SELECT topic_id, offsets, until FROM {} WHERE consumer = %s").format(self._table)
        with self.database.connect() as session, session.cursor() as statement:
            statement.execute(question, (self.consumer,))
            found = statement.fetchone()
        if found is None:
            return None
        topic_id, offsets, until = found
        return Checkpoint(topic_id, {int(partition): offset for partition, offset in offsets.items()}, until)

    def commit(self, checkpoint: Checkpoint) -> None:
        """In a transaction of its own."""
        with self.database.connect() as session, session.cursor() as statement:
            statement.execute(SQL(_COMMIT).format(self._table), self._values(checkpoint))

    def commit_with(self, statement: cursor, checkpoint: Checkpoint, before: Checkpoint | None) -> None:
        """In the transaction of this cursor: the position and what is written with it become visible together.

        Raises `PositionTaken`, which has to roll the transaction back, unless the position is still `before`. Of two runs
        at once, the second waits here until the first one has committed.
        """
        if before is None:
            statement.execute(SQL(_BEGIN).format(self._table), self._values(checkpoint))
        else:
            known = (self.consumer, before.topic_id, _as_json(before))
            statement.execute(SQL(_MOVE).format(self._table), (_as_json(checkpoint), checkpoint.until, *known))
        if statement.fetchone() is None:
            raise PositionTaken(self.consumer, self.topic)

    def _values(self, checkpoint: Checkpoint) -> tuple[object, ...]:
        return (self.consumer, self.topic, checkpoint.topic_id, _as_json(checkpoint), checkpoint.until)

    @property
    def _table(self) -> Identifier:
        return Identifier(self.schema, "checkpoints")


def _as_json(checkpoint: Checkpoint) -> str:
    return json.dumps({str(partition): offset for partition, offset in checkpoint.offsets.items()})
