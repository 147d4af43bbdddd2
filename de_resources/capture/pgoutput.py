"""PostgreSQL's logical replication messages, decoded. Pure: bytes in, dataclasses out.

Source: PostgreSQL manual, "Logical Replication Message Formats", protocol version 1, text format of values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from de_resources.errors import PermanentError

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class UnknownMessage(PermanentError):
    """A message that the protocol, in the version that was asked for, does not have."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"The server sent a replication message of kind `{kind}`, which is not part of protocol version 1. Nothing was "
            "confirmed, so nothing is lost: check the server's version."
        )


class Unchanged(Enum):
    """The place of a large value that an update did not touch and that the server therefore did not send."""

    VALUE = "unchanged"


Value = str | Unchanged | None
Row = Mapping[str, Value]


@dataclass(frozen=True)
class Begin:
    """A transaction begins that committed at `lsn`."""

    lsn: int
    commit_time: datetime
    tx_id: int


@dataclass(frozen=True)
class Commit:
    """The transaction ends; `end_lsn` is the position that may be confirmed once it is safe elsewhere."""

    lsn: int
    end_lsn: int


@dataclass(frozen=True)
class Relation:
    """A table's shape from now on: column names with the object ids of their types; `identity` names an old row."""

    id: int
    name: str
    columns: tuple[tuple[str, int], ...]
    identity: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RowChange:
    """One row's change: `before` where the server sent it, `after` unless the row was deleted."""

    relation: Relation
    operation: str
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Truncate:
    """All rows of these tables were removed at once."""

    relations: tuple[Relation, ...]


@dataclass(frozen=True)
class Message:
    """What an application said by `pg_logical_emit_message`."""

    prefix: str
    content: bytes


Decoded = Begin | Commit | Relation | RowChange | Truncate | Message


class Decoder:
    """Decodes the messages of one stream in order: rows refer to the relation that was described last."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}

    def decode(self, payload: bytes) -> Decoded | None:
        """The message, or None for what only concerns other consumers (types, origins). Raises `UnknownMessage`."""
        reader, kind = _Reader(payload), chr(payload[0])
        reader.skip(1)
        match kind:
            case "B":
                lsn, microseconds, tx_id = reader.take("!QqI")
                return Begin(lsn, _EPOCH + timedelta(microseconds=microseconds), tx_id)
            case "C":
                _flags, lsn, end_lsn, _time = reader.take("!BQQq")
                return Commit(lsn, end_lsn)
            case "R":
                return self._relation(reader)
            case "I" | "U" | "D":
                return self._change(kind, reader)
            case "T":
                count, _options = reader.take("!IB")
                return Truncate(tuple(self._relations[reader.take("!I")[0]] for _ in range(count)))
            case "M":
                reader.take("!BQ")
                prefix = reader.text()
                (length,) = reader.take("!I")
                return Message(prefix, reader.bytes(length))
            case "Y" | "O":
                return None
        raise UnknownMessage(kind)

    def _relation(self, reader: _Reader) -> Relation:
        (id_,) = reader.take("!I")
        name = f"{reader.text() or 'pg_catalog'}.{reader.text()}"
        _identity, count = reader.take("!BH")
        columns, identity = [], set()
        for _ in range(count):
            (flags,) = reader.take("!B")
            column = reader.text()
            type_id, _modifier = reader.take("!Ii")
            columns.append((column, type_id))
            if flags & 1:
                identity.add(column)
        self._relations[id_] = relation = Relation(id_, name, tuple(columns), frozenset(identity))
        return relation

    def _change(self, kind: str, reader: _Reader) -> RowChange:
        relation = self._relations[reader.take("!I")[0]]
        rows: dict[str, Row] = {}
        while not reader.at_end:
            mark = chr(reader.take("!B")[0])
            row = self._row(relation, reader)
            # A key's old row has nulls where nothing was sent: they are not data.
            rows[mark] = {c: v for c, v in row.items() if c in relation.identity} if mark == "K" else row
        return RowChange(relation, kind, rows.get("O", rows.get("K")), rows.get("N"))

    @staticmethod
    def _row(relation: Relation, reader: _Reader) -> Row:
        (count,) = reader.take("!H")
        return {relation.columns[place][0]: reader.value() for place in range(count)}


class _Reader:
    """A cursor over a message."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._place = payload, 0

    @property
    def at_end(self) -> bool:
        return self._place >= len(self._payload)

    def skip(self, count: int) -> None:
        self._place += count

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._payload, self._place)
        self._place += struct.calcsize(layout)
        return values

    def bytes(self, length: int) -> bytes:
        self._place += length
        return self._payload[self._place - length : self._place]

    def text(self) -> str:
        end = self._payload.index(0, self._place)
        found = self._payload[self._place : end].decode()
        self._place = end + 1
        return found

    def value(self) -> Value:
        match chr(self.take("!B")[0]):
            case "n":
                return None
            case "u":
                return Unchanged.VALUE
            case _:
                return self.bytes(self.take("!I")[0]).decode()
