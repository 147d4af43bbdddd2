"""Sessions in plain Python: the definition once more, to compare every sessionizer with. It shares no code with any."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, order=True)
class Visit:
    """A visit; those of one instant are ordered by `visit_id`."""

    at: datetime
    visit_id: str
    user_id: str
    page: str


@dataclass(frozen=True)
class Session:
    """A session as far as it has come."""

    user_id: str
    started_at: datetime
    ended_at: datetime
    visits: int
    first_page: str
    last_page: str

    @property
    def session_id(self) -> str:
        """SHA-256 over visitor and microseconds of the first visit, each with its length before it."""
        parts = [self.user_id.encode(), str((self.started_at - EPOCH) // timedelta(microseconds=1)).encode()]
        return sha256(b"".join(str(len(part)).encode() + b":" + part + b"," for part in parts)).hexdigest()


def sessions_of(visits: Iterable[Visit], gap: timedelta) -> set[Session]:
    """All sessions, open ones too."""
    by_user: dict[str, list[list[Visit]]] = {}
    for visit in sorted(visits):
        runs = by_user.setdefault(visit.user_id, [])
        if not runs or visit.at - runs[-1][-1].at >= gap:
            runs.append([])
        runs[-1].append(visit)
    return {
        Session(user, run[0].at, run[-1].at, len(run), run[0].page, run[-1].page)
        for user, runs in by_user.items()
        for run in runs
    }


def open_at(visits: Iterable[Visit], end: datetime, gap: timedelta) -> set[Session]:
    """What is known at `end` of sessions that may go on."""
    return {each for each in sessions_of((v for v in visits if v.at < end), gap) if each.ended_at + gap > end}


def closed_within(visits: Iterable[Visit], start: datetime, end: datetime, gap: timedelta) -> set[Session]:
    """The sessions that are over after `start`, and at `end` at the latest."""
    return {each for each in sessions_of(visits, gap) if start < each.ended_at + gap <= end}


def session_of(row: Any) -> Session:
    """A row of a sessionizer as a value; raises `AssertionError` where its id is another one."""
    found = Session(*(row[name] for name in Session.__dataclass_fields__))
    assert row["session_id"] == found.session_id
    return found
