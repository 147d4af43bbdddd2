"""The storage layer: the newest window of which files landed, by the names of their folders and never by their times.

A copied, restored or touched file has a new modification time, and a repaired hour of last year is written today. The producer
says in the name of the folder which time its files are of.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from de_checks.factory import CheckRun
from de_checks.freshness.flow import whole
from de_checks.freshness.signs import Signs

_BEFORE_END = timedelta(microseconds=1)

Landed = Callable[[Any, datetime], Iterable[tuple[datetime, datetime]] | None]
"""Given the run's resources and the believable present: the windows of the folders that are complete and hold files, newest
first, of the future too; None where there is no such folder at all. Only as many are taken as are needed."""


@dataclass(frozen=True)
class LandedFolders:
    """Signs from folders whose names tell their time. `resources`: what `landed` asks the run for."""

    landed: Landed
    resources: Collection[str]
    name: str = "storage"
    sees: str = "the newest folder that landed"

    def signs(self, run: CheckRun, believable: datetime) -> Signs | None:
        """As `Layer` says; a folder that begins in the future is passed over, and counted."""
        windows = self.landed(run.resources, believable)
        if windows is None:
            return None
        ahead, furthest = 0, None
        for start, end in windows:
            if start <= believable:
                # Of an hour that is not over, its files are a sign up to now at most.
                return whole(min(end - _BEFORE_END, believable), ahead=ahead, furthest=furthest)
            ahead, furthest = ahead + 1, max(start, furthest or start)
        return whole(None, ahead=ahead, furthest=furthest) if ahead else {}

    def figures(self, signs: Signs) -> Mapping[str, Any]:  # noqa: ARG002 - as `Layer` says
        """Nothing of its own."""
        return {}
