"""A Java process that is about to end: a broken call is told of before the system counts the process as ended."""

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from de_resources.compat.java_process import java_process_lives
from de_resources.spark import EngineLost, SparkEngine

pytestmark = [pytest.mark.faults]


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of the engine's, which has closed everything and ends a moment later."""
    process = subprocess.Popen(["sleep", "0.4"])
    for name in ("_jvm", "_active_spark_context"):
        monkeypatch.setattr(SparkContext, name, getattr(SparkContext, name))
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    yield process
    process.kill()
    process.wait()


def test_a_process_that_is_asked_with_patience_may_end_meanwhile(ending: subprocess.Popen[bytes]) -> None:
    assert java_process_lives(), "it still runs"
    assert not java_process_lives(patience=20)


BROKEN = {
    "closed": Py4JNetworkError("closed"),
    "reset": Py4JError("An error occurred while calling o67.sc"),  # all that Py4J says of it
    "refused": ConnectionRefusedError(111, "refused"),
    "no answer": EOFError(),
}
REFUSED = {
    "Spark": AnalysisException(message="No such column."),
    "Py4J": Py4JError(
        "An error occurred while calling o67.sc. Trace:\npy4j.Py4JException: Method sc([]) does not exist\n"
    ),
}


@pytest.mark.parametrize("error", BROKEN.values(), ids=BROKEN)
def test_a_call_that_breaks_before_the_process_has_ended_leaves_nothing_of_it(
    ending: subprocess.Popen[bytes], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(SparkSession, "_instantiatedSession", SparkSession._instantiatedSession)
    engine = SparkEngine(url="local[1]")
    engine._spark_session = SparkSession.__new__(SparkSession)
    assert isinstance(engine.lost_by(error), EngineLost)
    assert SparkContext._gateway is None, "the next session starts a process of its own"
    assert engine._spark_session is None


@pytest.mark.parametrize("error", REFUSED.values(), ids=REFUSED)
def test_an_engine_that_only_refuses_is_not_waited_for(ending: subprocess.Popen[bytes], error: Exception) -> None:

    engine = SparkEngine(url="local[1]")
    engine._spark_session = session = SparkSession.__new__(SparkSession)
    running = SimpleNamespace(isStopped=lambda: False)
    session._sc = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: running))  # type: ignore[assignment]
    assert engine.lost_by(error) is None
    assert ending.poll() is None, "it has not ended while the question was answered"
