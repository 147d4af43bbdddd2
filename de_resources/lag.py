"""How far behind, as numbers: the worst values over partitions, and whether what waits is read before it is removed.

Pattern: Lag Detector - the arithmetic that topics, tables and databases have in common. Nothing is contacted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The worst of some values: an average would hide one partition that stands still among many that do not.

    Percentiles are by nearest rank: each is a value that a partition has. Without values all of it is 0.
    """

    max: float = 0.0
    p95: float = 0.0
    p90: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of the values of all partitions."""
        ordered = sorted(values)
        return cls(ordered[-1], nearest_rank(ordered, 0.95), nearest_rank(ordered, 0.90)) if ordered else cls()


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ascending values that at least this share of them does not exceed."""
    # 0.95 times 20 is 19.000000000000004 to a computer, and the rank would be one too high.
    return ordered[max(math.ceil(round(share * len(ordered), 9)), 1) - 1]


@dataclass(frozen=True)
class Backlog:
    """What waits for a reader. `unread` in records, bytes or versions; `age` of the oldest of it in seconds."""

    unread: float
    age: float


@dataclass(frozen=True)
class Speed:
    """How many a reader takes, and how many are added, per second: in the unit of the backlog."""

    reads: float
    writes: float


@dataclass(frozen=True)
class Outlook:
    """Seconds until the reader is level with the writer, and until what it has not read is removed; None: not at this speed."""

    caught_up: float | None
    lost: float | None


def outlook(backlog: Backlog, speed: Speed, kept: float | None) -> Outlook:
    """What becomes of a backlog if reader and writer go on as fast as they did.

    `kept`: for how many seconds a record stays; None: for ever. Two stretches lie before the reader. The backlog holds `unread`
    records of `age` seconds; behind it, records come at the writer's speed. In each, the age of what is read next is
    a straight line, so that the moment at which it passes `kept` can be computed.
    """
    if not backlog.unread:
        return Outlook(0.0, None)
    ahead = speed.reads - speed.writes
    caught_up = backlog.unread / ahead if ahead > 0 else None
    return Outlook(caught_up, None if kept is None else _lost(backlog, speed, kept))


def _lost(backlog: Backlog, speed: Speed, kept: float) -> float | None:
    if backlog.age >= kept:
        return 0.0
    if speed.reads <= 0:
        return kept - backlog.age
    through = backlog.unread / speed.reads
    # Reading takes `through` seconds for what was written in `age` seconds.
    slower = 1 - backlog.age / through
    if slower > 0 and (passes := (kept - backlog.age) / slower) <= through:
        return passes
    # What is read next was then written now: it is `through` seconds old.
    slower = 1 - speed.reads / speed.writes if speed.writes > 0 else 0
    return through + (kept - through) / slower if slower > 0 else None
