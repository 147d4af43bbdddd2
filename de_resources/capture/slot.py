"""Publication and replication slot of a capture: made, watched, and dropped.

A slot keeps the write-ahead log from the position that was confirmed last. One that is left behind fills the server's disk,
or, where `max_slot_wal_keep_size` is set, is invalidated by the server: hence `status`, and `drop` on teardown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from psycopg2.extensions import connection, cursor
from psycopg2.sql import SQL, Identifier, Literal

from de_resources.capture.history import parse_lsn
from de_resources.capture.source import CaptureSource
from de_resources.errors import PermanentError, TransientError
from de_resources.postgres import PostgresDatabase, RelationMissing

_DELIVERED, _INTO, _AWAITED = "snapshot delivered", " into topic ", "; rows awaited of "
_HEARTBEAT = "SELECT (pg_logical_emit_message(true, 'heartbeat', '') - '0/0'::pg_lsn)::bigint"
_STATUS = """
    SELECT active, wal_status, (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint,
           pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
    FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()
"""


class CaptureBehind(TransientError):
    """What was committed did not reach the topic in time."""

    soon = False

    def __init__(self, source: CaptureSource, seconds: float) -> None:
        self.source, self.seconds = source, seconds
        super().__init__(
            f"The capture `{source.name}` did not reach the database's present position within {seconds:g} s. Nothing is "
            "lost, the slot keeps it: see `de status` and `de logs capture`, start it with `de up`, and try again."
        )


class SlotLost(PermanentError):
    """The server threw away log that the slot still needed."""

    def __init__(self, source: CaptureSource) -> None:
        self.source = source
        super().__init__(
            f"The slot `{source.slot}` was invalidated: the capture was away for more log than the server keeps, and changes "
            f"are missing. Run `de capture drop {source.name}`, then `de up`: the capture begins again with a snapshot."
        )


class TableNotPublished(TransientError):
    """The publication lacks a table that is to be captured, or the topic its rows from before."""

    def __init__(self, source: CaptureSource, tables: Sequence[str]) -> None:
        self.source, self.tables = source, tuple(tables)
        super().__init__(
            f"The publication `{source.slot}` lacks {', '.join(f'`{table}`' for table in tables)}, or the topic the rows from "
            "before: changes went by unseen. The capture begins again, publishes what is missing, and takes its rows in."
        )


@dataclass(frozen=True)
class CaptureStatus:
    """The slot as the server sees it. `retained_bytes` of log cannot be removed because of it."""

    active: bool
    confirmed_lsn: int
    retained_bytes: int
    is_lost: bool


def prepare(database: PostgresDatabase, source: CaptureSource) -> bool:
    """Make the publication, and the slot if nothing can have been captured yet: the tables have to be empty.

    For whoever creates the tables: changes from the first row on are captured, before the capture itself ever ran.
    Where rows are there already, the slot is left to the capture, which takes a snapshot of them first. Returns whether the
    slot is there now. A rerun changes nothing.

    Raises:
        RelationMissing: a table does not exist.
        ServiceUnavailable: the database does not answer.
    """
    with exclusively(database, source), database.connect() as session, session.cursor() as asked:
        ensure_publication(asked, database, source)
        session.commit()
        if _slot_exists(asked, source):
            return True
        if _filled(asked, source):
            return False
        # What is committed between that look and the slot is in neither: only the slot's own snapshot tells.
        with exported_snapshot(database, source) as (_lsn, before), before.cursor() as reader:
            filled = _filled(reader, source)
        if filled:
            forget_slot(database, source)
            return False
        mark_delivered(database, source, Delivered())
        return True


@contextmanager
def exclusively(database: PostgresDatabase, source: CaptureSource) -> Iterator[None]:
    """Hold the making of the source's slot: whoever else wants to make it waits. Ends with the session at the latest."""
    with closing(database.open()) as session, session, session.cursor() as asked:
        asked.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (source.slot,))
        yield


