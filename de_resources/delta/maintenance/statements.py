"""Delta's maintenance statements (OPTIMIZE, VACUUM, RESTORE), which take their options from the session only.

A session of their own keeps these options away from whatever else the process runs at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from de_resources.delta.table import CommitInfo
from de_resources.engine.own_commits import USER_METADATA
from de_resources.engine.sessions import is_connect


@contextmanager
def stamped(session: SparkSession, stamp: CommitInfo, **options: str) -> Iterator[SparkSession]:
    """A session beside `session`, on the same engine, whose commits carry the stamp; `options` are Delta's settings."""
    own = _beside(session)
    own.conf.set(USER_METADATA, stamp.text())
    for name, value in options.items():
        own.conf.set(f"spark.databricks.delta.{name}", value)
    try:
        yield own
    finally:
        if is_connect(own):
            own.client.release_session()
            own.client.close()


def _beside(session: SparkSession) -> SparkSession:
    # Each of the two kinds of session has only one of these methods.
    own: SparkSession = getattr(session, "cloneSession" if is_connect(session) else "newSession")()
    return own
