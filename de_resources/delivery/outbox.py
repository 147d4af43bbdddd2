"""What is to be delivered, in the order in which it is, and what became of it: a table of PostgreSQL beside what is served.

Rows become records before anything is sent. From then on their order, identities and contents stand: a run that dies, and one
that is started again, send the same records under the same identities, and a later change of the rows is a later record. So

- a rerun plans nothing and sends nothing, where the rows are the same;
- of a run that was killed the next one sends what has no receipt, first of all what was planned first;
- what may come twice at the receiver is one request, whose answer was lost, under the same identities.

Delivery is at least once, and exactly once at a receiver that knows an identity again. The order of a key is that of its
`sequence`: within a plan the order of the rows' positions, then plan after plan. A correction of an old row comes after newer
rows of its key, and says which position it is about. An outbox that was dropped begins another stream, with other identities.

The table `<schema>.<name>_outbox` has a row for every record, for good; the view `<schema>.<name>` shows what the receiver has
now: the newest state of each position that has arrived. Source: Chris Richardson, *Microservices Patterns*, "Transactional
outbox".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import psycopg2
from psycopg2.errors import LockNotAvailable
from psycopg2.extensions import cursor
from psycopg2.extras import execute_values
from psycopg2.sql import SQL, Composed, Identifier

from de_resources.contract import Contract
from de_resources.delivery.errors import FeedBusy, OutboxLost, PlanRefused
from de_resources.delivery.records import Answers, Outcome, OutgoingRecord
from de_resources.delta.write.crash_points import crash_point
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.creation import create_missing
from de_resources.postgres.transaction import explained, reason_of, sql_columns

NO_KEY = "no key: nothing says what it comes after"
PATIENCE_SECONDS = 600
_TABLE = """
    CREATE TABLE {0} (number bigint PRIMARY KEY, stream uuid NOT NULL, slice text NOT NULL, key text NOT NULL,
    sequence bigint NOT NULL, position text NOT NULL, body jsonb, state text NOT NULL, said text, attempts integer NOT NULL,
    planned_by text NOT NULL, planned_at timestamptz NOT NULL DEFAULT now(), answered_by text, answered_at timestamptz,
    UNIQUE (key, sequence));
    CREATE INDEX ON {0} (slice, key, position, number DESC);
    CREATE INDEX ON {0} (number) WHERE state = 'pending';
    CREATE INDEX ON {0} (key, sequence) WHERE state = 'refused'
"""
_PLAN = """
    WITH known AS (
        SELECT DISTINCT ON (key, position) key, position, body FROM {outbox} WHERE slice = %(slice)s
        ORDER BY key, position, number DESC
    ), changed AS (
        SELECT coalesce(p.key, k.key) AS key, coalesce(p.position, k.position) AS position, p.body
        FROM planned p FULL JOIN known k ON p.key = k.key AND p.position = k.position
        WHERE p.body IS DISTINCT FROM k.body
    ), last AS MATERIALIZED (
        SELECT coalesce((SELECT max(number) FROM {outbox}), 0) AS number,
            coalesce((SELECT stream FROM {outbox} LIMIT 1), gen_random_uuid()) AS stream
    ), last_of_key AS (
        SELECT key, max(sequence) AS sequence FROM {outbox} WHERE key IN (SELECT key FROM changed) GROUP BY key
    )
    INSERT INTO {outbox} (number, stream, slice, key, sequence, position, body, state, said, attempts, planned_by)
    SELECT last.number + row_number() OVER (ORDER BY c.position, c.key), last.stream, %(slice)s, c.key,
        coalesce(k.sequence, 0) + row_number() OVER (PARTITION BY c.key ORDER BY c.position), c.position, c.body,
        CASE WHEN c.key = '' THEN 'refused' ELSE 'pending' END, CASE WHEN c.key = '' THEN %(no_key)s END, 0, %(run)s
    FROM changed c CROSS JOIN last LEFT JOIN last_of_key k USING (key)
"""
_ANSWERED = """
    UPDATE {} AS o SET state = a.state, said = a.said, attempts = o.attempts + 1, answered_by = a.run, answered_at = now()
    FROM (VALUES %s) AS a(number, state, said, run) WHERE o.number = a.number
"""
_DUE = """
    SELECT stream, number, key, sequence, position, body FROM {0} o WHERE state = 'pending' AND NOT EXISTS (
        SELECT FROM {0} r WHERE r.key = o.key AND r.state = 'refused' AND r.sequence < o.sequence)
    ORDER BY number LIMIT %s
"""
_STATES = """
    SELECT count(*), count(*) FILTER (WHERE state = 'delivered'), count(*) FILTER (WHERE state = 'refused'),
        count(*) FILTER (WHERE state = 'pending' AND NOT {held}), count(*) FILTER (WHERE state = 'pending' AND {held})
    FROM {outbox} o WHERE slice = %s
