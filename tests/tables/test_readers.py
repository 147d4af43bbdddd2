"""Readers around each other, and who names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.delta.read.reader import NotAReader, Read, Reader, Readers, readers_of
from de_resources.delta.read.request import ReadRequest
from de_resources.delta.table import Table

pytestmark = pytest.mark.pattern("data_overwrite")


class Layer(Reader):
    """Appends its name to what is read, and to what is asked for."""

    name = "?"

    def prepare(self, request: ReadRequest) -> ReadRequest:
        return replace(request, metadata={"by": [*request.metadata.get("by", []), self.name]})

    def read(self, request: ReadRequest, proceed: Read) -> DataFrame:
        return proceed(request).withColumn("by", F.concat_ws(" ", "by", F.lit(self.name)))


class Decrypted(Layer):
    name = "decrypted"


class Checked(Layer):
    name = "checked"


class Masked(Layer):
    name = "masked"


OF_THE_ASSET = {"reader": [f"{__name__}:Checked", f"{__name__}:Decrypted"]}
OF_THE_INPUT = {"reader": f"{__name__}:Masked"}


@pytest.fixture
def request_(spark: SparkSession, table: Callable[..., Table]) -> ReadRequest:
    return ReadRequest(spark, table(), None)


@pytest.fixture
def readers() -> Readers:
    return readers_of("silver/rows", OF_THE_ASSET, OF_THE_INPUT)


def stored(request: ReadRequest) -> DataFrame:
    return request.session.createDataFrame([("stored",)], "by string")


def test_what_is_stored_passes_the_asset_s_readers_first_and_the_input_s_last(
    readers: Readers, request_: ReadRequest
) -> None:
    assert [row.by for row in readers.read(request_, stored).collect()] == ["stored decrypted checked masked"]


def test_every_reader_prepares_what_the_one_around_it_has_prepared(readers: Readers, request_: ReadRequest) -> None:
    assert readers.prepare(request_).metadata == {"by": ["masked", "checked", "decrypted"]}
    assert request_.metadata == {}


def test_an_asset_without_a_reader_is_read_as_it_is_stored(request_: ReadRequest) -> None:
    frame = stored(request_)
    for nothing in (readers_of("silver/rows", {}, {}), Reader()):
        assert nothing.prepare(request_) is request_
        assert nothing.read(request_, lambda _: frame) is frame


def test_a_request_cannot_be_changed_in_place(request_: ReadRequest) -> None:
    with pytest.raises(FrozenInstanceError):
        request_.version = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nowhere.to_be:Found", "No module named 'nowhere'"),
        (f"{__name__}:Missing", "has no attribute 'Missing'"),
        (f"{__name__}:Table", "it is no subclass of `Reader`"),
        (7, "No module named '7'"),
    ],
)
def test_what_is_no_reader_is_refused_by_name(path: object, why: str) -> None:
    for metadata, input_ in (({"reader": [path]}, {}), ({}, {"reader": [path]})):
        with pytest.raises(NotAReader, match="silver/rows") as refused:
            readers_of("silver/rows", metadata, input_)
        assert refused.value.path == path
        assert why in str(refused.value)
