"""The clock of freshness checks: a parameter, so that a test decides what time it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Returns the present moment as an aware datetime."""


def utc_now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)


def duration(seconds: float) -> str:
    """A duration for people, in its two largest units: `2 d 3 h`, `5 min 10 s`."""
    rest, parts = max(0, round(seconds)), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
