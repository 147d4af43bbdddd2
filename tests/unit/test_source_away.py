"""A source that stops answering in the middle of a stream: known by what the engine says, and by nothing else.

What it says was seen with a broker that was killed; `tests/services/test_topic_stream.py` kills one, as a long proof.
"""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from de_resources.delta.table import Table
from de_resources.delta.write.refusals import SourceAway, explained
from de_resources.errors import TransientError

pytestmark = [pytest.mark.faults, pytest.mark.pattern("checkpointer")]

STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Timed out. SQLSTATE: XXKST"
AWAY = (
    "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: describeTopics",
    "org.apache.kafka.common.errors.DisconnectException: Cancelled in-flight FETCH request",
    "java.net.ConnectException: Connection refused",
    "org.postgresql.util.PSQLException: An I/O error occurred while sending to the backend.",
    "org.postgresql.util.PSQLException: FATAL: terminating connection due to administrator command",
    "org.postgresql.util.PSQLException: FATAL: the database system is starting up",
)
HERE = (
    'org.postgresql.util.PSQLException: ERROR: column "FATAL: the database system is starting up" does not exist',
    "java.lang.IllegalStateException: the text java.net.ConnectException in a record",
    "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed",
)


class Failed(PySparkException):
    """As a Connect session has it: the failure as its message, the causes in the server's stack trace."""

    def __init__(self, cause: str) -> None:
        super().__init__(message=STREAM)
        self._stack = (
            f"org.apache.spark.sql.streaming.StreamingQueryException: x\n\tat a.b(C.scala:1)\nCaused by: {cause}\n"
        )

    def getStackTrace(self) -> str:  # noqa: N802 - PySpark's name
        return self._stack


@pytest.fixture
def table() -> Table:
    return Table("bronze.drained", "/nowhere")


@pytest.mark.parametrize("cause", AWAY)
def test_a_stream_whose_source_died_fails_with_its_name_and_is_tried_again(table: Table, cause: str) -> None:
    with pytest.raises(SourceAway, match=r"source of `bronze\.drained` stopped answering") as away, explained(table):
        raise Failed(cause)
    assert cause.partition(": ")[2] in str(away.value)
    assert isinstance(away.value, TransientError)


@pytest.mark.parametrize("cause", HERE)
def test_another_failure_is_not_taken_for_one(table: Table, cause: str) -> None:
    with pytest.raises(Failed), explained(table):
        raise Failed(cause)
