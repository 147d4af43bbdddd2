"""The platform's role and database inside a PostgreSQL server: created once, repaired when the password changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2
from psycopg2.extensions import ISOLATION_LEVEL_AUTOCOMMIT, connection, encrypt_password
from psycopg2.extras import LogicalReplicationConnection
from psycopg2.sql import SQL, Identifier, Literal

from de_resources.local.endpoints import Endpoint
from de_resources.local.postgres_guard import SETTING

BUSINESS, ENGINEERS = "de_business", "de_engineers"
"""Groups without a login, for people: who reads what contracts promise, and who reads how it came there as well."""
_PLATFORM = f"-c {SETTING}=on"
_PLAIN = f"{_PLATFORM} -c timezone=UTC -c datestyle=ISO -c intervalstyle=iso_8601 -c extra_float_digits=3"


def ensure(admin: Callable[[], connection], endpoint: Endpoint) -> None:
    """Make a login as the endpoint's role on the endpoint's database work; touches nothing when it does already.

    The role is no superuser. It may replicate, and as the owner of its database create schemas and publications there.
    """
    if _can_log_in(endpoint):
        return
    with closing(admin()) as session:
        # CREATE DATABASE runs in no transaction.
        session.set_isolation_level(ISOLATION_LEVEL_AUTOCOMMIT)
        _ensure_role(session, endpoint)
        _ensure_database(session, endpoint)


def ensure_writer(admin: Callable[[], connection], endpoint: Endpoint) -> None:
    """Make a login as a role without any right of its own work, on a database that exists."""
    if _can_log_in(endpoint):
        return
    with closing(admin()) as session, session:
        _ensure_role(session, endpoint, "NOREPLICATION")


def ensure_groups(session: connection) -> None:
    """Make the groups of readers that are missing; the session is a superuser's."""
    with session, session.cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        if cursor.fetchone() == (True,):
            return
        cursor.execute("SELECT rolname FROM pg_roles WHERE rolname IN (%s, %s)", (BUSINESS, ENGINEERS))
        known = {name for (name,) in cursor.fetchall()}
        for group in {BUSINESS, ENGINEERS} - known:
            cursor.execute(SQL("CREATE ROLE {} NOLOGIN").format(Identifier(group)))


def log_in(endpoint: Endpoint, timeout: int = 3, *, replication: bool = False) -> connection:
    """A session of the platform as the endpoint's role; for `replication` one that streams, with texts as ISO 8601 in UTC."""
    kind: dict[str, Any] = (
        {"connection_factory": LogicalReplicationConnection, "options": _PLAIN}
        if replication
        else {"options": _PLATFORM}
    )
    session: connection = psycopg2.connect(
        **kind,
        host=endpoint.host,
        port=endpoint.port,
        dbname=endpoint.database,
        user=endpoint.user,
        password=endpoint.password.get_secret_value(),
        connect_timeout=timeout,
    )
    return session


def _can_log_in(endpoint: Endpoint) -> bool:
    try:
        log_in(endpoint).close()
    except psycopg2.OperationalError:
        return False
    return True


def _ensure_role(session: connection, endpoint: Endpoint, replication: str = "REPLICATION") -> None:
    # Hashed here, so that the server never sees the password in a statement that it might log.
    secret = encrypt_password(endpoint.password.get_secret_value(), endpoint.user, session, "scram-sha-256")
    with session.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (endpoint.user,))
        verb = SQL("ALTER" if cursor.fetchone() else "CREATE")
        statement = SQL("{} ROLE {} LOGIN {} NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD {}")
        role = Identifier(endpoint.user)
        cursor.execute(statement.format(verb, role, SQL(replication), Literal(secret)))


def _ensure_database(session: connection, endpoint: Endpoint) -> None:
    with session.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (endpoint.database,))
        if not cursor.fetchone():
            names = Identifier(str(endpoint.database)), Identifier(endpoint.user)
            cursor.execute(SQL("CREATE DATABASE {} OWNER {}").format(*names))
