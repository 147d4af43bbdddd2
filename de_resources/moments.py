"""Moments that every reader of a table can hold, and that something on the web can have happened at."""

from __future__ import annotations

from datetime import UTC, datetime

# Nanoseconds since 1970 in 64 bits, as pandas keeps them, end in April 2262.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)
INCONCEIVABLE = "is before 1970 or after 2261"


def is_conceivable(moment: datetime) -> bool:
    """Whether an aware moment lies between the two; one that has no form in UTC does not."""
    try:
        return EARLIEST <= moment.astimezone(UTC) < LATEST
    except OverflowError:
        return False
