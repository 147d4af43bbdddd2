"""How far a landed hour departs from clean data: exact rates, not probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from de_resources.errors import PermanentError


class ImpossibleRatesError(PermanentError):
    """Rates that no hour can fulfil."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"These irregularities are impossible: {reason}. Lower the rates.")


@dataclass(frozen=True)
class SchemaChange:
    """From `since` (event time) on, every visit carries a further top-level number named `field`."""

    since: datetime
    field: str


@dataclass(frozen=True)
class Irregularities:
    """Rates per visits of an hour: one of n visits gets exactly `round(rate * n)` of each defect, randomly placed.

    A record has at most one of late, future, missing, malformed, out of order and duplicated (only in hours of a few
    visits may this leave fewer than the exact number); the hot user's visits may be any. Raises
    `ImpossibleRatesError`.
    """

    duplicates: float = 0.0
    """Exact copies that come in addition, right after the original or later in the hour, by equal chance."""
    late: float = 0.0
    """Visits of an earlier hour that arrive in this one."""
    late_delays: tuple[tuple[int, float], ...] = ((1, 0.6), (2, 0.2), (6, 0.15), (24, 0.05))
    """Hours of delay, each with its weight."""
    malformed: float = 0.0
    """In turn: truncated JSON, bytes that are not UTF-8, a value of the wrong type, no JSON at all."""
    missing: float = 0.0
    """`visit_id`, `user_id`, `event_time` or `page` is null or absent."""
    out_of_order: float = 0.0
    """Visits that arrive behind one with a later event time; at most half of the hour."""
    future: float = 0.0
    """Visits from a clock that is 1 to 10 days ahead."""
    skew: float = 0.0
    """Share of the visits that belong to one user."""
    silence: tuple[tuple[datetime, datetime], ...] = ()
    """Intervals `[start, end)`: hours that begin in one have no visits, yet a complete folder."""
    schema_changes: tuple[SchemaChange, ...] = ()

    def __post_init__(self) -> None:
        exclusive = (self.duplicates, self.late, self.malformed, self.missing, 2 * self.out_of_order, self.future)
        if not all(0 <= rate <= 1 for rate in (*exclusive, self.skew)):
            raise ImpossibleRatesError("a rate is not between 0 and 1 (0.5 for out of order)")
        if sum(exclusive) > 1 + 1e-9:
            raise ImpossibleRatesError("together they need more than all records, out-of-order ones counted twice")
        if not self.late_delays or any(hours < 1 or weight <= 0 for hours, weight in self.late_delays):
            raise ImpossibleRatesError("delays of late visits must be at least one hour, with weights above 0")

    def is_silent(self, hour: datetime) -> bool:
        """Whether the hour has no visits."""
        return any(start <= hour < end for start, end in self.silence)


NONE = Irregularities()
EVERYDAY = Irregularities(
    duplicates=0.01, late=0.02, malformed=0.002, missing=0.005, out_of_order=0.02, future=0.001, skew=0.01
)
"""What a healthy blog sees on an ordinary day."""