"""
_HELD = "EXISTS (SELECT FROM {} r WHERE r.key = o.key AND r.state = 'refused' AND r.sequence < o.sequence)"
_STATE_OF = {Outcome.ACCEPTED: "delivered", Outcome.REPEATED: "delivered", Outcome.REFUSED: "refused"}


@dataclass(frozen=True)
class FeedRow:
    """A row that is to be delivered: of the records of one `key` the one with the lower `position` goes first.

    Key and position identify the row within its slice; positions are texts that sort in their order.
    """

    key: str | None
    position: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class OutboxStanding:
    """How many records of a slice there are, and in which state."""

    planned: int
    delivered: int
    refused: int
    pending: int
    held: int
    """Behind a refused one of their key."""


class Outbox:
    """The outbox of a feed, which is called like the dataset of its contract. Raises `NoSuchColumnType`."""

    def __init__(self, database: PostgresDatabase, contract: Contract) -> None:
        self.name = contract.name
        self._database = database
        self._columns = sql_columns(contract)
        schema, _, name = contract.name.partition(".")
        self._table, self._view = Identifier(schema, f"{name}_outbox"), Identifier(schema, name)

    @contextmanager
    def alone(self, seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
        """Be the feed's only sender meanwhile; others wait. The server ends it with the process that holds it.

        The tables are made where they are absent. Raises `FeedBusy`, `OutboxLost`, `ServiceUnavailable`.
        """
        with closing(self._database.open()) as session, self._explained():
            session.autocommit = True
            with session.cursor() as statement:
                statement.execute("SELECT set_config('lock_timeout', %s, false)", (f"{int(seconds * 1000)}",))
                try:
                    statement.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (f"{self.name}: sender",))
                except LockNotAvailable as error:
                    raise FeedBusy(self.name, seconds) from error
            with self._statement() as statement:
                create_missing(
                    statement, [(self._table, SQL(_TABLE).format(self._table)), (self._view, self._as_view())]
                )
            yield

    def plan(self, slice_: str, rows: Iterable[FeedRow], run: str) -> int:
        """Make records of what is new in the slice, or other than it was, in one transaction; returns how many.

        A row that is gone is withdrawn: a record without a body. A row without a key is refused at once, and noted as such. A
        rerun with the same rows makes none. Raises `PlanRefused`, `OutboxLost`, `ServiceUnavailable`.
        """
        try:
            values = [(row.key or "", row.position, _text(row.values)) for row in rows]
        except (TypeError, ValueError) as error:
            raise PlanRefused(self.name, str(error)) from None
        if any("\x00" in key + position or "\\u0000" in text for key, position, text in values):
            raise PlanRefused(self.name, "one of them has a character NUL, which no text of the database can hold")
        if len({(key, position) for key, position, _ in values}) < len(values):
            raise PlanRefused(self.name, "two of them have the same key and position")
        crash_point("before_write", self.name)
        with explained(self.name, slice_), self._statement() as statement:
            statement.execute("CREATE TEMPORARY TABLE planned (key text, position text, body jsonb) ON COMMIT DROP")
            execute_values(statement, "INSERT INTO planned VALUES %s", values, page_size=1000)
            known = {"slice": slice_, "no_key": NO_KEY, "run": run}
            statement.execute(SQL(_PLAN).format(outbox=self._table), known)
            count = int(statement.rowcount)
            crash_point("before_commit", self.name)
        crash_point("after_commit", self.name)
        return count

    def due(self, at_most: int) -> list[OutgoingRecord]:
        """The records that wait to be sent, in their order, from whatever slice; without those that are held."""
        with self._explained(), self._statement() as statement:
            statement.execute(SQL(_DUE).format(self._table), (at_most,))
            return [_record(row) for row in statement.fetchall()]

    def note(self, answers: Answers, run: str) -> None:
        """Remember what the receiver said, in one transaction. Who is rejected goes on waiting."""
        values = [(r.number, _STATE_OF.get(a.outcome, "pending"), a.said or None, run) for r, a in answers.items()]
        crash_point("before_commit", f"{self.name}:receipts")
        with self._explained(), self._statement() as statement:
            execute_values(statement, SQL(_ANSWERED).format(self._table), values, page_size=len(values) or 1)
        crash_point("after_commit", f"{self.name}:receipts")

    def release(self, keys: Sequence[str]) -> int:
        """Do without the refused records of these keys, so that those behind them go on; returns how many."""
        with self._explained(), self._statement() as statement:
            release = SQL("UPDATE {} SET state = 'given up' WHERE state = 'refused' AND key = ANY (%s)")
            statement.execute(release.format(self._table), (list(keys),))
            return int(statement.rowcount)

    def standing(self, slice_: str) -> OutboxStanding:
        """How a slice stands."""
        held = SQL(_HELD).format(self._table)
        with self._explained(), self._statement() as statement:
            statement.execute(SQL(_STATES).format(outbox=self._table, held=held), (slice_,))
            (counts,) = statement.fetchall()
        return OutboxStanding(*counts)

    def _as_view(self) -> Composed:
        """What the receiver has: of each position the newest state that has arrived, unless that is that it is gone."""
        columns = ((Identifier(name), type_.partition(" NOT NULL")[0]) for name, type_ in self._columns)
        listed = SQL(", ").join(SQL("{} " + type_).format(name) for name, type_ in columns)
        names = SQL(", ").join(SQL("r.{}").format(Identifier(name)) for name, _ in self._columns)
        return SQL(
            "CREATE VIEW {} AS SELECT {} FROM (SELECT DISTINCT ON (slice, key, position) body FROM {} "
            "WHERE state = 'delivered' ORDER BY slice, key, position, number DESC) AS newest, jsonb_to_record(body) AS r({}) "
            "WHERE body IS NOT NULL"
        ).format(self._view, names, self._table, listed)

    @contextmanager
    def _statement(self) -> Iterator[cursor]:
        with self._database.connect() as session, session.cursor() as statement:
            yield statement

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg2.Error as error:
            raise OutboxLost(self.name, reason_of(error)) from error


def _record(row: tuple[Any, ...]) -> OutgoingRecord:
    """What is sent: the record's place, and its values; none where the row is gone."""
    stream, number, key, sequence, position, values = row
    body = json.dumps({"position": position, "values": values}, sort_keys=True, separators=(",", ":"))
    return OutgoingRecord(str(stream), int(number), key, int(sequence), body)


def _text(values: Mapping[str, Any]) -> str:
    """As JSON; times as ISO 8601 in their own zone."""
    return json.dumps(dict(values), default=_plain, allow_nan=False)


def _plain(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not sent")
