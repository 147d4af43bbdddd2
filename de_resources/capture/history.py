"""Whose log a position is in: a number in the write-ahead log means nothing in another database, or another history of one.

A database that is rebuilt begins its log again, so that its positions are lower than those that the topic knows; one that was
taken back to an earlier state goes on from there on a new *timeline*. Either way its changes would be taken for known ones,
left out, and confirmed. So every record says where it comes from, and a capture compares before it reads.

Source: PostgreSQL manual, "Streaming Replication Protocol", `IDENTIFY_SYSTEM` and `TIMELINE_HISTORY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg2.sql import SQL, Literal

from de_resources.capture.envelope import Position
from de_resources.capture.source import CaptureSource
from de_resources.errors import PermanentError

_SYSTEM, _TIMELINE = "system", "timeline"


class AnotherDatabase(PermanentError):
    """A database whose log does not go on from what the topic holds."""

    def __init__(self, source: CaptureSource, why: str) -> None:
        self.source, self.why = source, why
        super().__init__(
            f"The topic `{source.topic}` holds changes of another history than this database's: {why}. It was rebuilt or taken "
            "back, so their positions cannot be compared. Nothing was read and nothing was confirmed, so nothing is lost. To "
            f"begin again: `de capture drop {source.name}`, delete the topic and what was filled from it, checkpoints "
            "included, then `de up`: the capture begins with a snapshot."
        )


@dataclass(frozen=True)
class DatabaseId:
    """A database system, made by `initdb` or a copy of one, and which of its histories.

    Two histories may have the same number: of two copies that are promoted, both become timeline 2. So the position at which
    the timeline began belongs to it.
    """

    system: str
    timeline: int = 1
    began: int = 0

    @property
    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """As headers of a record."""
        return [(_SYSTEM, self.system.encode()), (_TIMELINE, f"{self.timeline}@{as_lsn(self.began)}".encode())]

    @classmethod
    def of(cls, headers: Mapping[str, str | bytes | None]) -> DatabaseId | None:
        """From the headers of a record; None: it was written by a version that did not say. Raises ValueError."""
        system, timeline = _text(headers.get(_SYSTEM)), _text(headers.get(_TIMELINE))
        if not system or not timeline:
            return None
        number, _, began = timeline.partition("@")
        return cls(system, int(number), parse_lsn(began))

    def __str__(self) -> str:
        """For people."""
        since = f" since {as_lsn(self.began)}" if self.began else ""
        return f"system {self.system}, timeline {self.timeline}{since}"


@dataclass(frozen=True)
class TimelineHistory:
    """Which database this is, how far its log goes, and the timelines that it descends from, with where it left each."""

    id: DatabaseId
    end: int
    left: Mapping[DatabaseId, int] = field(default_factory=dict)

    def require_continues(self, source: CaptureSource, position: Position, known: DatabaseId | None) -> None:
        """Raises `AnotherDatabase` unless this history holds the change at `position`.

        Where nobody knows whose position it is, it is believed as long as the log goes that far.
        """
        limits = {**self.left, self.id: self.end + 1}
        if known not in (None, *limits):
            raise AnotherDatabase(source, f"they are of {known}, this is {self.id}")
        limit = limits[known or self.id]
        if position.commit_lsn >= limit:
            raise AnotherDatabase(
                source,
                f"they go to {as_lsn(position.commit_lsn)}, where this one ({self.id}) went only to {as_lsn(limit)}",
            )


def identify(replication: Any) -> TimelineHistory:
    """Ask over a replication connection's cursor."""
    replication.execute("IDENTIFY_SYSTEM")
    system, timeline, end, _database = replication.fetchone()
    left, began = dict[DatabaseId, int](), 0
    for number, switched in _timelines(replication, int(timeline)):
        left[DatabaseId(str(system), number, began)] = switched
        began = switched
    return TimelineHistory(DatabaseId(str(system), int(timeline), began), parse_lsn(end), left)


def parse_lsn(text: str) -> int:
    """`16/B374D848` as a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def as_lsn(position: int) -> str:
    """A number as `16/B374D848`."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def _timelines(replication: Any, timeline: int) -> list[tuple[int, int]]:
    """The earlier timelines, oldest first, with the position at which each was left."""
    if timeline == 1:
        return []
    replication.execute(SQL("TIMELINE_HISTORY {}").format(Literal(timeline)))
    _name, content = replication.fetchone()
    lines = [line.split() for line in _text(content).splitlines() if line.strip() and not line.startswith("#")]
    return [(int(words[0]), parse_lsn(words[1])) for words in lines]


def _text(value: str | bytes | memoryview | None) -> str:
    return value if isinstance(value, str) else bytes(value or b"").decode()
