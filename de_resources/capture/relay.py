"""The relay: whole commits from the slot into the topic, in Kafka transactions, and only then confirmed.

Nothing is lost, because the slot keeps what was not confirmed. Nothing arrives twice for a `read_committed` reader, because a
restarted relay asks the topic how far it had come and leaves out what is there. A second relay of the same source fences the
first, which then ends. A transaction of the database is held in memory until it is complete.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import psycopg2
from confluent_kafka import KafkaError, KafkaException, Producer
from psycopg2.errors import ObjectInUse, UndefinedObject
from psycopg2.extensions import connection

from de_resources.capture import slot
from de_resources.capture.envelope import (
    ChangeRecord,
    Position,
    TransactionOrigin,
    records,
    snapshot_record,
    truncation,
)
from de_resources.capture.history import identify
from de_resources.capture.pgoutput import Begin, Commit, Decoder, Message, Relation, RowChange, Truncate
from de_resources.capture.position import reached
from de_resources.capture.snapshot_pace import SnapshotPace, SnapshotTooLong
from de_resources.capture.source import CaptureSource, heart_of
from de_resources.errors import PermanentError, TransientError
from de_resources.heartbeat import Heartbeat, beating
from de_resources.kafka import KafkaBroker
from de_resources.kafka.queueing import enqueue
from de_resources.kafka.topic import Topic
from de_resources.postgres import PostgresDatabase

log = logging.getLogger(__name__)

EVENT_TIME = "event_time"
_BATCH = 2_000
_IDLE_SECONDS = 0.2
_ANSWER_SECONDS = 30.0
_TRANSACTION_SECONDS = 600.0
"""For a transaction of the relay. One that a relay left open keeps readers waiting until the next relay, or for so long."""
_PUBLICATION_SECONDS = 10.0
"""How often a relay looks whether its tables are still published: the log of one that is not says nothing."""
_ESTIMATE = (
    "SELECT coalesce(sum(greatest(reltuples, 0)), 0)::bigint FROM pg_class WHERE oid = ANY(%s::text[]::regclass[])"
)
_PRIMARY_KEY = """
    SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(number, place)
    JOIN pg_attribute a ON a.attnum = k.number
    WHERE i.indrelid = %s AND i.indisprimary AND a.attrelid = i.indrelid ORDER BY k.place
"""


class NoPrimaryKey(PermanentError):
    """A table whose rows cannot be told apart."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(f"The table `{table}` has no primary key, so its changes have no record key. Add one.")


class TopicMadeAnew(PermanentError):
    """The topic is not the one that got the rows from before the slot, and all that was confirmed since."""

    def __init__(self, source: CaptureSource) -> None:
        self.source = source
        super().__init__(
            f"The topic `{source.topic}` was made again: what the capture has confirmed to the database is not in it. Nothing "
            f"more was read. Run `de capture drop {source.name}`, then `de up`: the capture begins with a snapshot."
        )


class SlotInUse(TransientError):
    """Somebody else reads the slot."""

    def __init__(self, source: CaptureSource) -> None:
        self.source = source
        super().__init__(f"Another capture reads the slot `{source.slot}`. Only one may: stop the other one first.")


class Fenced(PermanentError):
    """Another capture of the same source has taken over."""

    def __init__(self, source: CaptureSource) -> None:
        self.source = source
        super().__init__(f"Another capture `{source.name}` took over; this one produced nothing more and ends.")


