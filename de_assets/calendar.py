"""The calendar: the hours for which sources exist.

It comes from `DE_CALENDAR` (`start/end`, ISO hours in UTC, end exclusive and optional), else from what was recorded under
`DE_HOME` when sources were fed, else it is three simulated days. An open end means *until now*, which is what a deployment with
live sources wants. The calendar of a home that holds logs grows with each log, and never shrinks.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from de_resources.errors import PermanentError
from de_resources.iso_week import Week
from de_resources.settings import Settings

if TYPE_CHECKING:
    import dagster as dg

_HOUR = "%Y-%m-%d-%H:%M"


class CalendarOrigin(StrEnum):
    """What the hours of a calendar are of."""

    SIMULATION = "simulation"
    LOGS = "logs"


@dataclass(frozen=True)
class Calendar:
    """Half-open interval of whole hours in UTC; `end` None: open."""

    start: datetime
    end: datetime | None

    @classmethod
    def parse(cls, text: str) -> Calendar:
        """Read `start/end` or `start/`. Raises `PermanentError` with the expected form."""
        try:
            first, last = text.split("/")
            start, end = _hour(first), _hour(last) if last.strip() else None
        except ValueError:
            raise PermanentError(
                f"The calendar {text[:80]!r} is not `start/end` in ISO hours, such as 2024-10-10T00/2024-10-13T00."
            ) from None
        if end is not None and end <= start:
            raise PermanentError(f"The calendar {text[:80]!r} ends before it starts.")
        return cls(start, end)

    @classmethod
    def load(cls, settings: Settings | None = None) -> Calendar:
        """The calendar in force, as the module says."""
        if os.environ.get("DE_CALENDAR"):
            return cls.parse(os.environ["DE_CALENDAR"])
        recorded = RecordedCalendar.find(settings or Settings.from_environment())
        return recorded.calendar if recorded else DEFAULT

    def save(self, settings: Settings, of: CalendarOrigin = CalendarOrigin.SIMULATION) -> None:
        """Record the calendar for all later processes, in one step: others may be reading it."""
        record = _record(settings)
        record.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".calendar-", dir=record.parent) as drafts:
            draft = Path(drafts) / record.name
            draft.write_text(json.dumps({"calendar": str(self), "of": of}))
            draft.replace(record)

    @property
    def opened(self) -> Calendar:
        """The same without an end: every hour that passes is one of it."""
        return Calendar(self.start, None)

    def union(self, other: Calendar) -> Calendar:
        """The smallest calendar that covers both."""
        end = None if self.end is None or other.end is None else max(self.end, other.end)
        return Calendar(min(self.start, other.start), end)

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%dT%H}/{self.end:%Y-%m-%dT%H}" if self.end else f"{self.start:%Y-%m-%dT%H}/"

    @property
    def hourly(self) -> dg.HourlyPartitionsDefinition:
        """One partition per hour."""
        import dagster as dg

        end = self.end.strftime(_HOUR) if self.end else None
        return dg.HourlyPartitionsDefinition(start_date=self.start.strftime(_HOUR), end_date=end)

    @property
    def daily(self) -> dg.DailyPartitionsDefinition:
        """One partition per day that has at least one hour of the calendar."""
        import dagster as dg

        first = self.start.strftime("%Y-%m-%d")
        if self.end is None:
            return dg.DailyPartitionsDefinition(start_date=first)
        last = (self.end - timedelta(microseconds=1)).date() + timedelta(days=1)
        return dg.DailyPartitionsDefinition(start_date=first, end_date=last.isoformat())

    @property
    def weekly(self) -> dg.WeeklyPartitionsDefinition:
        """One partition per week, from Monday, that has at least one hour of the calendar; the current one included."""
        import dagster as dg

        monday = 1
        first = Week.of(self.start.date()).start.isoformat()
        if self.end is None:
            return dg.WeeklyPartitionsDefinition(start_date=first, day_offset=monday, end_offset=1)
        last = Week.of((self.end - timedelta(microseconds=1)).date()).end
        return dg.WeeklyPartitionsDefinition(start_date=first, day_offset=monday, end_date=last.isoformat())


@dataclass(frozen=True)
class RecordedCalendar:
    """The calendar of a home, and what its hours are of."""

    calendar: Calendar
    of: CalendarOrigin

    @classmethod
    def find(cls, settings: Settings) -> RecordedCalendar | None:
        """What is recorded in this home. Raises `PermanentError` for a record that nobody can read."""
        record = _record(settings)
        try:
            said = json.loads(record.read_text())
            # Earlier versions did not say it. Of logs nothing is ever set aside.
            text, of = str(said["calendar"]), CalendarOrigin(said.get("of", CalendarOrigin.LOGS))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PermanentError(f"`{record}` holds no calendar. Remove it, or seed again with `de seed`.") from None
        return cls(Calendar.parse(text), of)


def _hour(text: str) -> datetime:
    moment = datetime.fromisoformat(text.strip())
    hour = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if (hour.minute, hour.second, hour.microsecond) != (0, 0, 0):
        raise ValueError(text)
    return hour


def _record(settings: Settings) -> Path:
    return settings.home / "calendar.json"


DEFAULT = Calendar(datetime(2024, 10, 10, tzinfo=UTC), datetime(2024, 10, 13, tzinfo=UTC))
