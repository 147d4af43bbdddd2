"""A calendar that grew while the UI serves its home: definitions are loaded again, so that the new hours have partitions.

Whoever serves the UI has loaded definitions once. What `de land` adds beside it would have no partition there, and no sensor
would read it. The daemon follows what the webserver loads within a second.
"""

from __future__ import annotations

from collections.abc import Callable

from de_assets.calendar import Calendar
from de_resources.errors import PermanentError
from de_resources.other_location import NotLoaded, UIAway

LOOK_SECONDS = 5.0
"""How long a calendar may have grown unseen."""


class GrownCalendar:
    """Compares the calendar of a home with the one that definitions were loaded with. Made before they are loaded."""

    def __init__(self, recorded: Callable[[], Calendar], load_again: Callable[[], None]) -> None:
        self._recorded = recorded
        self._load_again = load_again
        self._loaded = self._now()

    def look(self) -> bool:
        """Load definitions again if the calendar is another one; whether it was done.

        A webserver that does not answer is asked at the next look. Definitions that do not load are the UI's to show, and
        for a person: they get the calendar of that moment when they are loaded again.
        """
        now = self._now()
        if now is None or now == self._loaded:
            return False
        try:
            self._load_again()
        except UIAway:
            return False
        except NotLoaded:
            pass
        self._loaded = now
        return True

    def _now(self) -> Calendar | None:
        """None: what is recorded cannot be read, so that definitions could not be loaded either."""
        try:
            return self._recorded()
        except PermanentError:
            return None
