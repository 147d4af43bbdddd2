"""The engine: one Spark session for assets, checks and tools, local or remote by configuration only.

| `url` (or `DE_SPARK`)   | engine                                                                              |
|-------------------------|-------------------------------------------------------------------------------------|
| `sc://host:port`        | Spark Connect: a warm server that every run shares; a step costs a connection        |
| `spark://host:port`     | a cluster, with the driver in this process                                          |
| `local[n]`              | classic, inside this process                                                        |
| unset                   | the local Connect server where `de up` started one and it answers, else `local[*]`  |

Code against it stays Spark-Connect-safe: DataFrames and SQL, no RDDs, no `sparkContext`, no `DeltaTable` class.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from de_resources.compat.java_process import (
    forget_java_process,
    forget_stopped_session,
    java_process_lives,
    session_was_stopped,
)
from de_resources.engine.errors import BROKEN_CALLS, ENGINE_ERRORS, broke_off, session_is_gone
from de_resources.engine.own_commits import USER_METADATA, session_mark
from de_resources.engine.sessions import is_connect
from de_resources.errors import TransientError
from de_resources.local.discovery import local_endpoint
from de_resources.local.endpoints import accepts_connections
from de_resources.local.engine_conf import engine_conf
from de_resources.settings import Settings


class EngineLost(TransientError):
    """The engine went away while it was used."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        super().__init__(
            f"The engine {engine} stopped answering while it worked. Uncommitted work is discarded and tables are as "
            "they were. Look at `de status` and `de logs spark_connect`, start it with `de up`, then re-execute the run."
        )