def ensure_publication(asked: cursor, database: PostgresDatabase, source: CaptureSource) -> bool:
    """Publish the tables that are not published yet, in the caller's transaction. Raises `RelationMissing`.

    Of a table that comes after the snapshot was delivered, the rows from before are awaited from then on (`Delivered`). Returns
    whether there was a publication that lacked some.
    """
    asked.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (source.slot,))
    there = asked.fetchone() is not None
    missing = _unpublished(asked, source) if there else list(source.tables)
    for table in missing:
        asked.execute("SELECT to_regclass(%s) IS NULL", (table,))
        if asked.fetchone() == (True,):
            where = database.description()
            raise RelationMissing(table, where["database"], where["address"])
    if not missing:
        return False
    change = SQL("ALTER PUBLICATION {} ADD TABLE {}" if there else "CREATE PUBLICATION {} FOR TABLE {}")
    asked.execute(change.format(Identifier(source.slot), SQL(", ").join(map(_table, missing))))
    if (known := _delivered(asked, source)) is not None:
        _remember(asked, source, replace(known, awaited=tuple(sorted({*known.awaited, *missing}))))
    return there


def require_published(database: PostgresDatabase, source: CaptureSource) -> None:
    """Raise `TableNotPublished` where a table is not captured whole: added to the source, or dropped and made again."""
    if missing := _not_whole(database, source):
        raise TableNotPublished(source, missing)


def _not_whole(database: PostgresDatabase, source: CaptureSource) -> list[str]:
    with database.connect() as session, session.cursor() as asked:
        known = _delivered(asked, source)
        return [*_unpublished(asked, source), *(known.awaited if known else ())]


def _unpublished(asked: cursor, source: CaptureSource) -> list[str]:
    asked.execute(
        "SELECT format('%%s.%%s', schemaname, tablename) FROM pg_publication_tables WHERE pubname = %s", (source.slot,)
    )
    published = {name for (name,) in asked.fetchall()}
    return [table for table in source.tables if (table if "." in table else f"public.{table}") not in published]


@contextmanager
def exported_snapshot(
    database: PostgresDatabase, source: CaptureSource, *, beside: bool = False
) -> Iterator[tuple[int, connection]]:
    """Make the slot, and yield its position with a session that sees exactly the rows from before it.

    `beside` the slot that is there: one more, which is gone with this call.
    """
    name, kind = (f"{source.slot}_beside", "TEMPORARY ") if beside else (source.slot, "")
    with closing(database.open(replication=True)) as replication, replication.cursor() as asked:
        make = SQL("CREATE_REPLICATION_SLOT {} " + kind + "LOGICAL pgoutput EXPORT_SNAPSHOT")
        asked.execute(make.format(Identifier(name)))
        _name, position, snapshot, _plugin = asked.fetchone()  # type: ignore[misc]
        with closing(database.open()) as session:
            session.set_session(isolation_level="REPEATABLE READ", readonly=True)
            with session, session.cursor() as reader:
                reader.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
                yield parse_lsn(position), session


@dataclass(frozen=True)
class Delivered:
    """The rows from before the slot are in a topic. Kept as the publication's comment."""

    topic: str | None = None
    """The identity of the topic; None: one that no capture has looked at yet."""
    awaited: tuple[str, ...] = ()
    """Tables that were published later, and whose rows from before are not in it yet."""

    @classmethod
    def parse(cls, said: str | None) -> Delivered | None:
        """What a comment says; None where it is no such."""
        if said is None or not said.startswith(_DELIVERED):
            return None
        topic, _, awaited = said.removeprefix(_DELIVERED).removeprefix(_INTO).partition(_AWAITED)
        return cls(topic or None, tuple(filter(None, awaited.split(", "))))

    def __str__(self) -> str:
        into = f"{_INTO}{self.topic}" if self.topic else ""
        return f"{_DELIVERED}{into}{_AWAITED + ', '.join(self.awaited) if self.awaited else ''}"


