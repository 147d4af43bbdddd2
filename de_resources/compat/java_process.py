"""The Java process behind PySpark's classic sessions: whether it lives and has told all, how the next one gets a new one."""

from __future__ import annotations

from subprocess import TimeoutExpired

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

__all__ = [
    "forget_java_process",
    "forget_stopped_session",
    "java_process_lives",
    "session_was_stopped",
    "wait_until_told",
]


def wait_until_told(session: SparkSession) -> None:
    """Wait until the status of this classic session's engine knows of all that has ended by now: it is told of it later."""
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


def session_was_stopped(session: SparkSession) -> bool:
    """Whether somebody has stopped this classic session, or the engine itself, as where a cluster's master is gone."""
    context = session.sparkContext._jsc
    try:
        return context is None or bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return False  # A process that is gone was not stopped.


def java_process_lives(patience: float = 0) -> bool:
    """Whether the process of the classic sessions runs. One that somebody else has started counts as running.

    `patience`: seconds for a process that is about to end. One that was killed closes its connections, by which a call
    breaks, a moment before the system counts it as ended.
    """
    gateway = SparkContext._gateway
    if gateway is None or gateway.proc is None:
        return gateway is not None
    try:
        gateway.proc.wait(timeout=patience)
    except TimeoutExpired:
        return True
    return False


def forget_stopped_session() -> None:
    """Let the next classic session have a context of its own. PySpark keeps one that the engine itself has stopped for ever."""
    session = SparkSession._instantiatedSession
    if session is not None and session_was_stopped(session):
        session.stop()


def forget_java_process() -> None:
    """Let the next classic session start a process of its own. PySpark keeps the one that died for ever."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