class EngineUnreachable(TransientError):
    """A Connect server that does not take connections. Said at once, instead of after the client's retries."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        super().__init__(
            f"The engine {engine} does not answer. Look at `de status`, start it with `de up`, and run again; "
            "for an engine inside this process set DE_SPARK=local[*]."
        )


class SparkEngine(LazyPySparkResource):
    """A lazy Spark session. Nothing is started before the first use of `spark_session`.

    `spark_config` adds to, and wins over, the platform's settings (`engine_conf`) and applies where this process starts
    the engine; a remote server has its own.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, description="Additional Spark settings.")
    url: str | None = Field(
        default=None, description="sc://…, spark://… or local[n]; default: DE_SPARK, then automatic."
    )
    _spark_session: SparkSession | None = PrivateAttr(default=None)
    _opened: str | None = PrivateAttr(default=None)

    @property
    def spark_session(self) -> SparkSession:
        """The session, made on first use, and made again when the previous one was stopped or lost.

        Raises `EngineUnreachable` where it would be on a server that does not answer.
        """
        if self._spark_session is None or _stopped(self._spark_session):
            self._opened = self.resolved_url()
            self._spark_session = open_session(self._opened, self.spark_config)
        return self._spark_session

    def lost(self) -> EngineLost:
        """Forget a session whose engine is gone, and return the error that says so.

        Without this the client would go on calling the dead server when the process ends.
        """
        session, error = self._spark_session, EngineLost(self.label)
        if session is not None and is_connect(session):
            session.client.close()
        elif session is not None and not java_process_lives(_ENDING):
            forget_java_process()
        self._spark_session = self._opened = None
        return error

    def lost_by(self, error: Exception) -> EngineLost | None:
        """`lost`, where the engine that this resource has used is gone; None for an engine that only refuses.

        A failure that does not say it itself is followed by a look at the engine: its last words differ each time.
        """
        if not isinstance(error, BROKEN_CALLS):
            return None
        if session_is_gone(error):
            return self.lost()
        session = self._spark_session
        if session is None:
            return None
        patience = _ENDING if broke_off(error) else 0
        return None if _answers(session, self._opened or "", patience) else self.lost()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise `EngineLost` for whatever error it is by which a call finds out that the engine is gone."""
        try:
            yield
        except BROKEN_CALLS as error:
            lost = self.lost_by(error)
            if lost is None:
                raise
            raise lost from error

    def resolved_url(self) -> str:
        """The engine's address as in the module's table. May hold a token: never print it, print `label`.

        A process that has used a server stays with it: an engine of its own could not read the frames it holds, and
        would be a second one that commits.
        """
        settings = Settings.from_environment()
        return self.url or settings.spark or _local_server(settings) or next(reversed(_connections), "local[*]")

    @property
    def label(self) -> str:
        """The engine for people: its address without parameters, which may hold credentials."""
        return _label(self._opened or self.resolved_url())

    @property
    def shared(self) -> bool:
        """Whether several processes use the same engine, which then arbitrates their commits."""
        return (self._opened or self.resolved_url()).startswith("sc://")


def _local_server(settings: Settings) -> str | None:
    """The Connect server that `de up` started, with its token, where it answers."""
    endpoint = local_endpoint(settings, "spark_connect")
    return f"sc://{endpoint.address}/;token={endpoint.password.get_secret_value()}" if endpoint else None


def _label(url: str) -> str:
    return url.split(";", 1)[0].rstrip("/")


def _stopped(session: SparkSession) -> bool:
    if is_connect(session):
        return bool(session.client.is_closed)
    return session_was_stopped(session)


def _answers(session: SparkSession, url: str, patience: float = 0) -> bool:
    """Whether the engine behind a session is there: its server takes connections, or its process lives and nobody stopped it.

    `patience`: seconds for a process of our own that is about to end.
    """
    if is_connect(session):
        return not session.client.is_closed and _takes_connections(url)
    return java_process_lives(patience) and not _stopped(session)


def _takes_connections(url: str) -> bool:
    address = urlsplit(_label(url))
    return accepts_connections(address.hostname or "", address.port or _CONNECT_PORT)


_CONNECT_PORT = 15002
_ENDING = 5.0
"""Seconds that a Java process needs at most from breaking a call to its end."""
_connections: dict[str, SparkSession] = {}
"""One connection per server and process, the newest last: frames of two sessions cannot be joined."""


def open_session(url: str, extra: dict[str, Any] | None = None) -> SparkSession:
    """The process's session on an engine. Classic sessions load Delta's jars and the platform's settings."""
    if url.startswith("sc://"):
        return _connect(url)
    if not _connections:
        # PySpark's mark of a process that uses a server is inherited by the processes that this one starts.
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    # Python workers must be the interpreter that runs this code, with the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    forget_stopped_session()
    builder = SparkSession.builder.master(url).appName("de")
    for key, value in {**engine_conf(Settings.from_environment(), url), **(extra or {})}.items():
        builder = builder.config(key, str(value))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # No setting of the builder, which would change it in a session that is there and under a merge that has its stamp in it.
    if session.conf.get(USER_METADATA, None) is None:
        session.conf.set(USER_METADATA, session_mark())
    return session


def loss(error: Exception) -> EngineLost | None:
    """`SparkEngine.lost_by` for a call outside of `SparkEngine.watched`, by whichever connection of this process."""
    if isinstance(error, ENGINE_ERRORS) or session_is_gone(error):
        for url, session in reversed(_connections.items()):
            if session_is_gone(error) or not _answers(session, url):
                session.client.close()
                return EngineLost(_label(url))
    return None


def close_connections() -> None:
    """Leave all servers, before they are stopped."""
    for session in _connections.values():
        if not _stopped(session):
            session.stop()
    _connections.clear()


def _connect(url: str) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    if "SPARK_CONNECT_LOG_LEVEL" not in os.environ:
        # The client also raises every error that it logs; logged, one is a page of gRPC on the terminal.
        logging.getLogger("pyspark.sql.connect.logging").setLevel(logging.CRITICAL)
    session = _connections.get(url)
    if session is None or _stopped(session):
        if not _takes_connections(url):
            raise EngineUnreachable(_label(url))
        session = SparkSession.builder.remote(url).config(USER_METADATA, session_mark()).create()
        # The default policy waits up to ten minutes for a server that is gone. One that was started again does not
        # know the session, so that waiting for longer than a hiccup of the network only delays the error.
        session.client.set_retry_policies([DefaultPolicy(max_retries=4, initial_backoff=200, max_backoff=8000)])
        _connections.pop(url, None)
        _connections[url] = session
    return session
