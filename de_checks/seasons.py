"""How much a volume may differ depends on the time: nights, weekends and months have tolerances of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from de_resources.errors import PermanentError

Band = tuple[float, float]
"""The lowest and the highest accepted ratio, both included."""


class UnusableBand(PermanentError, ValueError):
    """A tolerance that refuses what did not change."""

    def __init__(self, band: Band) -> None:
        self.band = band
        super().__init__(f"The tolerance {band} must include the ratio 1, an unchanged volume.")


@dataclass(frozen=True)
class SeasonTimes:
    """Windows that begin on these weekdays (Monday is 0), in these hours and months; what is left out does not matter."""

    weekdays: Collection[int] = range(7)
    hours: Collection[int] = range(24)
    months: Collection[int] = range(1, 13)

    def __contains__(self, moment: datetime) -> bool:
        """Whether a moment is one of these times, by its own clock: that of the calendar's time zone."""
        return moment.weekday() in self.weekdays and moment.hour in self.hours and moment.month in self.months


WEEKEND = SeasonTimes(weekdays=(5, 6))
NIGHT = SeasonTimes(hours=range(6))


@dataclass(frozen=True)
class Tolerance:
    """What is accepted usually, and in special times, of which the first that fits decides. Raises `UnusableBand`."""

    usual: Band
    special: Sequence[tuple[SeasonTimes, Band]] = ()

    def __post_init__(self) -> None:
        """Refuse what excludes an unchanged volume."""
        for band in (self.usual, *(band for _, band in self.special)):
            if not 0 <= band[0] <= 1 <= band[1]:
                raise UnusableBand(band)

    def at(self, moment: datetime | None) -> Band:
        """What is accepted of a window that begins then; None: of data without time."""
        if moment is None:
            return self.usual
        return next((band for times, band in self.special if moment in times), self.usual)

    def __str__(self) -> str:
        """For people: `0.5x and 2x`."""
        own = " (special times have their own)" if self.special else ""
        return f"{self.usual[0]:g}x and {self.usual[1]:g}x{own}"