@dataclass
class Capture:
    """One run of the relay. `run` ends when `stop` says so, and raises when database, broker or slot fail.

    Raises what `slot` raises, and `AnotherDatabase`, `TopicMadeAnew`, `NoPrimaryKey`, `TopicMissing`, `SnapshotTooLong`,
    `Fenced`; psycopg2's and Kafka's own errors where a connection breaks. After any of them a new run goes on where this one
    was. `clock` tells how long a snapshot takes.
    """

    database: PostgresDatabase
    broker: KafkaBroker
    source: CaptureSource
    clock: Callable[[], float] = time.monotonic
    _keys: dict[Relation, tuple[str, ...]] = field(default_factory=dict)
    _headers: list[tuple[str, str | bytes | None]] = field(default_factory=list)

    def run(self, stop: Callable[[], bool], started: Callable[[], None] = lambda: None) -> None:
        """Relay until `stop`; `started` is called when the log is read."""
        there = self._status()
        if there is not None and there.active:
            raise SlotInUse(self.source)  # before the producer takes over the identity of the one that runs
        self.broker.check()
        self._require_history()
        producer = self._producer()
        if self._ensure_snapshot():  # with a producer of its own, which fenced this one
            producer = self._producer()
        if self._take_in_late_tables(producer, stop):
            producer = self._producer()
        with self._stream() as stream:
            started()
            with beating(Heartbeat(heart_of(self.source))) as heart:
                self._relay(stream, producer, heart, stop)

    def _require_history(self) -> None:
        """Before anything is read or confirmed: whether the topic's positions are of this database."""
        with closing(self.database.open(replication=True)) as replication, replication.cursor() as asked:
            history = identify(asked)
        known = reached(self.broker.client_config(), self.source.topic)
        if known.position is not None:
            history.require_continues(self.source, known.position, known.database)
            if known.database is None:
                log.warning(
                    "%s: the topic does not say whose changes it holds: taken for %s", self.source.name, history.id
                )
        self._headers = history.id.headers

    def _producer(self, transaction_seconds: float = _TRANSACTION_SECONDS) -> Producer:
        """Transactional: a second producer with the identity of this one makes the first one fail."""
        producer = Producer(
            {
                **self.broker.client_config(),
                "transactional.id": f"capture-{self.source.name}",
                "transaction.timeout.ms": int(transaction_seconds * 1000),
                "linger.ms": 0,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        producer.init_transactions(_ANSWER_SECONDS)
        return producer

    def _ensure_snapshot(self) -> bool:
        """Publication and slot; the rows from before the slot, once, in one Kafka transaction. Whether they were taken now."""
        with slot.exclusively(self.database, self.source):
            return self._make_slot()

    def _make_slot(self) -> bool:
        with self.database.connect() as session, session.cursor() as asked:
            added = slot.ensure_publication(asked, self.database, self.source)
        topic = Topic(self.broker.client_config(), self.source.topic).identity()
        if (delivered := slot.delivered(self.database, self.source)) is not None:
            if delivered.topic not in (None, topic):
                raise TopicMadeAnew(self.source)
            slot.mark_delivered(self.database, self.source, replace(delivered, topic=topic))
            return False
        position, there = reached(self.broker.client_config(), self.source.topic).position, self._status()
        if there is not None and (added or position is None or position.commit_lsn < there.confirmed_lsn - 1):
            slot.forget_slot(self.database, self.source)  # it died before its snapshot, or all of it, had arrived
            there = None
        if there is None:
            self._deliver_snapshot()
        slot.mark_delivered(self.database, self.source, slot.Delivered(topic))
        return there is None

    def _deliver_snapshot(self) -> None:
        """Make the slot, and deliver the rows from before it."""
        with slot.exported_snapshot(self.database, self.source) as (lsn, session):
            try:
                self._deliver_rows(session, lsn, self.source.tables)
            except SnapshotTooLong:
                slot.forget_slot(self.database, self.source)  # or it would keep log until the next attempt
                raise

    def _take_in_late_tables(self, producer: Producer, stop: Callable[[], bool]) -> bool:
        """Deliver the rows that tables had before they were published, at their place between the changes.

        All that was committed before them is relayed first: a record behind them that is older would be taken for known. One
        that dies in between takes them in again. Whether there was something to take in.
        """
        known = slot.delivered(self.database, self.source)
        if known is None or not known.awaited:
            return False
        with slot.exported_snapshot(self.database, self.source, beside=True) as (lsn, session):
            slot.emit_heartbeat(self.database)  # nothing else may be committed for a long time
            with self._stream() as stream, beating(Heartbeat(heart_of(self.source))) as heart:
                self._relay(stream, producer, heart, stop, before=lsn)
            if not stop():
                self._deliver_rows(session, lsn, known.awaited)
                slot.mark_delivered(self.database, self.source, replace(known, awaited=()))
        slot.wait_until_free(self.database, self.source, _ANSWER_SECONDS)
        return True

    def _deliver_rows(self, session: connection, lsn: int, tables: Sequence[str]) -> None:
        """Deliver the rows that the session sees, in as much time as the broker gives to a transaction."""
        seconds = self.broker.longest_transaction() or _TRANSACTION_SECONDS
        producer = self._producer(seconds)
        pace = SnapshotPace(self.source, seconds - _ANSWER_SECONDS, _estimated_rows(session, tables))
        try:
            # Ahead of a transaction that commits exactly at the slot's first position.
            count = self._deliver(producer, self._at_pace(self._snapshot(session, lsn - 1, tables), pace))
        except SnapshotTooLong:
            producer.abort_transaction(_ANSWER_SECONDS)
            raise
        log.info("snapshot of %d rows of %s delivered", count, ", ".join(tables))

    def _at_pace(self, snapshot: Iterator[ChangeRecord], pace: SnapshotPace) -> Iterator[ChangeRecord]:
        began, count = self.clock(), 0
        for record in snapshot:
            if count % _BATCH == 0:
                pace.require(count, self.clock() - began)
            yield record
            count += 1
        pace.require(count, self.clock() - began)

    def _snapshot(self, session: connection, lsn: int, tables: Sequence[str]) -> Iterator[ChangeRecord]:
        origin, sequence = TransactionOrigin(lsn, datetime.now(UTC), tx_id=0), 0
        for table in tables:
            relation = _relation(session, table)
            key = self._key(relation)
            # What no row of the snapshot tells of was deleted while nobody read the log.
            yield truncation(relation, replace(origin, snapshot=True), sequence)
            sequence += 1
            with session.cursor(name="snapshot") as rows:
                rows.itersize = 2_000
                columns = psycopg2.sql.SQL(", ").join(
                    psycopg2.sql.SQL("{}::text").format(psycopg2.sql.Identifier(name)) for name, _ in relation.columns
                )
                name = psycopg2.sql.Identifier(*table.split("."))
                rows.execute(psycopg2.sql.SQL("SELECT {} FROM {}").format(columns, name))
                for row in rows:
                    values = {c: _as_sent(v, t) for (c, t), v in zip(relation.columns, row, strict=True)}
                    yield snapshot_record(relation, values, key, origin, sequence)
                    sequence += 1

    def _status(self) -> slot.CaptureStatus | None:
        found = slot.status(self.database, self.source)
        if found is not None and found.is_lost:
            raise slot.SlotLost(self.source)
        return found

    @contextmanager
    def _stream(self) -> Iterator[Any]:
        with closing(self.database.open(replication=True)) as replication, replication.cursor() as stream:
            self._start(stream)
            yield stream

    def _start(self, stream: Any) -> None:
        self._status()
        options = {"proto_version": "1", "publication_names": self.source.slot, "messages": "true"}
        try:
            stream.start_replication(slot_name=self.source.slot, decode=False, options=options, status_interval=5)
        except ObjectInUse:
            raise SlotInUse(self.source) from None
        except UndefinedObject:
            raise slot.SlotLost(self.source) from None
        log.info("relaying %s into the topic %s", ", ".join(self.source.tables), self.source.topic)

    def _relay(
        self, stream: Any, producer: Producer, heart: Heartbeat, stop: Callable[[], bool], before: int | None = None
    ) -> None:
        """Collect whole commits while they come at once; deliver and confirm when there are many, or no more for now.

        With `before`, what was committed before that position, and nothing else.
        """
        known = reached(self.broker.client_config(), self.source.topic).position
        transactions = _Transactions(self._key, known, before)
        looked = time.monotonic()
        while not stop():
            heart.beat()
            if before is None and time.monotonic() - looked > _PUBLICATION_SECONDS:
                slot.require_published(self.database, self.source)
                looked = time.monotonic()
            message = stream.read_message()
            if message is not None:
                transactions.add(message.payload)
                if transactions.ready < _BATCH and not transactions.is_past:
                    continue
            if transactions.end_lsn:
                if transactions.ready:
                    self._deliver(producer, transactions.take())
                    heart.beat(data=True)
                stream.send_feedback(flush_lsn=transactions.end_lsn, reply=True)
                transactions.end_lsn = 0
            elif message is None:
                if not transactions.open and stream.wal_end:
                    stream.send_feedback(flush_lsn=stream.wal_end)  # other tables' log need not be kept for us
                select.select([stream], [], [], _IDLE_SECONDS)
            if transactions.is_past:
                return

    def _deliver(self, producer: Producer, batch: Iterator[ChangeRecord] | Sequence[ChangeRecord]) -> int:
        """One Kafka transaction; all of it or nothing. Returns the number of records."""
        count = 0
        try:
            producer.begin_transaction()
            for record in batch:
                self._produce(producer, record)
                count += 1
            producer.commit_transaction(_ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                raise Fenced(self.source) from error
            raise
        return count

    def _produce(self, producer: Producer, record: ChangeRecord) -> None:
        headers = [*record.position.headers, *self._headers]
        enqueue(producer, self.source.topic, key=record.key, value=record.value, headers=headers)

    def _key(self, relation: Relation) -> tuple[str, ...]:
        """The primary key, asked once per shape of a table. With REPLICA IDENTITY FULL the stream calls every column a key."""
        if relation not in self._keys:
            with self.database.connect() as session, session.cursor() as asked:
                asked.execute(_PRIMARY_KEY, (relation.id,))
                self._keys[relation] = tuple(name for (name,) in asked.fetchall())
        if not self._keys[relation]:
            raise NoPrimaryKey(relation.name)
        return self._keys[relation]


class _Transactions:
    """Messages of the stream, put together to whole transactions of records that the topic does not have.

    Of transactions that were not committed `before` that position nothing is kept.
    """

    def __init__(
        self, key: Callable[[Relation], Sequence[str]], known: Position | None, before: int | None = None
    ) -> None:
        self._key, self._known, self._before, self._decoder = key, known, before, Decoder()
        self.is_past = False
        """Whether one of these has come; they come in the order of their commits."""
        self._origin: TransactionOrigin | None = None
        self._sequence = 0
        self._current: list[ChangeRecord] = []
        self._complete: list[ChangeRecord] = []
        self.end_lsn = 0
        """Up to where the complete transactions go; 0: there is none."""

    @property
    def open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._origin is not None

    @property
    def ready(self) -> int:
        """Records of complete transactions."""
        return len(self._complete)

    def take(self) -> list[ChangeRecord]:
        """The records of complete transactions, once."""
        complete, self._complete = self._complete, []
        return complete

    def add(self, payload: bytes) -> None:
        """The next message of the stream."""
        message = self._decoder.decode(payload)
        if isinstance(message, Begin) and self._before is not None:
            self.is_past = message.lsn >= self._before
        if self.is_past:
            return
        if isinstance(message, Begin):
            self._origin, self._sequence = TransactionOrigin(message.lsn, message.commit_time, message.tx_id), 0
        elif isinstance(message, Commit):
            self._complete += self._current
            self._current, self._origin, self.end_lsn = [], None, message.end_lsn
        elif self._origin is None:
            return
        elif isinstance(message, RowChange):
            self._keep(records(message, self._key(message.relation), self._origin, self._sequence))
        elif isinstance(message, Truncate):
            for relation in message.relations:
                self._keep([truncation(relation, self._origin, self._sequence)])
        elif isinstance(message, Message) and message.prefix == EVENT_TIME:
            self._origin = replace(self._origin, event_time=message.content.decode())

    def _keep(self, produced: Iterator[ChangeRecord] | list[ChangeRecord]) -> None:
        for record in produced:
            self._sequence = record.position.sequence + 1
            if self._known is None or record.position > self._known:
                self._current.append(record)


def _estimated_rows(session: connection, tables: Sequence[str]) -> int:
    """Rows of the tables, as the database's statistics have them; without those of tables that it has not looked at yet."""
    with session.cursor() as asked:
        asked.execute(_ESTIMATE, (list(tables),))
        ((rows,),) = asked.fetchall()
    return int(rows)


def _relation(session: connection, table: str) -> Relation:
    with session.cursor() as asked:
        asked.execute(
            "SELECT attrelid::int, attname, atttypid::int FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum",
            (table,),
        )
        rows: list[tuple[int, str, int]] = asked.fetchall()
    return Relation(rows[0][0], table, tuple((name, type_) for _, name, type_ in rows))


_BOOLEAN = 16


def _as_sent(value: str | None, type_id: int) -> str | None:
    """A value's text as the stream has it: casts to text spell booleans out."""
    return value[0] if value is not None and type_id == _BOOLEAN else value
