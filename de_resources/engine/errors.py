"""What an engine says when it refuses or fails, in the same words for both kinds of session.

PySpark has a class for some of the engine's errors, and leaves the others as they come: a Spark Connect session as
`SparkConnectGrpcException` or `UnknownException`, a classic one as `Py4JJavaError`, which is no `PySparkException` at all.
Both tell the same: error conditions, as Spark and Delta document them, and the Java classes of the failure and of its
causes. Who asks for these need not know the kind of session, and no value of a row can be mistaken for a condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from de_resources.compat.engine_errors import java_origin, plain_message

ENGINE_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""All that a call of the engine raises while the engine is there."""

BROKEN_CALLS: tuple[type[Exception], ...] = (*ENGINE_ERRORS, OSError, EOFError, ValueError)
"""The same, and what a call raises when there is no engine any more: gRPC has a `ValueError` for a channel that was closed."""

# A cause in the stack trace that a Connect server sends: class, condition, message.
_CAUSE = re.compile(
    r"^Caused by: (?P<java>[\w.$]+): (?:\[(?P<condition>[A-Z][\w.]*)\] )?(?P<message>.*)$", re.MULTILINE
)
_JAVA = re.compile(r"^\((?P<java>[\w.$]+)\) ")
_NO_SESSION = (
    *("NO_ACTIVE_SESSION", "NO_ACTIVE_OR_DEFAULT_SESSION", "SESSION_OR_CONTEXT_NOT_EXISTS"),  # says the client
    *("INVALID_HANDLE", "SESSION_NOT_FOUND", "SPARK_CONNECT_ILLEGAL_STATE.SESSION_MANAGEMENT"),  # says the server
    "RETRIES_EXCEEDED",
)
_CHANNEL_CLOSED = "Cannot invoke RPC on closed channel"
_AWAY = frozenset(
    {
        "java.net.ConnectException",
        "java.net.NoRouteToHostException",
        "java.net.SocketException",
        "java.net.SocketTimeoutException",
        "org.apache.kafka.common.errors.DisconnectException",
        "org.apache.kafka.common.errors.NetworkException",
        "org.apache.kafka.common.errors.TimeoutException",
    }
)
_DATABASE = "org.postgresql.util.PSQLException"
_SESSION_ENDED = (
    "An I/O error occurred while sending to the backend",
    "FATAL: terminating connection",
    "FATAL: the database system is ",
    "This connection has been closed",
)
"""How the driver's messages begin where the server stopped while it was read, or does not serve yet."""


@dataclass(frozen=True)
class Said:
    """One error of an engine: a failure, or a cause of it. Empty where the engine does not tell."""

    java: str
    condition: str
    message: str


def causes(error: BaseException) -> Iterator[Said]:
    """The failure and its causes, the outermost first. Nothing for errors that do not come from an engine."""
    if isinstance(error, Py4JJavaError):
        yield from _java_chain(error.java_exception)
    elif isinstance(error, PySparkException):
        # What a classic session has converted keeps the Java error that it was.
        origin = java_origin(error)
        yield from _java_chain(origin) if origin is not None else _told(error)


def has_condition(error: BaseException, *prefixes: str) -> str | None:
    """The first condition of the failure or of a cause that begins with one of these."""
    return next((said.condition for said in causes(error) if said.condition.startswith(prefixes)), None)


def broke_off(error: BaseException) -> bool:
    """Whether a call ended without the engine's answer: its process may be ending just now."""
    # What the Java side has answered has a class of its own, or its trace in the message.
    return isinstance(error, (ConnectionError, EOFError)) or (type(error) is Py4JError and "Trace:" not in str(error))


def session_is_gone(error: BaseException) -> bool:
    """Whether the failure says itself that nobody answers, or that the server does not know the session any more."""
    if isinstance(error, Py4JNetworkError) or has_condition(error, *_NO_SESSION):
        return True
    # Who waits for his next attempt while somebody else gives the connection up, holds on to its closed channel.
    if isinstance(error, ValueError) and _CHANNEL_CLOSED in str(error):
        return True
    status = getattr(error, "getGrpcStatusCode", None)
    return status is not None and status().name == "UNAVAILABLE"


def source_away(error: BaseException) -> str | None:
    """What the engine says where a system that it reads from, or writes to, did not answer."""
    return next((said.message.split("\n", 1)[0] for said in causes(error) if _is_away(said)), None)


def _is_away(said: Said) -> bool:
    return said.java in _AWAY or (said.java == _DATABASE and said.message.startswith(_SESSION_ENDED))


def _java_chain(thrown: Any) -> Iterator[Said]:
    """A Java exception and its causes, asked of the engine. One that is gone cannot tell."""
    try:
        while thrown is not None:
            java = thrown.getClass().getName()
            yield Said(java, _condition(thrown), str(thrown.getMessage() or ""))
            thrown = thrown.getCause()
    except (Py4JError, OSError):
        return


def _condition(thrown: Any) -> str:
    try:
        return str(thrown.getCondition() or "")
    except Py4JError:  # no SparkThrowable
        return ""


def _told(error: PySparkException) -> Iterator[Said]:
    message = plain_message(error)
    java = _JAVA.match(message)
    yield Said(java["java"] if java else "", error.getCondition() or "", message)
    stack = getattr(error, "getStackTrace", None)
    for cause in _CAUSE.finditer((stack() if stack is not None else None) or ""):
        yield Said(cause["java"], cause["condition"] or "", cause["message"])