def delivered(database: PostgresDatabase, source: CaptureSource) -> Delivered | None:
    """Whether the rows from before the slot are in the topic, and in which."""
    with database.connect() as session, session.cursor() as asked:
        return _delivered(asked, source)


def mark_delivered(database: PostgresDatabase, source: CaptureSource, now: Delivered) -> None:
    """Remember that the snapshot need not be taken again, as long as the topic is the one with this identity."""
    with database.connect() as session, session.cursor() as asked:
        _remember(asked, source, now)


def _delivered(asked: cursor, source: CaptureSource) -> Delivered | None:
    asked.execute(
        "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s", (source.slot,)
    )
    ((said,),) = asked.fetchall() or [(None,)]
    return Delivered.parse(said) if _slot_exists(asked, source) else None


def _remember(asked: cursor, source: CaptureSource, now: Delivered) -> None:
    asked.execute(SQL("COMMENT ON PUBLICATION {} IS {}").format(Identifier(source.slot), Literal(str(now))))


def status(database: PostgresDatabase, source: CaptureSource) -> CaptureStatus | None:
    """The slot, or None where there is none."""
    with database.connect() as session, session.cursor() as asked:
        asked.execute(_STATUS, (source.slot,))
        found = asked.fetchone()
    if found is None:
        return None
    active, wal_status, confirmed, retained = found
    return CaptureStatus(bool(active), int(confirmed or 0), int(retained or 0), wal_status == "lost")


def emit_heartbeat(database: PostgresDatabase) -> int:
    """Commit an empty transaction that every slot's reader sees. Returns a position that its commit is behind."""
    with database.connect() as session, session.cursor() as asked:
        asked.execute(_HEARTBEAT)
        ((position,),) = asked.fetchall()
    return int(position)


def wait_until_free(
    database: PostgresDatabase, source: CaptureSource, timeout: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Until the server knows that the slot's last reader, whose connection was closed, is gone; `timeout` seconds at most.

    One that is read then is read by somebody else, which whoever starts to read it is told.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and (now := status(database, source)) is not None and now.active:
        sleep(0.05)


def wait_until_captured(
    database: PostgresDatabase,
    source: CaptureSource,
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until everything that was committed before this call is in the topic. Raises `CaptureBehind` after `timeout` seconds.

    The slot is looked at again and again: no call fails that `tenacity` could repeat, and a slot that is lost ends the wait.
    """
    target = emit_heartbeat(database)
    deadline = time.monotonic() + timeout
    while (now := status(database, source)) is None or now.confirmed_lsn < target or _not_whole(database, source):
        if now is not None and now.is_lost:
            raise SlotLost(source)
        if time.monotonic() > deadline:
            raise CaptureBehind(source, timeout)
        sleep(0.05)


def drop(database: PostgresDatabase, source: CaptureSource) -> None:
    """End the slot's reader, and remove slot and publication; nothing where there are none."""
    with database.connect() as session, session.cursor() as asked:
        _drop_slot(asked, source)
        asked.execute(SQL("DROP PUBLICATION IF EXISTS {}").format(Identifier(source.slot)))


def forget_slot(database: PostgresDatabase, source: CaptureSource) -> None:
    """Remove a slot whose snapshot never arrived, so that it can be taken again."""
    with database.connect() as session, session.cursor() as asked:
        _drop_slot(asked, source)


def _drop_slot(asked: cursor, source: CaptureSource) -> None:
    asked.execute(
        "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = %s AND active",
        (source.slot,),
    )
    asked.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (source.slot,)
    )


def _slot_exists(asked: cursor, source: CaptureSource) -> bool:
    asked.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (source.slot,))
    return asked.fetchone() is not None


def _filled(asked: cursor, source: CaptureSource) -> bool:
    """Whether one of the tables has rows."""
    for table in source.tables:
        asked.execute(SQL("SELECT EXISTS (SELECT FROM {})").format(_table(table)))
        if asked.fetchone() == (True,):
            return True
    return False


def _table(name: str) -> Identifier:
    return Identifier(*name.split("."))
