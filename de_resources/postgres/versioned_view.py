"""The same with PostgreSQL: a table per version, and one view that shows the live one.

Two roles do it. The *publisher* owns the view and every version; the *writer* logs in by itself, owns nothing, and may
insert into the one version that is being filled. Once that is complete it may only read: the database refuses to
change, empty or drop it. Versions lie in the schema `<schema>_versions`, beside two tables that say what they are
(`versions`) and which of them was live when (`switches`). Each step is a transaction of its own and can be tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg2
from psycopg2.extensions import cursor
from psycopg2.extras import execute_values
from psycopg2.sql import SQL, Composed, Identifier, Literal

from de_resources.contract import Contract
from de_resources.delta.write.crash_points import crash_point
from de_resources.errors import PermanentError, TransientError
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.creation import claim_schema, exists, lock
from de_resources.postgres.protection import protect
from de_resources.postgres.transaction import explained, reason_of, sql_columns
from de_resources.postgres.view_swap import PATIENCE, LockWait, swapping
from de_resources.proxy.manifest import WHOLE, Manifest
from de_resources.proxy.retention import RetentionPolicy, retained
from de_resources.proxy.store import NoSuchManifest, VersionMissing
from de_resources.proxy.switching import NothingPublished

LOCK_SECONDS = 90
"""How long one switch waits for another one, which waits for the view's readers."""

_CATALOGUE = """
    CREATE SCHEMA IF NOT EXISTS {versions};
    CREATE TABLE IF NOT EXISTS {versions}.versions (dataset text, version text, run_id text NOT NULL, rows bigint,
        started_at timestamptz NOT NULL DEFAULT now(), completed_at timestamptz, PRIMARY KEY (dataset, version));
    CREATE TABLE IF NOT EXISTS {versions}.switches (dataset text, number bigint, version text NOT NULL, why text NOT NULL,
        at timestamptz NOT NULL, PRIMARY KEY (dataset, number))
"""
_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_GRANTS = """
    SELECT CASE grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(grantee) END, privilege_type, is_grantable
    FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = to_regclass(%s) AND grantee <> relowner
"""


class ViewInUse(PermanentError):
    """Columns changed, and other objects of the database are built on the view as it is."""

    def __init__(self, view: str, reason: str) -> None:
        self.view, self.reason = view, reason
        super().__init__(
            f"The view `{view}` gets other columns, and others are built on it ({reason}). Nothing was switched, readers "
            "see the version before. Have them dropped, or keep the columns and add new ones at the end; then switch again."
        )


class VersionTaken(TransientError):
    """Another attempt at the same version has begun it again, in a table of its own."""

    def __init__(self, view: str, id_: str) -> None:
        self.view, self.id = view, id_
        super().__init__(
            f"Another attempt has begun version `{id_}` of `{view}` again, and what this one wrote is gone. The version is "
            "left to that attempt. Run again: a version that is complete by then is taken as it is."
        )


@dataclass(frozen=True)
class ProxyView:
    """The view `<schema>.<name>`, and what a version of it looks like."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    readers: tuple[str, ...] = ()
    """Who outside of the graph reads it, for who would take a column away."""

    @classmethod
    def of(cls, contract: Contract) -> ProxyView:
        """The view of a contract. Raises `NoSuchColumnType`."""
        return cls(contract.name, sql_columns(contract), contract.key, contract.consumers)

    @property
    def identifier(self) -> Identifier:
        """Its quoted name."""
        return Identifier(*self.name.split("."))

    @property
    def schema(self) -> str:
        """The view's schema."""
        return self.name.split(".")[0]

    @property
    def versions(self) -> Identifier:
        """The schema of the versions."""
        return Identifier(f"{self.schema}_versions")

    @property
    def switches(self) -> Identifier:
        """The table that says what the view showed when."""
        return Identifier(f"{self.schema}_versions", "switches")

    def version(self, id_: str) -> Identifier:
        """The table of a version."""
        schema, name = self.name.split(".")
        return Identifier(f"{schema}_versions", f"{name}_{id_}")


