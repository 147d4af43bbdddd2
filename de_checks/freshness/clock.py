"""The clock of freshness checks: a parameter, so that a test decides what time it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from de_resources.moments import duration as duration

Clock = Callable[[], datetime]
"""Returns the present moment as an aware datetime."""


def utc_now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)
