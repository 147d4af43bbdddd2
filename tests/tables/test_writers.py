"""Writers around each other, and the table from a mode to its writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from dagster_delta import WriteMode
from pyspark.sql import SparkSession

from de_resources.delta.table import CommitInfo, Table, Written
from de_resources.delta.write.modes import BY_MODE
from de_resources.delta.write.request import WriteRequest
from de_resources.delta.write.writer import Write, Writer, Writers, writers_of

pytestmark = pytest.mark.pattern("data_overwrite")

WRITTEN = Written(version=7, commit=None, rows=3, violations=None, seconds=0.0)


class Layer(Writer):
    """Tells under its name when each of its stages is reached."""

    name = "?"

    def prepare(self, request: WriteRequest) -> WriteRequest:
        return replace(request, metadata={"by": [*request.metadata.get("by", []), self.name]})

    def write(self, request: WriteRequest, proceed: Write) -> Written:
        TOLD.append(f"{self.name} begins")
        written = proceed(request)
        TOLD.append(f"{self.name} ends")
        return replace(written, version=written.version + 1)

    def record(self, request: WriteRequest, written: Written) -> dict[str, Any]:
        return {self.name: (request.stamp.writer, written.version)}


class Outer(Layer):
    name = "outer"


class Inner(Layer):
    name = "inner"


class Managers(Layer):
    name = "manager's"


TOLD: list[str] = []
NAMED = [f"{__name__}:Outer", f"{__name__}:Inner"]


@pytest.fixture
def request_(spark: SparkSession, table: Callable[..., Table], stamp: Callable[..., CommitInfo]) -> WriteRequest:
    return WriteRequest(spark, spark.range(3), table(), None, stamp())


@pytest.fixture
def writers() -> Writers:
    TOLD.clear()
    return writers_of("silver/rows", {"writer": NAMED}, [Managers()])


def store(_: WriteRequest) -> Written:
    TOLD.append("stored")
    return WRITTEN


def test_every_writer_prepares_what_the_one_around_it_has_prepared(writers: Writers, request_: WriteRequest) -> None:
    assert writers.prepare(request_).metadata == {"by": ["outer", "inner", "manager's"]}
    assert request_.metadata == {}


def test_every_writer_proceeds_to_the_one_inside_it(writers: Writers, request_: WriteRequest) -> None:
    assert writers.write(request_, store).version == WRITTEN.version + 3
    begun, ended = ["outer begins", "inner begins", "manager's begins"], ["manager's ends", "inner ends", "outer ends"]
    assert [*begun, "stored", *ended] == TOLD


def test_every_writer_records(writers: Writers, request_: WriteRequest) -> None:
    assert writers.record(request_, WRITTEN) == dict.fromkeys(["outer", "inner", "manager's"], ("silver/rows", 7))


def test_an_asset_without_a_writer_is_written_as_its_mode_says(request_: WriteRequest) -> None:
    nothing = writers_of("silver/rows", {})
    assert nothing.prepare(request_) is request_
    assert nothing.write(request_, lambda _: WRITTEN) is WRITTEN
    assert nothing.record(request_, WRITTEN) == {}


def test_a_writer_that_overrides_nothing_changes_nothing(request_: WriteRequest) -> None:
    plain = Writer()
    assert plain.prepare(request_) is request_
    assert plain.write(request_, lambda _: WRITTEN) is WRITTEN
    assert plain.record(request_, WRITTEN) == {}


def test_a_request_cannot_be_changed_in_place(request_: WriteRequest) -> None:
    with pytest.raises(FrozenInstanceError):
        request_.mode = WriteMode.append  # type: ignore[misc]


def test_every_mode_has_its_writer() -> None:
    assert set(BY_MODE) == set(WriteMode)
