"""Moments that every reader of a table can hold, and that something on the web can have happened at; durations for people."""

from __future__ import annotations

from datetime import UTC, datetime

# Nanoseconds since 1970 in 64 bits, as pandas keeps them, end in April 2262.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)
CONCEIVABLE = {"min_value": EARLIEST, "max_value": LATEST, "include_max": False}
"""The same as what a contract says of a column: `pa.Field(in_range=CONCEIVABLE)`."""
INCONCEIVABLE = "is before 1970 or after 2261"


def is_conceivable(moment: datetime) -> bool:
    """Whether an aware moment lies between the two; one that has no form in UTC does not."""
    try:
        return EARLIEST <= moment.astimezone(UTC) < LATEST
    except OverflowError:
        return False


def duration(seconds: float) -> str:
    """A duration for people, in its two largest units: `2 d 3 h`, `5 min 10 s`."""
    rest, parts = max(0, round(seconds)), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
