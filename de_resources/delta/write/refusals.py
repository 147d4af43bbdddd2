"""Why the engine refused a write, in the platform's terms and in both kinds of session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from pyspark.sql import DataFrame

from de_resources.delta.slices import Slice
from de_resources.delta.table import Table
from de_resources.delta.write import frames
from de_resources.engine.errors import ENGINE_ERRORS, has_condition, source_away
from de_resources.errors import PlatformError, TransientError

# All that Delta calls a conflict: rows, the same transaction twice, the schema or the protocol.
_CONFLICTS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")


class ConcurrentWrite(TransientError):
    """Another run changed the same rows while this one wrote them."""

    def __init__(self, table: str, condition: str) -> None:
        self.table, self.condition = table, condition
        super().__init__(
            f"Another run changed `{table}` in the same partition while this one wrote ({condition}). Its rows stand, "
            "this run has written nothing. Run it again if its rows are the newer ones."
        )

    @classmethod
    def among(cls, error: Exception, table: str) -> Self | None:
        """The conflict that a failed write reports, or None for other failures."""
        condition = has_condition(error, *_CONFLICTS)
        return cls(table, condition) if condition else None


class SourceAway(TransientError):
    """A system that the engine read from while it wrote stopped answering."""

    def __init__(self, table: str, said: str) -> None:
        self.table, self.said = table, said
        super().__init__(
            f"A source of `{table}` stopped answering while it was read: {said}. Nothing of this write is visible. Look at "
            "`de status`, then run again."
        )


def refusal(error: Exception, table: Table, frame: DataFrame | None, slice_: Slice | None) -> PlatformError | None:
    """The platform's error for what the engine says about a change of `table`; None for other failures.

    Rows outside the slice cost one more scan, to show the first values.
    """
    if frame is not None and slice_ is not None and frames.outside_slice(error):
        hidden = table.contract.personal if table.contract else frozenset()
        values = frames.offending(frame, slice_, hidden)
        return frames.RowsOutsideSlice(table.name, slice_.describe(), slice_.columns, values)
    conflict = ConcurrentWrite.among(error, table.name)
    if conflict is not None:
        return conflict
    away = source_away(error)
    return SourceAway(table.name, away) if away else None


@contextmanager
def explained(table: Table, frame: DataFrame | None = None, slice_: Slice | None = None) -> Iterator[None]:
    """Turn what the engine refuses into the platform's error, wherever in planning or running it happens.

    Raises `RowsOutsideSlice` for a `frame` with rows outside of `slice_`, `ConcurrentWrite`, `SourceAway`, and other failures
    as they are. Every statement that changes a table is run inside of one.
    """
    try:
        yield
    except ENGINE_ERRORS as error:
        refused = refusal(error, table, frame, slice_)
        if refused is None:
            raise
        raise refused from None
