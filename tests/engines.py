"""How the engines of the tests are started: options for every JVM, by `JDK_JAVA_OPTIONS`; and how they get their rows."""

from __future__ import annotations

from typing import Any

from pyspark import RDD
from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer, Serializer

from de_resources.engine.plans import INTERPRETED

# Thousands of tiny queries never repay the optimising compiler, which would take half of a small machine's time, nor a
# collector with threads of its own: the same tests took 114 CPU seconds instead of 121.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
# For the same reason plans are interpreted instead of being compiled to Java first: a third of an engine's time.
# And for each column that is made, PySpark notes for the text of an error where in Python that was: six calls of the engine,
# and a fifth of the time of the units' own processes.
SESSIONS = {**INTERPRETED, "spark.python.sql.dataFrameDebugging.enabled": "false"}
JAVA_OPTIONS = " ".join([SHORT_LIVED_JAVA, *(f"-D{name}={value}" for name, value in SESSIONS.items())])


def send_rows_as_they_are() -> None:
    """Rows of a Python list reach the engine as they were pickled, wherever this process makes a frame of them.

    PySpark has Python workers unpickle them and pickle them again, unchanged, in each evaluation: it takes lists of one fixed
    length, which it made, and lists of any length, which the engine wants, for two formats. That is 30 of the 50 to 100 CPU
    milliseconds of a small query.
    """
    reserialize = RDD._reserialize

    def once(self: RDD[Any], serializer: Serializer | None = None) -> RDD[Any]:
        pickled = self._jrdd_deserializer
        same = (
            type(pickled) is BatchedSerializer
            and isinstance(serializer, AutoBatchedSerializer)
            and pickled.serializer == serializer.serializer
        )
        return self if same else reserialize(self, serializer)

    RDD._reserialize = once  # type: ignore[method-assign]