@dataclass(frozen=True)
class ViewProxy:
    """A view and the database that has it."""

    database: PostgresDatabase
    view: ProxyView
    patience: LockWait = PATIENCE

    def write_version(self, id_: str, rows: Iterable[Mapping[str, Any]], run: str) -> int:
        """Fill a version of its own and close it; readers do not see it yet. Returns its rows.

        A version that an earlier attempt completed is left as it is and `rows` are not looked at; one that it left
        incomplete is filled again. An attempt that is overtaken by another one closes nothing.
        Raises `VersionTaken`, `LoadRefused`, `LoadInterrupted`, `ServiceUnavailable`.
        """
        token = self._open(id_, run)
        if token is None:
            return self._rows(id_)
        crash_point("before_write", self.view.name)
        names = [name for name, _ in self.view.columns]
        into = SQL("INSERT INTO {} ({}) VALUES %s").format(
            self.view.version(id_), SQL(", ").join(map(Identifier, names))
        )
        with self._steps(id_), self.database.connect(writer=True) as session, session.cursor() as statement:
            # Nobody drops the table before this transaction ends.
            statement.execute(SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(self.view.version(id_)))
            self._require_own(statement, id_, token)
            execute_values(statement, into, ([row[name] for name in names] for row in rows), page_size=1000)
            crash_point("before_commit", self.view.name)
        crash_point("after_commit", self.view.name)
        return self._close(id_, token)

    def publish(self, id_: str, *, now: datetime) -> Manifest:
        """Point the view to a complete version; returns the state that readers see now.

        One that was live before stays what it is: a late retry must not undo what came after it. Readers wait for the
        moment of the switch, and none finds the view missing; one that stays in its transaction holds up the switch and not
        the others. Raises `VersionMissing`, `ViewBusy`, `ViewInUse`, `LoadInterrupted`.
        """
        crash_point("before_switch", self.view.name)
        with self._switching(id_) as statement:
            states = self._states(statement)
            if any(state.live[WHOLE] == id_ for state in states):
                return states[-1]
            why = f"run {self._run_of(statement, id_)}"
            return self._point(statement, id_, states, why, now)

    def roll_back(self, number: int, *, now: datetime) -> tuple[Manifest, bool]:
        """Show what state `number` showed, as a new state; and whether that changed anything.

        Raises `NothingPublished`, `NoSuchManifest`, `ViewBusy`, `ViewInUse`, `LoadInterrupted`.
        """
        with self._switching(f"state {number}") as statement:
            states = {state.number: state for state in self._states(statement)}
            if not states:
                raise NothingPublished(self.view.name)
            if number not in states:
                raise NoSuchManifest(self.view.name, number, sorted(states))
            live, id_ = states[max(states)], states[number].live[WHOLE]
            if live.live[WHOLE] == id_:
                return live, False
            self._run_of(statement, id_)
            return self._point(statement, id_, list(states.values()), f"rolled back to {number}", now), True

    def retain(self, promise: RetentionPolicy, now: datetime) -> list[str]:
        """Drop the versions that no kept state shows, as `retention.retain` does; returns their ids.

        The database would not drop the live one either: the view depends on it.
        """
        with self._switching("retention") as statement:
            states = self._states(statement)
            kept = retained(states, promise, now)
            numbers, needed = [s.number for s in kept], {s.live[WHOLE] for s in kept}
            shown = {s.live[WHOLE] for s in states}
            self._execute(
                statement, "DELETE FROM {versions}.switches WHERE dataset = %s AND number <> ALL(%s)", numbers
            )
            self._execute(
                statement,
                "SELECT version, coalesce(completed_at, started_at) FROM {versions}.versions WHERE dataset = %s",
            )
            dropped = [
                id_
                for id_, touched in statement.fetchall()
                if id_ not in needed and (id_ in shown or touched <= now - promise.unfinished)
            ]
            for id_ in dropped:
                statement.execute(SQL("DROP TABLE IF EXISTS {}").format(self.view.version(id_)))
            self._execute(
                statement, "DELETE FROM {versions}.versions WHERE dataset = %s AND version = ANY(%s)", dropped
            )
        return dropped

    def states(self) -> list[Manifest]:
        """What the view showed when, oldest first; the last one is live. None before the first version.

        Waits for no switch, and leaves the database as it is.
        """
        with self._reading("states") as statement:
            return self._states(statement) if exists(statement, self.view.switches) else []

    def _open(self, id_: str, run: str) -> int | None:
        """Create the version for the writer to fill; None where it is complete.

        Returns the attempt's token: the server's own number of the table, which is another one for every attempt.
        """
        columns = [SQL("{} " + type_).format(Identifier(name)) for name, type_ in self.view.columns]
        key = SQL(", ").join(map(Identifier, self.view.key))
        names = {"table": self.view.version(id_), "writer": Identifier(self.database.writer_role)}
        with self._switching(id_) as statement:
            self._execute(
                statement,
                "SELECT completed_at IS NOT NULL FROM {versions}.versions WHERE dataset = %s AND version = %s",
                id_,
            )
            if statement.fetchone() == (True,):
                return None
            self._execute(
                statement,
                "INSERT INTO {versions}.versions (dataset, version, run_id) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                id_,
                run,
            )
            # What an earlier attempt left halfway.
            statement.execute(SQL("DROP TABLE IF EXISTS {table}").format(**names))
            statement.execute(
                SQL("CREATE TABLE {table} ({columns}, PRIMARY KEY ({key}))").format(
                    columns=SQL(", ").join(columns), key=key, **names
                )
            )
            may = "GRANT USAGE ON SCHEMA {versions} TO {writer}; GRANT SELECT, INSERT ON {table} TO {writer}"
            statement.execute(SQL(may).format(versions=self.view.versions, **names))
            return self._token(statement, id_)

    def _token(self, statement: cursor, id_: str) -> int | None:
        statement.execute("SELECT to_regclass(%s)::oid::bigint", (self.view.version(id_).as_string(statement),))
        found: tuple[int | None] = statement.fetchone() or (None,)
        return found[0]

    def _require_own(self, statement: cursor, id_: str, token: int) -> None:
        """Raises `VersionTaken` where the version's table is that of another attempt."""
        if self._token(statement, id_) != token:
            raise VersionTaken(self.view.name, id_)

    def _close(self, id_: str, token: int) -> int:
        """Complete the version that this attempt has filled. Raises `VersionTaken`."""
        names = {"table": self.view.version(id_), "writer": Identifier(self.database.writer_role)}
        with self._switching(id_) as statement:
            self._require_own(statement, id_, token)
            statement.execute(
                SQL("REVOKE ALL ON {table} FROM {writer}; GRANT SELECT ON {table} TO {writer}").format(**names)
            )
            statement.execute(SQL("SELECT count(*) FROM {table}").format(**names))
            (rows,) = statement.fetchone() or (0,)
            self._execute(
                statement,
                "UPDATE {versions}.versions SET completed_at = clock_timestamp(), rows = {rows} "
                "WHERE dataset = %s AND version = %s",
                id_,
                rows=Literal(rows),
            )
        return int(rows)

    def _rows(self, id_: str) -> int:
        with self._reading(id_) as statement:
            self._execute(statement, "SELECT rows FROM {versions}.versions WHERE dataset = %s AND version = %s", id_)
            (rows,) = statement.fetchone() or (0,)
        return int(rows)

    def _states(self, statement: cursor) -> list[Manifest]:
        self._execute(
            statement, "SELECT number, version, at, why FROM {versions}.switches WHERE dataset = %s ORDER BY number"
        )
        return [Manifest(number, {WHOLE: id_}, at, why) for number, id_, at, why in statement.fetchall()]

    def _run_of(self, statement: cursor, id_: str) -> str:
        """Who wrote a complete version. Raises `VersionMissing`."""
        self._execute(
            statement,
            "SELECT run_id FROM {versions}.versions WHERE dataset = %s AND version = %s AND completed_at IS NOT NULL",
            id_,
        )
        found = statement.fetchone()
        if found is None:
            raise VersionMissing(self.view.name, id_)
        return str(found[0])

    def _point(self, statement: cursor, id_: str, states: Sequence[Manifest], why: str, now: datetime) -> Manifest:
        number = states[-1].number + 1 if states else 1
        swapping(statement, self.view.name, self.patience, lambda: point(statement, self.view, id_))
        self._execute(
            statement,
            "INSERT INTO {versions}.switches (dataset, number, version, why, at) VALUES (%s, %s, %s, %s, %s)",
            number,
            id_,
            why,
            now,
        )
        return Manifest(number, {WHOLE: id_}, now, why)

    def _execute(self, statement: cursor, text: str, *values: Any, **parts: Literal) -> None:
        """A statement on the catalogue; the first value is the dataset."""
        statement.execute(SQL(text).format(versions=self.view.versions, **parts), (self.view.name, *values))

    @contextmanager
    def _switching(self, what: str) -> Iterator[cursor]:
        """A transaction of the publisher, one at a time per dataset; the catalogue is created where it is missing."""
        with self._steps(what), self.database.connect() as session, session.cursor() as statement:
            statement.execute(SQL("SET LOCAL lock_timeout = {}").format(Literal(f"{LOCK_SECONDS}s")))
            lock(statement, f"{self.view.schema}: proxies")
            if not exists(statement, self.view.switches):
                claim_schema(statement, self.view.schema)
                statement.execute(SQL(_CATALOGUE).format(versions=self.view.versions))
            yield statement

    @contextmanager
    def _reading(self, what: str) -> Iterator[cursor]:
        """A transaction that reads the catalogue: it waits for no switch, and makes nothing."""
        with self._steps(what), self.database.connect() as session, session.cursor() as statement:
            yield statement

    @contextmanager
    def _steps(self, what: str) -> Iterator[None]:
        with explained(self.view.name, what):
            try:
                yield
            except psycopg2.errors.DependentObjectsStillExist as error:
                raise ViewInUse(self.view.name, reason_of(error)) from None


