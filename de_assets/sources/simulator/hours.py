"""Hours, and how visits spread over them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np

from de_assets.sources.landing import full_hour

_RHYTHM = (2, 1, 1, 1, 1, 2, 3, 5, 7, 8, 9, 9, 8, 8, 9, 9, 8, 7, 7, 8, 8, 7, 5, 3)
_WEEKEND = 0.6


def hours_between(start: datetime, end: datetime) -> list[datetime]:
    """Full hours of `[start, end)` in UTC; both must be full hours."""
    first, last = full_hour(start), full_hour(end)
    return [first + timedelta(hours=n) for n in range((last - first) // timedelta(hours=1))]


def spread(total: int, hours: Sequence[datetime]) -> list[int]:
    """Share `total` visits among hours by time of day (UTC), fewer at week-ends; the parts sum to `total` exactly."""
    if not hours:
        return []
    weights = np.array([_RHYTHM[hour.hour] * (_WEEKEND if hour.weekday() >= 5 else 1.0) for hour in hours])
    exact = total * weights / weights.sum()
    counts = np.floor(exact).astype(int)
    for index in np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]:
        counts[index] += 1
    return [int(count) for count in counts]
