"""The ISO week: Monday to Sunday, named by the year that has its Thursday, so that no week is cut at New Year."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from de_resources.errors import PermanentError

LENGTH = timedelta(days=7)


class NotAWeek(PermanentError):
    """A request for a part of a week, or for days that do not begin on a Monday."""

    def __init__(self, asked: str, weeks: tuple[Week, ...]) -> None:
        self.asked, self.weeks = asked, weeks
        told = " and ".join(f"{w} ({w.start} to {w.last})" for w in weeks)
        super().__init__(
            f"{asked} is not a week: it lies in {told}. A week's table is replaced as a whole, so that the week is also the "
            f"unit of runs and backfills. Nothing was changed. Ask for {' and '.join(f'`{w.start}`' for w in weeks)}."
        )


@dataclass(frozen=True, order=True)
class Week:
    """A week by its Monday. Take `of` for any day, `of_key` and `of_window` where only a whole week will do."""

    start: date

    @classmethod
    def of(cls, day: date) -> Week:
        """The week in which a day lies: 1 January 2023 lies in the last one of 2022."""
        return cls(day - timedelta(days=day.weekday()))

    @classmethod
    def of_key(cls, key: str) -> Week:
        """The week that a partition key names by its Monday. Raises `NotAWeek` for another day of it."""
        day = date.fromisoformat(key[:10])
        week = cls.of(day)
        if week.start != day:
            raise NotAWeek(f"`{key}`, a {day:%A},", (week,))
        return week

    @classmethod
    def of_window(cls, start: datetime, end: datetime) -> Week:
        """The week that lies between two instants, in UTC. Raises `NotAWeek` when that is less, more or askew."""
        first, behind = start.astimezone(UTC), end.astimezone(UTC)
        week = cls.of(first.date())
        bounds = (week.start, week.end)
        if (first, behind) != tuple(datetime(d.year, d.month, d.day, tzinfo=UTC) for d in bounds):
            last = cls.of((behind - timedelta(microseconds=1)).date())
            asked = f"{first:%Y-%m-%d %H:%M} to {behind:%Y-%m-%d %H:%M}"
            raise NotAWeek(asked, (week,) if last == week else (week, last))
        return week

    @property
    def end(self) -> date:
        """The Monday after it."""
        return self.start + LENGTH

    @property
    def last(self) -> date:
        """Its Sunday."""
        return self.end - timedelta(days=1)

    @property
    def label(self) -> str:
        """For names of tables: `2022w52`."""
        year, number, _ = self.start.isocalendar()
        return f"{year}w{number:02d}"

    def __str__(self) -> str:
        return self.label.replace("w", "-W")
