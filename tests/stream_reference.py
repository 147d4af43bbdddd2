"""A stream made up, and what has to be said of it, computed in plain Python: one record after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import NamedTuple

from de_assets.transforms.error_management.stream_judge import RecordRule
from de_assets.transforms.error_management.watermark import Across, Future


class Record(NamedTuple):
    """`arrived` and `event` in seconds; no event: malformed."""

    source: int
    position: int
    arrived: int
    event: int | None
    key: str | None


@dataclass
class _Source:
    tracked: float | None = None
    seen: float | None = None


def verdicts(records: Sequence[Record], rule: RecordRule) -> tuple[dict[tuple[int, int], str], dict[int, float | None]]:
    """The verdict on each record by source and position, and the watermark that judged each batch."""
    lateness = rule.lateness
    allowed, skew = lateness.allowed.total_seconds(), lateness.skew.total_seconds()
    idle, remember = lateness.idle_after.total_seconds(), rule.remember.total_seconds()
    order = sorted(records, key=lambda r: (r.arrived, r.source, r.position))
    sources = {s: _Source(seen=order[0].arrived) for s in lateness.sources}
    watermark: float | None = None
    memory: dict[str, float] = {}
    found: dict[tuple[int, int], str] = {}
    judged_by: dict[int, float | None] = {}
    for batch, members in groupby(order, key=lambda r: r.arrived):
        if judged_by:
            reached = _combined(sources, batch, idle, lateness.across)
            if reached is not None:
                watermark = max(reached - allowed, watermark if watermark is not None else reached - allowed)
        judged_by[batch] = watermark
        for record in members:
            verdict = "malformed"
            if record.event is not None and record.key is not None:
                latest = min(record.event, batch + skew)
                until = max(latest, watermark if watermark is not None else latest) + remember
                known = memory.get(record.key)
                if known is not None and (watermark is None or known > watermark):
                    verdict = "duplicates"
                elif watermark is not None and record.event < watermark:
                    verdict = "late"
                else:
                    verdict = "future" if record.event > batch + skew else "valid"
                memory[record.key] = max(until, known if known is not None else until)
                if lateness.future == Future.CAPPED or record.event <= batch + skew:
                    source = sources.setdefault(record.source, _Source())
                    # Only seen by the batches after this one: the watermark above was computed before.
                    source.tracked = max(latest, source.tracked if source.tracked is not None else latest)
                    source.seen = batch
            found[record.source, record.position] = verdict
    return found, judged_by


def _combined(sources: dict[int, _Source], batch: int, idle: float, across: Across) -> float | None:
    if across == Across.MAX:
        return max((s.tracked for s in sources.values() if s.tracked is not None), default=None)
    alive = [s.tracked for s in sources.values() if s.seen is not None and batch - s.seen <= idle]
    known = [tracked for tracked in alive if tracked is not None]
    return min(known, default=None) if len(known) == len(alive) else None


def simulated(seed: int, count: int, start: int) -> list[Record]:
    """Three sources with gaps, disorder, copies, late and future events, broken records, and moments they share."""
    random = Random(seed)  # noqa: S311 - the same stream every time
    now, positions, stream = start, Counter[int](), list[Record]()
    for n in range(count):
        now += random.choice((0, 0, 1, 20, 60, 400))
        source = random.choice((0, 0, 0, 1, 1, 2))
        event, key = now - random.choice((0, 5, 60, 900, 4000)), f"k{n}"
        fate = random.random()
        if fate < 0.2 and stream:
            earlier = random.choice(stream[-25:])
            event, key = earlier.event or event, earlier.key or key
        elif fate < 0.25:
            event = now + 86400 * random.randint(1, 9)
        broken = fate > 0.95
        record = Record(source, positions[source], now, None if broken else event, None if broken else key)
        positions[source] += 1
        stream.append(record)
    return stream


def cuts(stream: Sequence[Record], seed: int, parts: int) -> list[list[Record]]:
    """The stream in pieces, cut anywhere in the order of arrival, also between records of one moment."""
    order = sorted(stream, key=lambda r: (r.arrived, r.source, r.position))
    at = sorted(Random(seed).sample(range(1, len(order)), parts - 1))  # noqa: S311
    return [order[i:j] for i, j in zip([0, *at], [*at, len(order)], strict=True)]
