"""Which hours of the drop folder are closed, without looking into more folders than somebody asks about.

The names of the folders come from one listing per day. Whether an hour is closed, and how it looks, is found by one listing of
its own folder, when it is asked for: a tick over a year of hours asks about those that it does not know yet.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path

from de_assets.sources.landing import VISITS, Contents, Readiness, contents_of, hour_folder

_HOUR = timedelta(hours=1)
_HOUR_NAMES = {f"hour={hour:02}": hour for hour in range(24)}


class Arrivals:
    """The hours of a drop folder. Each folder is looked into once: make a new object to see later changes.

    `now` is the clock's: a folder of the future closes no hour before it, and what is being written to is not still.
    """

    def __init__(
        self, landing: Path, readiness: Readiness = "marker", dataset: str = VISITS, now: datetime | None = None
    ) -> None:
        self._landing, self._by_marker, self._dataset = landing, readiness == "marker", dataset
        self._now = now or datetime.now(UTC)
        self._seen: dict[datetime, Contents | None] = {}

    @cached_property
    def hours(self) -> list[datetime]:
        """The hours that may be closed, oldest first. Folders that name no hour are nobody's, and passed over."""
        passed = self._passed
        between = (passed[0] + n * _HOUR for n in range((passed[1] - passed[0]) // _HOUR)) if passed else ()
        return sorted({*self._arrived, *between})

    def is_closed(self, hour: datetime) -> bool:
        """Whether the hour may be read.

        By `next_hour` these are, beside the marked ones, all from the first to the newest that arrived, without the newest:
        what brought nothing in between is closed and empty.
        """
        if self._passed and self._passed[0] <= hour < self._passed[1]:
            return True
        contents = self._contents(hour)
        return contents is not None and contents.is_ready

    def look(self, hour: datetime) -> str | None:
        """A fingerprint of the hour's folder as it was closed: names, sizes and times. None while it is open or rewritten."""
        contents = self._contents(hour)
        if contents is None or not self.is_closed(hour):
            return None
        facts = [*contents.files, contents.marker] if self._by_marker else [*contents.files]
        return hashlib.blake2b(repr(facts).encode(), digest_size=6).hexdigest()

    def files(self, hour: datetime) -> list[Path]:
        """What a reader of the hour reads; nothing where it is not closed."""
        contents = self._contents(hour)
        if contents is None or not self.is_closed(hour):
            return []
        return [hour_folder(self._landing, hour, self._dataset) / name for name in contents.published]

    def has_grown(self, hour: datetime) -> bool:
        """Whether its producer says that all is still in it that was in it before."""
        contents = self._contents(hour)
        return contents is not None and contents.has_grown

    def _contents(self, hour: datetime) -> Contents | None:
        if hour not in self._seen:
            self._seen[hour] = contents_of(hour_folder(self._landing, hour, self._dataset), self._now)
        return self._seen[hour]

    @cached_property
    def _arrived(self) -> list[datetime]:
        """The hours that have a folder, oldest first."""
        folder = self._landing / self._dataset
        days = sorted((day, name) for name in _names(folder) if (day := _day_of(name)) is not None)
        return [
            datetime(day.year, day.month, day.day, hour, tzinfo=UTC)
            for day, name in days
            for hour in sorted(_HOUR_NAMES[entry] for entry in _names(folder / name) if entry in _HOUR_NAMES)
        ]

    @cached_property
    def _passed(self) -> tuple[datetime, datetime] | None:
        """The first and the newest hour that brought something, where their order is what closes hours."""
        if self._by_marker:
            return None
        arrived = [hour for hour in self._arrived if hour <= self._now + timedelta(days=1)]
        first, newest = (next(self._with_files(hours), None) for hours in (arrived, reversed(arrived)))
        return (first, newest) if first and newest else None

    def _with_files(self, hours: Iterable[datetime]) -> Iterator[datetime]:
        return (hour for hour in hours if (contents := self._contents(hour)) is not None and contents.files)


def closed_hours(landing: Path, readiness: Readiness = "marker", dataset: str = VISITS) -> list[datetime]:
    """Hours that a consumer may read, oldest first. Looks into every folder."""
    arrivals = Arrivals(landing, readiness, dataset)
    return [hour for hour in arrivals.hours if arrivals.is_closed(hour)]


def ready_hours(landing: Path, dataset: str = VISITS) -> list[datetime]:
    """Hours whose folders are complete by their marker, oldest first."""
    return closed_hours(landing, "marker", dataset)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - a path for each name costs more than the listing
    except (FileNotFoundError, NotADirectoryError):
        return []


def _day_of(name: str) -> date | None:
    try:
        day = date.fromisoformat(name.removeprefix("date="))
    except ValueError:
        return None
    # The standard has other ways to write a day, which no producer of ours uses.
    return day if name == f"date={day.isoformat()}" else None