def point(statement: cursor, view: ProxyView, id_: str) -> None:
    """Let the view show a version, within the caller's transaction.

    `CREATE OR REPLACE VIEW` takes columns at the end and nothing else. Where columns went, moved or changed their type the
    view is made again in the same transaction, with the grants that it had: readers wait, and find the old one or the new
    one. What is built on it makes the database refuse, for nothing is dropped along.
    """
    before, after = _columns(statement, view.identifier), _columns(statement, view.version(id_))
    names = {"view": view.identifier, "table": view.version(id_)}
    select = SQL("SELECT {} FROM {table}").format(SQL(", ").join(Identifier(name) for name, _ in after), **names)
    if before == after[: len(before)]:
        statement.execute(SQL("CREATE OR REPLACE VIEW {view} AS {select}").format(select=select, **names))
    else:
        _make_anew(statement, view, select)
    protect(statement, view.identifier, view.name, (name for name, _ in view.columns), view.readers)


def _make_anew(statement: cursor, view: ProxyView, select: Composed) -> None:
    statement.execute(_GRANTS, (view.identifier.as_string(statement),))
    grants = statement.fetchall()
    again = SQL("DROP VIEW {view}; CREATE VIEW {view} AS {select}").format(select=select, view=view.identifier)
    statement.execute(again)
    for grant in grants:
        statement.execute(_grant(view, *grant))


def _columns(statement: cursor, relation: Identifier) -> list[tuple[str, str]]:
    statement.execute(_COLUMNS, (relation.as_string(statement),))
    return [(name, type_) for name, type_ in statement.fetchall()]


def _grant(view: ProxyView, role: str | None, privilege: str, passes_on: bool) -> Composed:
    to = SQL("PUBLIC") if role is None else Identifier(role)
    option = SQL(" WITH GRANT OPTION" if passes_on else "")
    # The privilege is a word of the server's own catalogue.
    return SQL("GRANT {} ON {} TO {}{}").format(SQL(privilege), view.identifier, to, option)
