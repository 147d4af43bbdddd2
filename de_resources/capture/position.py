"""How far a topic has come: the newest change that it holds and whose it is, from the headers of the last records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from de_resources.capture.envelope import Position
from de_resources.capture.history import DatabaseId
from de_resources.errors import PermanentError
from de_resources.kafka.topic import Record, Topic

_FIRST_LOOK = 16


class ForeignRecord(PermanentError):
    """A topic of changes holds something that no capture wrote."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        super().__init__(
            f"The record at offset {offset} of `{topic}`, partition {partition}, was not written by a capture: it does not say "
            "its position. Let nobody else produce there, or capture into a topic of its own."
        )


@dataclass(frozen=True)
class Reached:
    """The newest position in the topic, and in which database's log it is.

    No position: the topic holds no change yet. No database: its newest record was written by a version that did not say.
    """

    position: Position | None = None
    database: DatabaseId | None = None


def reached(client_config: Mapping[str, str], topic: str) -> Reached:
    """Look at the end of every partition; committed records only.

    Raises `TopicMissing`, `ForeignRecord`, `ServiceUnavailable`.
    """
    there = Topic(client_config, topic)
    begins, ends = there.begins(), there.ends()
    lasts = [_last(there, partition, begins[partition], end) for partition, end in ends.items()]
    newest = max((last for last in lasts if last is not None), key=lambda last: last[0], default=None)
    return Reached(*newest) if newest else Reached()


def _last(topic: Topic, partition: int, low: int, high: int) -> tuple[Position, DatabaseId | None] | None:
    """Of the last committed record. Ends of transactions take offsets too, so it is searched for backwards."""
    look = _FIRST_LOOK
    while high > low:
        begin = max(low, high - look)
        records = [item for item in topic.read({partition: begin}) if isinstance(item, Record)]
        if records:
            return _place(topic, records[-1])
        if begin == low:
            return None
        look *= 8
    return None


def _place(topic: Topic, record: Record) -> tuple[Position, DatabaseId | None]:
    headers = dict(record.headers or [])
    try:
        position = Position(int(headers["commit_lsn"] or b""), int(headers["sequence"] or b""))
        return position, DatabaseId.of(headers)
    except (KeyError, ValueError):
        raise ForeignRecord(topic.topic, record.partition, record.offset) from None
