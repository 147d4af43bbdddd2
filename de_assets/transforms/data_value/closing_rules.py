"""What ends a session, as small rules that know neither a stream nor a table. Part of *Stateful Sessionizer*.

A rule says from which instant on no visit belongs to a session. The earliest of all rules decides: a visit at or after it
begins the next session. So one function of a session is all that there is to a rule, and a new one needs no change elsewhere.

Visits are taken in the order of their time, and only when no earlier one can come any more (`Visitor.settled`). Nothing else
gives the sessions of one pass over all visits: whether a visit was still within the greatest length, or before the logout,
depends on all visits before it.

Times are whole microseconds since 1970 (UTC): a state that outlives its process has no zone to mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Protocol


@dataclass(frozen=True)
class Visit:
    """One page view of a visitor; those of one instant are ordered by their `visit_id`."""

    at: int
    visit_id: str
    page: str | None
    referral: str | None = None


@dataclass(frozen=True)
class OpenSession:
    """A session as far as it has come."""

    started_at: int
    ended_at: int
    visits: int
    first_page: str | None
    last_page: str | None
    referral: str | None = None
    """Where the first visit came from."""

    @classmethod
    def begun_by(cls, visit: Visit) -> OpenSession:
        """The session of one visit."""
        return cls(visit.at, visit.at, 1, visit.page, visit.page, visit.referral)

    def and_then(self, visit: Visit) -> OpenSession:
        """The same session with a later visit."""
        return replace(self, ended_at=visit.at, visits=self.visits + 1, last_page=visit.page)


@dataclass(frozen=True)
class ClosedSession:
    """A session to which no visit belongs any more, and the rule that says so."""

    session: OpenSession
    closed_by: str


class ClosingRule(Protocol):
    """What can end a session."""

    name: ClassVar[str]

    def over_at(self, session: OpenSession) -> int | None:
        """The instant, after the session's last visit, from which on no visit belongs to it; None: not by this rule, so far."""


@dataclass(frozen=True)
class Inactivity:
    """A pause as long as the gap."""

    gap: timedelta
    name: ClassVar[str] = "inactivity"

    def over_at(self, session: OpenSession) -> int | None:
        """The last visit and the gap."""
        return session.ended_at + micros(self.gap)


@dataclass(frozen=True)
class GreatestLength:
    """A session that began this long ago, however busy its visitor is: a program that never pauses ends here."""

    length: timedelta
    name: ClassVar[str] = "greatest_length"

    def over_at(self, session: OpenSession) -> int | None:
        """The first visit and the length."""
        return session.started_at + micros(self.length)


@dataclass(frozen=True)
class ClosingPage:
    """A page that ends the session, such as a logout. It still belongs to the session, as do visits of the same instant."""

    pages: frozenset[str]
    name: ClassVar[str] = "closing_page"

    def over_at(self, session: OpenSession) -> int | None:
        """Right after the page. No later instant has two sessions of a visitor begin, so that ids stay different."""
        return session.ended_at + 1 if session.last_page in self.pages else None


Rules = tuple[ClosingRule, ...]


def over(session: OpenSession, rules: Rules) -> tuple[int, str]:
    """When the session is over as far as it has come, and by which rule: of those of one instant the first one.

    Raises `ValueError` where no rule ends it: its state would be kept for ever.
    """
    ends = [(end, rule.name) for rule in rules if (end := rule.over_at(session)) is not None]
    if not ends:
        raise ValueError(f"No rule of {rules} ends {session}: add one that always does, such as `Inactivity`.")
    return min(ends, key=lambda end: end[0])


@dataclass(frozen=True)
class Visitor:
    """What is remembered of a visitor: the session that is open, and visits before which others may still come."""

    session: OpenSession | None = None
    waiting: tuple[Visit, ...] = ()

    def came(self, visits: Iterable[Visit]) -> Visitor:
        """With more visits, in any order. A copy, of one identity and time, is dropped: it waits for as long as the first."""
        first: dict[tuple[int, str], Visit] = {}
        for visit in sorted((*self.waiting, *visits), key=_in_order):
            first.setdefault((visit.at, visit.visit_id), visit)
        return replace(self, waiting=tuple(first.values()))

    def settled(self, before: int, rules: Rules) -> tuple[Visitor, Sequence[ClosedSession]]:
        """The visits before this instant are all known: what is remembered from now on, and which sessions are over."""
        closed: list[ClosedSession] = []
        session = self.session
        for visit in (v for v in self.waiting if v.at < before):
            if session is not None and visit.at >= over(session, rules)[0]:
                closed.append(ClosedSession(session, over(session, rules)[1]))
                session = None
            session = session.and_then(visit) if session else OpenSession.begun_by(visit)
        if session is not None and over(session, rules)[0] <= before:
            closed.append(ClosedSession(session, over(session, rules)[1]))
            session = None
        return Visitor(session, tuple(v for v in self.waiting if v.at >= before)), closed

    def wakes_at(self, rules: Rules) -> int | None:
        """The earliest instant at which something is to be done for the visitor; None: nothing is remembered."""
        moments = [visit.at for visit in self.waiting[:1]]
        if self.session is not None:
            moments.append(over(self.session, rules)[0])
        return min(moments, default=None)


def _in_order(visit: Visit) -> tuple[int, str, str, str]:
    # Two copies of a visit may differ in what one of them lacks, and nothing is neither before nor after a text.
    return visit.at, visit.visit_id, visit.page or "", visit.referral or ""


def micros(length: timedelta) -> int:
    """Whole microseconds."""
    return length // timedelta(microseconds=1)
