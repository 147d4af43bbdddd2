"""A session that vanished is a lost engine, however the call that finds it out puts it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator

import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from grpc import StatusCode
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkAssertionError, PySparkRuntimeError
from pyspark.errors.exceptions.connect import SparkConnectGrpcException, convert_exception
from pyspark.sql import SparkSession
from pyspark.sql.connect.proto import ConfigRequest
from pyspark.sql.connect.session import SparkSession as ConnectSession

from de_resources import spark
from de_resources.spark import EngineLost, SparkEngine, loss

pytestmark = [pytest.mark.faults]


@pytest.fixture
def url() -> Iterator[str]:
    """A server that takes connections, whatever it knows about sessions."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"sc://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def session(url: str) -> Iterator[SparkSession]:
    """A session on this server."""
    session: SparkSession = ConnectSession(connection=url)  # type: ignore[assignment]
    yield session
    session.client.close()  # or the end of the process asks the server, which never answers


@pytest.fixture
def engine(url: str, session: SparkSession) -> SparkEngine:
    """A resource that has used it."""
    engine = SparkEngine(url=url)
    engine._spark_session, engine._opened = session, url
    return engine


def said(condition: str) -> Exception:
    """What the client makes of an answer with this condition."""
    answer = ErrorInfo(metadata={"classes": json.dumps([]), "errorClass": condition})
    return convert_exception(answer, f"[{condition}] It is gone.", None, grpc_status_code=StatusCode.INTERNAL)


CONDITIONS = (
    *("INVALID_HANDLE.SESSION_NOT_FOUND", "INVALID_HANDLE.SESSION_CLOSED", "INVALID_HANDLE.SESSION_CHANGED"),
    *("INVALID_HANDLE.OPERATION_NOT_FOUND", "INVALID_HANDLE.OPERATION_ABANDONED", "SESSION_NOT_FOUND"),
    "SPARK_CONNECT_ILLEGAL_STATE.SESSION_MANAGEMENT_SESSION_ALREADY_CLOSED",
)
GONE: dict[str, Callable[[], Exception]] = {
    **{condition: lambda condition=condition: said(condition) for condition in CONDITIONS},  # type: ignore[misc]
    "nobody answers": lambda: SparkConnectGrpcException(message="", grpc_status_code=StatusCode.UNAVAILABLE),
    "no session at all": lambda: PySparkRuntimeError(errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={}),
    "none in this thread": lambda: PySparkRuntimeError(errorClass="NO_ACTIVE_SESSION", messageParameters={}),
    "the process is gone": lambda: Py4JNetworkError("Answer from Java side is empty"),
}


@pytest.mark.parametrize("error", GONE.values(), ids=GONE)
def test_an_answer_that_the_session_is_gone_is_a_lost_engine(
    engine: SparkEngine, error: Callable[[], Exception]
) -> None:
    with pytest.raises(EngineLost), engine.watched():
        raise error()
    assert engine._spark_session is None, "the next use asks for a new one"


@pytest.mark.parametrize("who", ["this resource", "another one, with the connection that both have"])
def test_what_somebody_else_gave_up_is_lost_for_everybody(engine: SparkEngine, session: SparkSession, who: str) -> None:
    frame, stub = session.range(1), session.client._stub
    if who == "this resource":
        engine.lost()
    else:
        session.client.close()
    for call in (frame.count, lambda: stub.Config(ConfigRequest())):  # begins, and tries again
        with pytest.raises(EngineLost), engine.watched():
            call()


def test_a_server_that_began_anew_behind_the_session_is_a_lost_engine(
    engine: SparkEngine, session: SparkSession
) -> None:
    session.client._closed = True  # as the client does where it raises this
    with pytest.raises(EngineLost), engine.watched():
        raise PySparkAssertionError("Received incorrect server side session identifier for request.")


@pytest.mark.parametrize(
    "error", [AnalysisException(message="No such column."), ValueError("no number"), OSError("no file")]
)
def test_an_error_of_another_kind_stays_as_it_is(engine: SparkEngine, session: SparkSession, error: Exception) -> None:
    with pytest.raises(type(error)) as raised, engine.watched():
        raise error
    assert raised.value is error
    assert engine.spark_session is session


def test_a_step_sees_it_without_the_resource(url: str, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_connections", {url: session})
    stub, answer = session.client._stub, ValueError("no number")
    assert loss(answer) is None
    session.client.close()
    with pytest.raises(ValueError, match="closed channel") as raised:
        stub.Config(ConfigRequest())
    assert isinstance(loss(raised.value), EngineLost)
    assert loss(answer) is None, "an error of the step's own stays its own"
