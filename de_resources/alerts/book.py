"""The book of alerts: states instead of storms, and for each channel what it has not accepted yet.

A condition that turns bad opens one alert; while it stays bad nothing more is told, whatever happens again; when it is good,
one recovery is. What is to be told is written down for every channel in the transaction that changes the state, and taken out
when the channel has accepted it. A channel that is away loses nothing, gets its alerts in order, and keeps nobody waiting.

One SQLite file, `$DE_HOME/alerts.sqlite`, which command line and pages read without an orchestrator. Source: the transactional
outbox (Richardson, *Microservices Patterns*).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from de_resources.errors import PermanentError, PlatformError

FILE = "alerts.sqlite"
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=30), timedelta(hours=1)
_BUSY_SECONDS = 30.0
_TABLES = """
    CREATE TABLE IF NOT EXISTS open_alerts (subject TEXT PRIMARY KEY, opened_at TEXT NOT NULL, severity TEXT NOT NULL,
        members TEXT NOT NULL, said TEXT NOT NULL, acknowledged TEXT);
    CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, body TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0, not_before TEXT NOT NULL DEFAULT '', why TEXT);
    CREATE TABLE IF NOT EXISTS reached (source TEXT PRIMARY KEY, position TEXT NOT NULL);
"""

Body = Mapping[str, Any]
"""An alert as plain values. `event` is `opened`, `worse` or `recovered`, `id` the same whenever it is sent again."""


class UnknownAlert(PermanentError):
    """An alert that is not open."""

    def __init__(self, subject: str, known: Collection[str]) -> None:
        self.subject = subject
        super().__init__(f"No alert `{subject}` is open. Open are: {', '.join(sorted(known)) or 'none'}.")


@dataclass(frozen=True)
class AlertCondition:
    """What is known now of a subject: the parts of it that are bad, those that are good again, and how the bad is told.

    Parts are partitions of a check, or assets of a run; a subject without parts has the part `""`. `EVERYTHING` as
    `good` says that all parts are.
    """

    subject: str
    said: Body
    bad: frozenset[str] = frozenset()
    good: frozenset[str] | None = frozenset()
    severity: str = "ERROR"


EVERYTHING = None


@dataclass(frozen=True)
class OpenAlert:
    """An alert that is open: since when, how bad, which parts, what was said, and who has taken it on with which words."""

    subject: str
    opened_at: str
    severity: str
    members: tuple[str, ...]
    said: Body
    acknowledged: str | None

    @property
    def text(self) -> str:
        """One line for people."""
        return str(self.said.get("text") or self.subject)


@dataclass(frozen=True)
class Pending:
    """What a channel has not accepted: how many alerts, how often the first was tried, and why it was not taken."""

    channel: str
    waiting: int
    attempts: int
    why: str | None


@dataclass(frozen=True)
class AlertBook:
    """The book in a file, which is made when something is first written. Several may write; each change is one transaction."""

    path: Path

    @classmethod
    def of_home(cls, home: Path) -> AlertBook:
        """The book of a home."""
        return cls(home / FILE)

    def open_alerts(self) -> list[OpenAlert]:
        """What is open, oldest first; nothing where there is no book yet."""
        if not self.path.exists():
            return []
        with self._session() as session:
            rows = session.execute(
                "SELECT subject, opened_at, severity, members, said, acknowledged FROM open_alerts ORDER BY opened_at, subject"
            ).fetchall()
        return [OpenAlert(s, at, sev, tuple(json.loads(m)), json.loads(said), ack) for s, at, sev, m, said, ack in rows]

    def observe(
        self,
        conditions: Collection[AlertCondition],
        channels: Collection[str],
        now: datetime,
        reached: Mapping[str, str] | None = None,
    ) -> list[Body]:
        """Change the states, write down what each channel has to be told, and remember how far the sources were read.

        All of it or nothing: a process that is killed leaves no state without its news, and no news twice. Returns the news.
        """
        news: list[Body] = []
        with self._session(writes=True) as session:
            for condition in conditions:
                if (told := _changed(session, condition, now)) is not None:
                    news.append(told)
            rows = [(channel, json.dumps(body, sort_keys=True)) for body in news for channel in channels]
            session.executemany("INSERT INTO outbox (channel, body) VALUES (?, ?)", rows)
            session.executemany(
                "INSERT INTO reached VALUES (?, ?) ON CONFLICT DO UPDATE SET position = excluded.position",
                list((reached or {}).items()),
            )
        return news

    def position(self, source: str) -> str | None:
        """How far a source was read when the states were last changed."""
        with self._session() as session:
            found = session.execute("SELECT position FROM reached WHERE source = ?", (source,)).fetchone()
        return found[0] if found else None

    def deliver(self, channels: Mapping[str, Callable[[Body], None]], now: datetime) -> dict[str, str]:
        """Hand each channel what waits for it, in its order; returns why by channel that did not take all of it.

        A channel that fails is tried again after a pause that grows up to an hour, whatever its error: an alert is never given
        up. What waits for a channel that is no longer there is removed.
        """
        failed = {}
        with self._session(writes=True) as session:
            names = list(channels)
            session.execute(f"DELETE FROM outbox WHERE channel NOT IN ({','.join('?' * len(names))})", names)
        for name, send in channels.items():
            if (why := self._drain(name, send, now)) is not None:
                failed[name] = why
        return failed

    def pending(self) -> list[Pending]:
        """The channels that have not accepted everything."""
        if not self.path.exists():
            return []
        with self._session() as session:
            rows = session.execute(
                "SELECT channel, count(*), max(attempts), max(why) FROM outbox GROUP BY channel ORDER BY channel"
            ).fetchall()
        return [Pending(*row) for row in rows]

    def acknowledge(self, subject: str, words: str) -> None:
        """Somebody has taken an alert on: it stays open and says so. Raises `UnknownAlert`."""
        with self._session(writes=True) as session:
            done = session.execute("UPDATE open_alerts SET acknowledged = ? WHERE subject = ?", (words, subject))
            known = [row[0] for row in session.execute("SELECT subject FROM open_alerts")]
        if not done.rowcount:
            raise UnknownAlert(subject, known)

    def _drain(self, channel: str, send: Callable[[Body], None], now: datetime) -> str | None:
        while True:
            with self._session() as session:
                first = session.execute(
                    "SELECT number, body, attempts, not_before, why FROM outbox WHERE channel = ? ORDER BY number LIMIT 1",
                    (channel,),
                ).fetchone()
            if first is None:
                return None
            number, body, attempts, not_before, why = first
            # No pause is longer: a later end was set by a clock that was set back since.
            if _text(now) < not_before <= _text(now + LONGEST_WAIT):
                return str(why)
            try:
                send(json.loads(body))
            except Exception as error:  # noqa: BLE001 - whatever a channel does, the others are told and nothing is lost
                why, wait = _reason(error), min(FIRST_WAIT * 2**attempts, LONGEST_WAIT)
                with self._session(writes=True) as session:
                    session.execute(
                        "UPDATE outbox SET attempts = ?, not_before = ?, why = ? WHERE number = ?",
                        (min(attempts + 1, 20), _text(now + wait), why, number),
                    )
                return why
            with self._session(writes=True) as session:
                session.execute("DELETE FROM outbox WHERE number = ?", (number,))

    @contextmanager
    def _session(self, *, writes: bool = False) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)) as session:
            session.executescript(_TABLES)
            if not writes:
                yield session
                return
            session.execute("BEGIN IMMEDIATE")
            try:
                yield session
            except BaseException:
                session.execute("ROLLBACK")
                raise
            session.execute("COMMIT")


def _changed(session: sqlite3.Connection, condition: AlertCondition, now: datetime) -> Body | None:
    """Bring one state up to date; what there is to tell, if anything."""
    row = session.execute(
        "SELECT opened_at, severity, members, said FROM open_alerts WHERE subject = ?", (condition.subject,)
    ).fetchone()
    before = set(json.loads(row[2])) if row else set()
    kept = set() if condition.good is EVERYTHING else before - condition.good
    members, subject = sorted(kept | condition.bad), condition.subject
    if not members:
        if row is None:
            return None
        session.execute("DELETE FROM open_alerts WHERE subject = ?", (subject,))
        said = json.loads(row[3])
        return {
            **said,
            **_marks(subject, row[0], "recovered"),
            "time": _text(now),
            "text": f"RECOVERED: {said.get('text')}",
        }
    if row is None:
        said = {**condition.said, **_marks(subject, _text(now), "opened")}
        session.execute(
            "INSERT INTO open_alerts VALUES (?, ?, ?, ?, ?, NULL)",
            (subject, _text(now), condition.severity, json.dumps(members), json.dumps(said)),
        )
        return said
    is_worse = bool(condition.bad) and condition.severity == "ERROR" and row[1] != "ERROR"
    said = {**condition.said, **_marks(subject, row[0], "worse")} if is_worse else json.loads(row[3])
    session.execute(
        "UPDATE open_alerts SET severity = ?, members = ?, said = ? WHERE subject = ?",
        ("ERROR" if is_worse else row[1], json.dumps(members), json.dumps(said), subject),
    )
    return said if is_worse else None


def _marks(subject: str, opened_at: str, event: str) -> dict[str, str]:
    identity = hashlib.blake2b("\0".join((subject, opened_at, event)).encode(), digest_size=12).hexdigest()
    return {"id": identity, "event": event, "subject": subject}


def _reason(error: Exception) -> str:
    """Only the platform's own words: those of others may quote addresses and credentials."""
    return str(error) if isinstance(error, PlatformError) else type(error).__name__


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
