"""How far the capture is behind the database, in bytes of its log; and how much the server still lets it be behind.

Pattern: Lag Detector. Bytes are of the whole server's log, of which a table has its part: a capture that has confirmed
everything may be a few behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from de_resources.capture.source import CaptureSource
from de_resources.postgres import PostgresDatabase

_LAG = """
    SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint, (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint, safe_wal_size,
           wal_status = 'lost', active
    FROM pg_replication_slots WHERE slot_name = %s AND database = current_database()
"""


@dataclass(frozen=True)
class SlotLag:
    """Where the log is, what was confirmed, and `room`: the bytes until the slot is given up; None: it never is."""

    newest: int
    confirmed: int | None
    room: int | None
    is_lost: bool
    is_read: bool

    @property
    def unread(self) -> int:
        """Bytes of log that the capture has not confirmed. Negative: the slot is of another history of the database."""
        return self.newest - (self.confirmed or 0)


def slot_lag(database: PostgresDatabase, source: CaptureSource) -> SlotLag | None:
    """Measure the capture, by one question; None where it has no slot. Raises `ServiceUnavailable`."""
    with database.connect() as session, session.cursor() as asked:
        asked.execute(_LAG, (source.slot,))
        found = asked.fetchone()
    if found is None:
        return None
    newest, confirmed, room, is_lost, is_read = found
    return SlotLag(int(newest), confirmed, room, bool(is_lost), bool(is_read))
