"""The seam around a write: what a pattern does to it, as a class of its own that the asset names.

    @dg.asset(metadata={"partition_expr": "day", "writer": "shop.writers:Audited"})

Encryption, decoration, a gate before publication, a check of compatibility or an observer each override the stage that they
need of `Writer`, and know nothing of modes, locks and stamps. Several are named in a list, the outermost first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from de_resources.delta.layers import layers_of
from de_resources.delta.table import Written
from de_resources.delta.write.request import WriteRequest
from de_resources.errors import PermanentError

Write = Callable[[WriteRequest], Written]
"""What carries a request out. A rerun of the same request leaves the same rows, as far as its mode promises it."""

WRITER = "writer"
"""Metadata of an asset: the import path of its writer, `package.module:Class`, or a list of them."""


class NotAWriter(PermanentError):
    """An asset's `writer` that is no writer."""

    def __init__(self, asset: str, path: object, why: str) -> None:
        self.asset, self.path, self.why = asset, path, why
        super().__init__(
            f"`{asset}` names the writer {path!r}: {why}. Nothing was written. "
            "Name a subclass of `Writer` as `package.module:Class`, or a list of them."
        )


class Writer:
    """One layer around a write. Each stage does nothing by itself; a subclass overrides those that it needs.

    It is made again for each write, without arguments: its settings are in `request.metadata`.
    """

    def prepare(self, request: WriteRequest) -> WriteRequest:
        """What to write in place of the request, or the request itself.

        Called before the table's lock is taken, which is that of the prepared table and mode. Nothing is written here.
        """
        return request

    def write(self, request: WriteRequest, proceed: Write) -> Written:
        """Write, by `proceed`, which is all that lies further inside; or refuse by a `PermanentError`.

        Called under the table's lock. `proceed` may be called several times for several tables, such as a staged one
        and the asset's own, and not at all by a writer that stores its rows in its own way. A retry of the step calls
        this again: what `proceed` had committed for this run it then skips, and says so (`Written.repeated`).
        """
        return proceed(request)

    def stored(self, request: WriteRequest, frame: DataFrame) -> DataFrame:  # noqa: ARG002 - for subclasses
        """The rows as they are to be stored, such as encrypted: the last stage, after all rules, guards and comparisons.

        Same columns and types, row by row, lazily; a column that it does not know stays, and so do those that carry the
        partition. A merge reads the table back through the asset's `reader`, which has to undo this. It may say the same row
        differently each time. Personal values that leave here in plain are stored in plain.
        """
        return frame

    def record(self, request: WriteRequest, written: Written) -> Mapping[str, Any]:  # noqa: ARG002 - for subclasses
        """More metadata of the materialisation, under names of its own.

        Called after the commit, without the lock, also where the write was skipped. What fails here fails the step, and
        its retry does not write again.
        """
        return {}

    def record_by_key(self, request: WriteRequest, written: Written) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002
        """As `record`, what is told of one partition key each, in a run over several."""
        return {}


@dataclass(frozen=True)
class Writers(Writer):
    """Writers around each other, the outermost first, as one. None: the table is written as its mode says."""

    layers: tuple[Writer, ...] = ()

    def prepare(self, request: WriteRequest) -> WriteRequest:
        """Every layer prepares what the one around it has prepared."""
        for layer in self.layers:
            request = layer.prepare(request)
        return request

    def write(self, request: WriteRequest, proceed: Write) -> Written:
        """Every layer proceeds to the one inside it, the innermost to `proceed`."""
        for layer in reversed(self.layers):
            proceed = partial(layer.write, proceed=proceed)
        return proceed(request)

    def stored(self, request: WriteRequest, frame: DataFrame) -> DataFrame:
        """Every layer stores what the one around it has made; readers, the outermost last, undo it in turn."""
        for layer in self.layers:
            frame = layer.stored(request, frame)
        return frame

    @property
    def store_otherwise(self) -> bool:
        """Whether rows are stored in another form than they are judged in."""
        return any(type(layer).stored is not Writer.stored for layer in self.layers)

    def record(self, request: WriteRequest, written: Written) -> dict[str, Any]:
        """What all layers say."""
        return {name: value for layer in self.layers for name, value in layer.record(request, written).items()}

    def record_by_key(self, request: WriteRequest, written: Written) -> dict[str, dict[str, Any]]:
        """What all layers say of each key."""
        told: dict[str, dict[str, Any]] = {}
        for layer in self.layers:
            for key, metadata in layer.record_by_key(request, written).items():
                told.setdefault(key, {}).update(metadata)
        return told


def writers_of(asset: str, metadata: Mapping[str, Any], inner: Sequence[Writer] = ()) -> Writers:
    """The writers that an asset names, around those of its manager. Raises `NotAWriter`."""
    return Writers((*layers_of(metadata.get(WRITER), Writer, partial(NotAWriter, asset)), *inner))
