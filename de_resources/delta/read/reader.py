"""The seam around a read: what a pattern does to it, as a class of its own that the asset or one of its inputs names.

    @dg.asset(metadata={"partition_expr": "day", "reader": "shop.readers:Decrypted"})
    dg.AssetIn(metadata={"reader": "shop.readers:Masked"})

The counterpart of `delta/write/writer.py`. Decryption belongs to the asset, whoever reads it; masking and a version that is
held fast belong to an input. Several are named in a list, the outermost first; those of the input are around the asset's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from de_resources.delta.layers import layers_of
from de_resources.delta.read.request import ReadRequest
from de_resources.errors import PermanentError

Read = Callable[[ReadRequest], DataFrame]
"""What gives the rows of a request, lazily: those of its slice, with all of their columns."""

READER = "reader"
"""Metadata of an asset or an input: the import path of its reader, `package.module:Class`, or a list of them."""


class NotAReader(PermanentError):
    """A `reader` that is no reader."""

    def __init__(self, asset: str, path: object, why: str) -> None:
        self.asset, self.path, self.why = asset, path, why
        super().__init__(
            f"`{asset}`, or an input of it, names the reader {path!r}: {why}. Nothing was read. "
            "Name a subclass of `Reader` as `package.module:Class`, or a list of them."
        )


class Reader:
    """One layer around a read. Each stage does nothing by itself; a subclass overrides those that it needs.

    It is made again for each read, without arguments: its settings are in `request.metadata` and `request.input`.
    """

    def prepare(self, request: ReadRequest) -> ReadRequest:
        """What to read in place of the request, such as another version, or the request itself. Reads no rows."""
        return request

    def read(self, request: ReadRequest, proceed: Read) -> DataFrame:
        """The rows, by `proceed`, which is all that lies further inside; or refuse by a `PermanentError`.

        Lazy: nothing is computed here. The input's `columns` are chosen of what this gives.
        """
        return proceed(request)


@dataclass(frozen=True)
class Readers(Reader):
    """Readers around each other, the outermost first, as one. None: the table is read as it is stored."""

    layers: tuple[Reader, ...] = ()

    def prepare(self, request: ReadRequest) -> ReadRequest:
        """Every layer prepares what the one around it has prepared."""
        for layer in self.layers:
            request = layer.prepare(request)
        return request

    def read(self, request: ReadRequest, proceed: Read) -> DataFrame:
        """Every layer proceeds to the one inside it, the innermost to `proceed`."""
        for layer in reversed(self.layers):
            proceed = partial(layer.read, proceed=proceed)
        return proceed(request)


def readers_of(asset: str, metadata: Mapping[str, Any], input_: Mapping[str, Any]) -> Readers:
    """The readers that an input names, around those of the asset that it reads. Raises `NotAReader`."""
    named = (*_paths(input_), *_paths(metadata))
    return Readers(layers_of(named, Reader, partial(NotAReader, asset)))


def _paths(metadata: Mapping[str, Any]) -> tuple[object, ...]:
    named = metadata.get(READER) or ()
    return (named,) if isinstance(named, str) else tuple(named)
