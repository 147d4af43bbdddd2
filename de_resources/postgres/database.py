"""The database as a Dagster resource: the one that configuration names, else the one that `de up` started here."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import ClassVar

import dagster as dg
import psycopg2
from psycopg2.extensions import connection
from pydantic import Field

from de_resources.errors import PermanentError
from de_resources.local.discovery import local_endpoint
from de_resources.local.endpoints import Endpoint, ServiceUnavailable
from de_resources.local.postgres_role import log_in
from de_resources.secrets import Secrets
from de_resources.settings import Settings

__all__ = [
    "DatabaseMisconfigured",
    "NoWriter",
    "PostgresDatabase",
    "RelationMissing",
    "ServiceUnavailable",
    "SessionLost",
]

ANSWER_SECONDS = 5
_HINT = "start it with `de up postgres`, or name another server in the resource's `host`."


class SessionLost(ServiceUnavailable, psycopg2.OperationalError):
    """The database ended a session in the middle of its transaction, which is visible as a whole or not at all.

    Also one of the driver's errors, for who handles these.
    """


class DatabaseMisconfigured(PermanentError):
    """A server without all that is needed to log in."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"The server {host} cannot be used: give `user`, `database` and `password` (secret://name) too."
        )


class NoWriter(PermanentError):
    """A configured server without the second role that some writers need."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"The server {host} has no role here for writers that must not own what they write. Nothing was written. Give "
            "the resource `writer` and `writer_password` (secret://name): a role that may log in, and nothing else."
        )


class RelationMissing(PermanentError):
    """A table or view that is read, and that the database does not have."""

    def __init__(self, relation: str, database: str, address: str) -> None:
        self.relation, self.database, self.address = relation, database, address
        super().__init__(
            f"The database `{database}` on {address} has no table `{relation}` that its role may see. Nothing was read, and "
            "what was loaded before stays. Ask its owner whether it was dropped or renamed, or feed it with `de seed`."
        )


class PostgresDatabase(dg.ConfigurableResource):
    """How clients and Spark reach the database. Nothing is contacted before a method is called.

    `password` is a reference (`secret://name`), never the value; without `host` all comes from the local server.
    """

    services: ClassVar[tuple[str, ...]] = ("postgres",)

    host: str | None = Field(default=None, description="unset: the local server")
    port: int = Field(default=5432, description="of a configured host")
    database: str | None = Field(default=None, description="unset: the local server's own")
    user: str | None = Field(default=None, description="role to log in as")
    password: str | None = Field(default=None, description="reference of the password: secret://name")
    writer: str | None = Field(default=None, description="role that fills versions and owns none of them")
    writer_password: str | None = Field(default=None, description="reference of its password: secret://name")

    @contextmanager
    def connect(self, *, writer: bool = False) -> Iterator[connection]:
        """A session with one transaction: committed at the end, rolled back on an error, closed in any case.

        Raises:
            ServiceUnavailable: no session within five seconds, or none is configured and none runs here.
            SessionLost: the server stopped, or ended the session, before the transaction's end was confirmed.
            DatabaseMisconfigured, UnknownSecret, NotASecretReference: the configured credentials are no good.
            NoWriter: for the `writer`, a role without rights of its own, of a configured server that names none.
        """
        with closing(self.open(writer=writer)) as session:
            address = f"{session.info.host}:{session.info.port}"
            try:
                with session:
                    yield session
            except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
                if not session.closed:  # it serves on: a lock, a time-out
                    raise
                raise SessionLost("postgres", address, f"{_first_said(error)}; {_HINT}") from error

    def has(self, relation: str) -> bool:
        """Whether there is a table or view of this name. Raises as `connect`."""
        with self.connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (relation,))
            return cursor.fetchone() == (True,)

    def jdbc_options(self, table: str) -> dict[str, str]:
        """Options by which Spark's `jdbc` source reads a table: the password is one of its own, which plans redact.

        The table is looked up first: what is wrong with it is said here, and not by a stack of the driver.

        Raises:
            RelationMissing: the database has no such table or view.
            As `connect`.
        """
        known, endpoint = self.has(table), self._endpoint()
        if not known:
            raise RelationMissing(table, str(endpoint.database), endpoint.address)
        return {
            "dbtable": table,
            "url": f"jdbc:postgresql://{endpoint.address}/{endpoint.database}",
            "user": endpoint.user,
            "password": endpoint.password.get_secret_value(),
            "driver": "org.postgresql.Driver",
        }

    def reachable(self) -> bool:
        """Whether a login succeeds within five seconds."""
        try:
            self.open().close()
        except ServiceUnavailable:
            return False
        return True

    def description(self) -> dict[str, str]:
        """Address, database and user for metadata, without the password."""
        endpoint = self._endpoint()
        return {"address": endpoint.address, "database": str(endpoint.database), "user": endpoint.user}

    @property
    def writer_role(self) -> str:
        """The role of `connect(writer=True)`. Raises `NoWriter`."""
        return self._endpoint(writer=True).user

    def open(self, *, replication: bool = False, writer: bool = False) -> connection:
        """A session for code that manages its own transactions; the caller closes it. Raises as `connect`.

        For `replication` it is one of psycopg2's `LogicalReplicationConnection`.
        """
        endpoint = self._endpoint(writer=writer)
        try:
            return log_in(endpoint, timeout=ANSWER_SECONDS, replication=replication)
        except psycopg2.OperationalError as error:
            said = " ".join(str(error).split())
            raise ServiceUnavailable("postgres", endpoint.address, f"{said}; {_HINT}") from error

    def _endpoint(self, *, writer: bool = False) -> Endpoint:
        settings = Settings.from_environment()
        if self.host:
            if not (self.user and self.password and self.database):
                raise DatabaseMisconfigured(self.host)
            if writer and not (self.writer and self.writer_password):
                raise NoWriter(self.host)
            user, reference = (self.writer, self.writer_password) if writer else (self.user, self.password)
            password = Secrets.from_settings(settings).resolve_hidden(str(reference))
            return Endpoint("postgres", self.host, self.port, str(user), password, self.database)
        endpoint = local_endpoint(settings, "postgres")
        if endpoint is None:
            raise ServiceUnavailable("postgres", "this machine", _HINT)
        return _as_writer(settings, endpoint) if writer else endpoint


def _first_said(error: BaseException) -> str:
    """On one line. Of an error that hides the one that it came with, that one's."""
    first = error.__context__ if isinstance(error.__context__, psycopg2.OperationalError) else error
    return " ".join(str(first).split())


def _as_writer(settings: Settings, endpoint: Endpoint) -> Endpoint:
    from de_resources.local.postgres_server import PostgresService

    return PostgresService(settings).writer(endpoint)
