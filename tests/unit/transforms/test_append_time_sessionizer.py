"""Sessions in append time: any cuts, repetitions and replays give what one pass of plain Python over all events gives."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from pyspark.sql import SparkSession

from de_assets.transforms.idempotency.append_time_sessionizer import EVENTS, KNOWN, continued_sessions
from de_resources.engine.utc_rows import utc_rows

pytestmark = pytest.mark.pattern("keyed_idempotency")

START = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)
GAP = timedelta(seconds=10)
LENGTH = 100
KNOWN_COLUMNS = [each.strip().split(" ")[0] for each in KNOWN.split(",")]
ODD = ["", "1:", "a,1:b", "ключ", "'; DROP TABLE x; --"]


@dataclass(frozen=True)
class Event:
    user: str
    at: datetime
    partition: int
    offset: int
    event_time: datetime
    page: str

    @property
    def row(self) -> tuple[Any, ...]:
        return (self.user, self.at, self.partition, self.offset, self.event_time, self.page)


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


def events(seed: int, users: int = 40) -> list[Event]:
    """On whole seconds, so that pauses of exactly the gap and events of one instant in several partitions are common."""
    chance = random.Random(seed)  # noqa: S311
    times = [(chance.randrange(LENGTH), f"u{n}") for n in range(users) for _ in range(chance.randrange(16))]
    times += [(chance.randrange(LENGTH), user) for user in ODD for _ in range(4)]
    offsets = [0, 0, 0]
    made = []
    for at, user in sorted(times):
        partition = chance.randrange(3)
        event_time = second(at - chance.randrange(1000))
        made.append(Event(user, second(at), partition, offsets[partition], event_time, f"/{chance.randrange(9)}"))
        offsets[partition] += 1
    return made


def truth(all_events: Iterable[Event], until: datetime) -> dict[str, dict[str, Any]]:
    """One pass in plain Python."""
    sessions: list[list[Event]] = []
    newest: dict[str, list[Event]] = {}
    for event in sorted(all_events, key=lambda e: (e.at, e.partition, e.offset)):
        if event.at >= until:
            continue
        session = newest.get(event.user)
        if session is None or event.at - session[-1].at >= GAP:
            newest[event.user] = session = []
            sessions.append(session)
        session.append(event)
    return {row["session_id"]: row for row in (_row(session, until) for session in sessions)}


def _row(session: Sequence[Event], until: datetime) -> dict[str, Any]:
    first, last = session[0], session[-1]
    user, number = first.user.encode(), b"%d" % round(first.at.timestamp() * 1000)
    return {
        "session_id": sha256(b"%d:%s,%d:%s," % (len(user), user, len(number), number)).hexdigest(),
        "user_id": first.user,
        "started_at": first.at,
        "ended_at": last.at,
        "visits": len(session),
        "first_event_time": min(e.event_time for e in session),
        "last_event_time": max(e.event_time for e in session),
        "first_page": first.page,
        "last_page": last.page,
        "is_closed": last.at + GAP <= until,
    }


@dataclass
class Table:
    """The sink as the asset uses it: upserts that never take a row back, and the sessions open at a time."""

    spark: SparkSession
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, all_events: Iterable[Event], since: datetime | None, until: datetime) -> None:
        taken = [e.row for e in all_events if (since is None or e.at >= since) and e.at < until]
        known = [] if since is None else [r for r in self.rows.values() if _open(r, since)]
        found = continued_sessions(
            self.spark.createDataFrame(taken, EVENTS).coalesce(1),
            self.spark.createDataFrame([tuple(r[c] for c in KNOWN_COLUMNS) for r in known], KNOWN).coalesce(1),
            until,
            GAP,
        )
        rows = utc_rows(found)
        assert len({row["session_id"] for row in rows}) == len(rows)
        for row in rows:
            there = self.rows.get(row["session_id"])
            if there is None or (row["ended_at"], row["is_closed"]) >= (there["ended_at"], there["is_closed"]):
                self.rows[row["session_id"]] = row


def _open(row: dict[str, Any], since: datetime) -> bool:
    return bool(row["started_at"] < since and row["ended_at"] > since - GAP)


@pytest.mark.parametrize("seed", range(3))
def test_any_cuts_give_at_every_cut_what_one_pass_gives(spark: SparkSession, seed: int) -> None:
    made, table, since = events(seed), Table(spark), None
    cuts = sorted(random.Random(seed).sample(range(1, LENGTH), 3))  # noqa: S311
    for until in map(second, [*cuts, LENGTH, LENGTH + 10]):
        table.take(made, since, until)
        assert table.rows == truth(made, until)
        since = until
    assert all(row["is_closed"] for row in table.rows.values()), "time that passes without events closes sessions"


@pytest.mark.faults
def test_increments_that_are_repeated_further_or_from_further_back_count_nothing_twice(spark: SparkSession) -> None:
    made, table = events(11), Table(spark)
    table.take(made, None, second(30))
    table.take(made, second(30), second(55))  # written, and its position was not committed
    table.take(made, second(30), second(70))
    assert table.rows == truth(made, second(70))
    table.take(made, second(30), second(70))
    table.take(made, second(13), second(85))  # somebody set the positions back
    assert table.rows == truth(made, second(85))
    table.take(made, second(55), second(60))  # a run that was held up all the time
    assert table.rows == truth(made, second(85))


def test_a_replay_from_the_start_changes_no_row_and_brings_lost_ones_back(spark: SparkSession) -> None:
    made, table = events(12), Table(spark)
    table.take(made, None, second(LENGTH))
    complete = truth(made, second(LENGTH))
    for lost in list(table.rows)[::5]:
        del table.rows[lost]
    remaining = dict(table.rows)
    since = None
    for until in map(second, (20, 64, LENGTH)):
        table.take(made, since, until)
        assert {key: table.rows[key] for key in remaining} == remaining
        since = until
    assert table.rows == complete


def test_a_replay_of_a_topic_that_lost_its_oldest_records_keeps_the_ids(spark: SparkSession) -> None:
    made, table = events(13), Table(spark)
    table.take(made, None, second(60))
    kept = [event for event in made if event.at >= second(40)]
    table.take(kept, second(40), second(LENGTH))
    assert table.rows == truth(made, second(LENGTH))


def test_event_times_take_no_part_in_keys_or_bounds(spark: SparkSession) -> None:
    """However late an event is by its own clock, it never changes a session's key: the other way round it would."""
    made = events(14)
    late = [replace(e, event_time=e.event_time - timedelta(days=n % 9)) for n, e in enumerate(made)]
    on_time, table = truth(made, second(LENGTH)), Table(spark)
    table.take(late, None, second(LENGTH))
    event_times = {"first_event_time": None, "last_event_time": None}
    assert {k: {**row, **event_times} for k, row in table.rows.items()} == {
        k: {**row, **event_times} for k, row in on_time.items()
    }


def test_two_users_whose_first_events_came_in_one_instant_have_two_sessions(spark: SparkSession) -> None:
    at = second(1)
    both = [Event(user, at, n, 0, at, "/") for n, user in enumerate(["a", "b", "a1", "a,1:"])]
    table = Table(spark)
    table.take(both, None, second(2))
    assert len(table.rows) == len(both)
    assert table.rows == truth(both, second(2))
