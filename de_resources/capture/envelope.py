"""A change as a record of a topic: key and value in JSON, in the shape that Debezium made common.

Key: the row's primary key. Value: `op` (r snapshot, c, u, d, t truncate), `before`, `after`, `source`. Values are JSON's types
for booleans and numbers, ISO 8601 for times, text for the rest; a large value that was not sent is absent and named in
`source.unchanged`. `(commit_lsn, sequence)` is the identity of a change, and their order. A deletion is followed by a
tombstone, so that compaction may forget the row. A snapshot begins with a truncation, for it is all that there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from de_resources.capture.pgoutput import Relation, Row, RowChange, Unchanged, Value

_BOOLEAN, _INTEGERS, _FLOATS = 16, {20, 21, 23}, {700, 701}
_TIMES = {1114, 1184}
_UTC_OFFSET = "+00"


@dataclass(frozen=True, order=True)
class Position:
    """Where a change stands: the commit's position in the write-ahead log, and its number within the transaction."""

    commit_lsn: int
    sequence: int

    @property
    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """By which a restarted capture finds out how far it had come, tombstones included."""
        return [("commit_lsn", str(self.commit_lsn).encode()), ("sequence", str(self.sequence).encode())]


@dataclass(frozen=True)
class TransactionOrigin:
    """The transaction of a change. `event_time` is what the application said the time was, if it did."""

    commit_lsn: int
    commit_time: datetime
    tx_id: int
    event_time: str | None = None
    snapshot: bool = False


@dataclass(frozen=True)
class ChangeRecord:
    """What is produced; no `value` is a tombstone."""

    position: Position
    key: bytes
    value: bytes | None


def records(change: RowChange, key: Sequence[str], origin: TransactionOrigin, sequence: int) -> Iterator[ChangeRecord]:
    """The records of one change, numbered from `sequence`. A change of the primary key is a deletion and a creation."""
    before, after = change.before, change.after
    if after is None:
        yield from _deletion(change.relation, before or {}, key, origin, sequence)
        return
    full = _completed(after, before)
    moved = before is not None and any(before.get(c, full.get(c)) != full.get(c) for c in key)
    if moved and before is not None:
        yield from _deletion(change.relation, before, key, origin, sequence)
        yield _record("c", change.relation, None, full, key, origin, sequence + 1)
        return
    operation = "c" if change.operation == "I" else "u"
    yield _record(operation, change.relation, before, full, key, origin, sequence)


def snapshot_record(
    relation: Relation, row: Row, key: Sequence[str], origin: TransactionOrigin, sequence: int
) -> ChangeRecord:
    """A row that was there before the capture began."""
    return _record("r", relation, None, row, key, replace(origin, snapshot=True), sequence)


def truncation(relation: Relation, origin: TransactionOrigin, sequence: int) -> ChangeRecord:
    """All rows of a table that were told before are gone; keyed by the table. A snapshot begins with one."""
    key = json.dumps({"truncated": relation.name}).encode()
    return ChangeRecord(
        Position(origin.commit_lsn, sequence), key, _value("t", relation, None, None, origin, sequence, [])
    )


def _deletion(
    relation: Relation, before: Row, key: Sequence[str], origin: TransactionOrigin, sequence: int
) -> Iterator[ChangeRecord]:
    deleted = _record("d", relation, before, None, key, origin, sequence)
    yield deleted
    yield replace(deleted, value=None)


def _completed(after: Row, before: Row | None) -> Row:
    """Large values that were not sent, from the old image where it has them."""
    known = before or {}
    return {c: known.get(c, v) if v is Unchanged.VALUE else v for c, v in after.items()}


def _record(
    operation: str,
    relation: Relation,
    before: Row | None,
    after: Row | None,
    key: Sequence[str],
    origin: TransactionOrigin,
    sequence: int,
) -> ChangeRecord:
    identified = after if after is not None else before or {}
    types = dict(relation.columns)
    identity = json.dumps({c: _plain(identified.get(c), types[c]) for c in key})
    unchanged = [c for c, v in (after or {}).items() if v is Unchanged.VALUE]
    value = _value(operation, relation, before, after, origin, sequence, unchanged)
    return ChangeRecord(Position(origin.commit_lsn, sequence), identity.encode(), value)


def _value(
    operation: str,
    relation: Relation,
    before: Row | None,
    after: Row | None,
    origin: TransactionOrigin,
    sequence: int,
    unchanged: list[str],
) -> bytes:
    source: dict[str, Any] = {
        "table": relation.name,
        "tx_id": origin.tx_id,
        "commit_lsn": origin.commit_lsn,
        "sequence": sequence,
        "commit_time": origin.commit_time.isoformat(),
        "event_time": origin.event_time,
        "snapshot": origin.snapshot,
        **({"unchanged": unchanged} if unchanged else {}),
    }
    envelope = {
        "op": operation,
        "before": _image(relation, before),
        "after": _image(relation, after),
        "source": source,
    }
    return json.dumps(envelope).encode()


def _image(relation: Relation, row: Row | None) -> Mapping[str, Any] | None:
    if row is None:
        return None
    types = dict(relation.columns)
    return {c: _plain(v, types[c]) for c, v in row.items() if v is not Unchanged.VALUE}


def _plain(value: Value, type_id: int) -> Any:
    if value is None or isinstance(value, Unchanged):
        return None
    if type_id == _BOOLEAN:
        return value == "t"
    if type_id in _INTEGERS:
        return int(value)
    if type_id in _FLOATS and value.lstrip("-").lower() not in ("nan", "infinity"):
        return float(value)
    if type_id in _TIMES and value[:1].isdigit():
        iso = value.replace(" ", "T", 1)
        return f"{iso}:00" if iso.endswith(_UTC_OFFSET) else iso
    return value
