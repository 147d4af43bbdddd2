"""Sessions: which of the two kinds one is, a client of a Spark Connect server or the engine inside this process; settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from de_resources.engine.errors import BROKEN_CALLS, broke_off, session_is_gone


def is_connect(session: SparkSession) -> bool:
    """Whether the session is a client's. Known by its module, so that asking imports no client."""
    return type(session).__module__.startswith("pyspark.sql.connect")


@contextmanager
def only_meanwhile(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for what is started meanwhile: a query takes them along, and keeps them in its checkpoint.

    Threads share a session: who begins or ends such a time beside another one may change the setting for it.
    """
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    is_gone = False
    try:
        yield
    except BROKEN_CALLS as error:
        # With it its settings are gone: to give them back would only take time, and hide what happened.
        is_gone = broke_off(error) or session_is_gone(error)
        raise
    finally:
        if not is_gone:
            _give_back(session, before)


def _give_back(session: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, known in settings.items():
        if known is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, known)
