"""What is delivered, and what a receiver answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record of a stream. Records of one `key` have an order: `sequence` counts them from 1, without a gap.

    `number` is the record's place in the whole stream, `body` the text that is sent. `id` is the idempotency key: the same for
    every attempt, and for no other record, of this stream or another one.
    """

    stream: str
    number: int
    key: str
    sequence: int
    body: str

    @property
    def id(self) -> str:
        """The idempotency key."""
        return f"{self.stream}-{self.number}"

    @property
    def size(self) -> int:
        """Bytes of key and body, as a receiver counts them."""
        return len(self.key.encode()) + len(self.body.encode())


class Outcome(StrEnum):
    """What became of a record."""

    ACCEPTED = "accepted"
    """The receiver has it for good."""
    REPEATED = "repeated"
    """The receiver had it already, from an attempt whose answer was lost: as good as accepted, and counted."""
    REJECTED = "rejected"
    """Not now: the same record may be accepted when it is sent again."""
    REFUSED = "refused"
    """Never: the record is at fault."""

    @property
    def is_arrived(self) -> bool:
        """Whether the receiver has the record."""
        return self in (Outcome.ACCEPTED, Outcome.REPEATED)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver says of one record: its receipt where it has arrived, the reason where it has not."""

    outcome: Outcome
    said: str = ""


Answers = Mapping[OutgoingRecord, Answer]
"""What became of the records of one request."""

SendMany = Callable[[Sequence[OutgoingRecord]], Answers]
"""Sends a bin and returns an answer for every record of it. Raises what it cannot tell: then any of them may have arrived."""

SendOne = Callable[[OutgoingRecord], Answer]
"""Sends a record and waits for its answer."""
