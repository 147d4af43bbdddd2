"""Bulk delivery that keeps the order of every key, to a receiver that may take only part of a batch.

Pattern: Bin Pack Orderer. A bin is what one request carries. No bin holds two records of one key, and a bin is not sent
before everything of the one before it has an answer that lasts: whatever part of a bin is rejected and sent again, no later
record of the same key is on its way. What is sent again is the rejected part, never the whole bin.

Bins take the keys with the most records left first, so that their number is the least that there can be: as many as the longest
key has records, or as full bins are needed for all of them, whichever is more. Source: T. C. Hu, *Parallel Sequencing and
Assembly Line Problems* (1961), of which chains of equal jobs are the simplest case. A limit in bytes can add some.

A record that is refused for good is given up, and the later ones of its key are *held*: this delivery does not send them. Who
sends them all the same (`holds=False`) leaves a gap in the sequence that the receiver can see.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from de_resources.delivery.errors import DeliveryStalled
from de_resources.delivery.records import Answer, Answers, Outcome, OutgoingRecord, SendMany

Wait = Callable[[float], None]
Bin = list[OutgoingRecord]
TOO_LARGE = Answer(Outcome.REFUSED, "larger than the receiver takes")
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class BinLimits:
    """What the receiver takes in one request at most."""

    records: int
    bytes: int = 2**63 - 1

    def __post_init__(self) -> None:
        if self.records < 1 or self.bytes < 1:
            raise ValueError(f"a request of {self.records} records and {self.bytes} bytes carries nothing")


@dataclass(frozen=True)
class Patience:
    """How often a record is sent before it counts as stuck, and the pause before it is sent again.

    Pauses double from `first_pause` seconds on, and are drawn between nothing and that, so that several senders do not come
    back together. Source: AWS Architecture Blog, "Exponential Backoff And Jitter" (full jitter).
    """

    attempts: int = 10
    first_pause: float = 0.05
    wait: Wait = time.sleep

    def pause(self, attempt: int) -> None:
        """Wait before attempt `attempt + 1`."""
        self.wait(self.seconds(attempt))

    def seconds(self, attempt: int) -> float:
        """A pause before attempt `attempt + 1`, drawn anew by each call."""
        longest = min(_LONGEST_PAUSE, self.first_pause * 2 ** (attempt - 1))
        return random.uniform(0, longest)  # noqa: S311 - a pause, no secret


def pack(records: Iterable[OutgoingRecord], limits: BinLimits) -> Iterator[Bin]:
    """The records in bins, each key's in the order in which they come. Every record is in exactly one bin.

    A record that alone exceeds the bytes has a bin for itself.
    """
    lines: dict[str, deque[OutgoingRecord]] = {}
    for record in records:
        lines.setdefault(record.key, deque()).append(record)
    # The number of the first record makes the order total: the same records always have the same bins.
    waiting = [(-len(line), line[0].number, key) for key, line in lines.items()]
    heapify(waiting)
    while waiting:
        bin_, taken = _next_bin(waiting, lines, limits)
        yield bin_
        for key in taken:
            if line := lines[key]:
                heappush(waiting, (-len(line), line[0].number, key))


def _next_bin(
    waiting: list[tuple[int, int, str]], lines: dict[str, deque[OutgoingRecord]], limits: BinLimits
) -> tuple[Bin, list[str]]:
    """The heads of the longest lines, as many as fit, and their keys, which are no longer among those that wait."""
    bin_: Bin = []
    taken: list[str] = []
    size = 0
    while waiting and len(bin_) < limits.records:
        head = lines[waiting[0][2]][0]
        if bin_ and size + head.size > limits.bytes:
            break
        _, _, key = heappop(waiting)
        bin_.append(lines[key].popleft())
        taken.append(key)
        size += head.size
    return bin_, taken


def deliver(
    records: Sequence[OutgoingRecord],
    send: SendMany,
    limits: BinLimits,
    *,
    patience: Patience | None = None,
    holds: bool = True,
) -> Iterator[Answers]:
    """Send the records in bins, and yield what became of those of each request before the next request is made.

    Whoever notes the answers as they come knows, after a crash, of all requests but the last one. Records that are held have
    no answer. `records` are sent in bins of `pack`; of a key whose record is refused nothing more is sent where `holds`.

    Raises:
        DeliveryStalled: records were rejected in each of the attempts; their keys, and the bins behind, were not sent.
        Whatever `send` raises; nothing is sent after it.
    """
    patience = patience or Patience()
    held: set[str] = set()
    for bin_ in pack(records, limits):
        left = [record for record in bin_ if record.key not in held]
        attempt = 0
        while left:
            attempt += 1
            answers = _answers(left, send, limits)
            yield answers
            if holds:
                held |= {record.key for record, answer in answers.items() if answer.outcome is Outcome.REFUSED}
            left = [record for record in left if answers[record].outcome is Outcome.REJECTED]
            if left and attempt == patience.attempts:
                raise DeliveryStalled([record.key for record in left], attempt)
            if left:
                patience.pause(attempt)


def _answers(left: Sequence[OutgoingRecord], send: SendMany, limits: BinLimits) -> Answers:
    """One request; what no request can carry is not asked about."""
    if len(left) == 1 and left[0].size > limits.bytes:
        return {left[0]: TOO_LARGE}
    return send(left)
