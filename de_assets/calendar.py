"""The calendar: the hours for which sources exist.

It comes from `DE_CALENDAR` (`start/end`, ISO hours in
UTC, end exclusive and optional), else from what `de seed` recorded under `DE_HOME`, else it is three simulated days.
An open end means *until now*, which is what a deployment with live sources wants.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from de_resources.errors import PermanentError
from de_resources.iso_week import Week
from de_resources.settings import Settings

if TYPE_CHECKING:
    import dagster as dg

_HOUR = "%Y-%m-%d-%H:%M"


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
        record = _record(settings or Settings.from_environment())
        try:
            text = json.loads(record.read_text())["calendar"]
        except FileNotFoundError:
            return DEFAULT
        except (ValueError, KeyError, TypeError):
            raise PermanentError(f"`{record}` holds no calendar. Remove it, or seed again with `de seed`.") from None
        return cls.parse(str(text))

    def save(self, settings: Settings) -> None:
        """Record the calendar for all later processes, in one step: others may be reading it."""
        record = _record(settings)
        record.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".calendar-", dir=record.parent) as drafts:
            draft = Path(drafts) / record.name
            draft.write_text(json.dumps({"calendar": str(self)}))
            draft.replace(record)

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


def _hour(text: str) -> datetime:
    moment = datetime.fromisoformat(text.strip())
    hour = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if (hour.minute, hour.second, hour.microsecond) != (0, 0, 0):
        raise ValueError(text)
    return hour


def _record(settings: Settings) -> Path:
    return settings.home / "calendar.json"


DEFAULT = Calendar(datetime(2024, 10, 10, tzinfo=UTC), datetime(2024, 10, 13, tzinfo=UTC))
