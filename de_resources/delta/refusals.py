"""Why the engine refused a write, in the platform's terms."""

from __future__ import annotations

import re
from typing import Self

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from de_resources.delta import frames
from de_resources.delta.slices import Slice
from de_resources.delta.table import Table
from de_resources.errors import PlatformError, TransientError


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
        found = re.search(r"DELTA_CONCURRENT_\w+", str(error))
        return cls(table, found[0]) if found else None


def refusal(error: PySparkException, table: Table, frame: DataFrame, slice_: Slice | None) -> PlatformError | None:
    """The platform's error for a failed write: rows outside the slice, or a conflict; None for other failures.

    Rows outside the slice cost one more scan, to show the first values.
    """
    if slice_ is not None and frames.outside_slice(error):
        hidden = table.contract.personal if table.contract else frozenset()
        values = frames.offending(frame, slice_, hidden)
        return frames.RowsOutsideSlice(table.name, slice_.describe(), slice_.columns, values)
    return ConcurrentWrite.among(error, table.name)
