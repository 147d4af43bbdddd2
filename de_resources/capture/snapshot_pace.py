"""Whether a snapshot ends in time. It is one transaction of the broker, and what the broker gives up is read for nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from de_resources.capture.source import CaptureSource
from de_resources.errors import PermanentError

_SAMPLE_SECONDS = 60.0
_CERTAINTY = 2.0
"""How far beyond the limit an estimate has to be: it comes from the first minute, and from statistics of the tables."""


class SnapshotTooLong(PermanentError):
    """The rows from before the slot cannot be delivered in the time that the broker gives to one transaction."""

    def __init__(self, source: CaptureSource, rows: int, seconds: float, limit: float, needed: float | None) -> None:
        self.source, self.rows, self.needed = source, rows, needed
        estimate = f", so that all of them would take about {_told(needed)}" if needed is not None else ""
        super().__init__(
            f"The snapshot of the capture `{source.name}` is too long for one transaction of the broker, which ends after "
            f"{_told(limit)}: {rows:,} row(s) were read in {_told(seconds)}{estimate}. Nothing was delivered, and the database "
            "keeps no log for it. Raise `transaction.max.timeout.ms` of the broker, or capture fewer tables; it is tried again "
            "after an hour."
        )


@dataclass(frozen=True)
class SnapshotPace:
    """How a snapshot proceeds. `expected`: rows of its tables, as the database estimates them; 0: it does not."""

    source: CaptureSource
    limit: float
    expected: int

    def require(self, rows: int, seconds: float) -> None:
        """Raise `SnapshotTooLong` where the time is over, or surely will be before the last row."""
        needed = seconds * self.expected / rows if rows and self.expected > rows else None
        is_surely_late = seconds >= _SAMPLE_SECONDS and needed is not None and needed > _CERTAINTY * self.limit
        if seconds >= self.limit or is_surely_late:
            raise SnapshotTooLong(self.source, rows, seconds, self.limit, needed)


def _told(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
