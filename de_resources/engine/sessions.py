"""Which of its two kinds a session is: a client of a Spark Connect server, or the engine inside this process."""

from __future__ import annotations

from pyspark.sql import SparkSession


def is_connect(session: SparkSession) -> bool:
    """Whether the session is a client's. Known by its module, so that asking imports no client."""
    return type(session).__module__.startswith("pyspark.sql.connect")
