"""Why the engine refused a write, in the platform's terms and in both kinds of session."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from pyspark.sql import DataFrame

from de_resources.contract import CONSTRAINT
from de_resources.delta.slices import Slice
from de_resources.delta.table import Table
from de_resources.delta.write import frames
from de_resources.engine.errors import ENGINE_ERRORS, causes, has_condition, source_away
from de_resources.errors import PermanentError, PlatformError, TransientError

# All that Delta calls a conflict: rows, the same transaction twice, the schema or the protocol; and a table that was missing.
_CONFLICTS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "DELTA_PATH_EXISTS")
_VIOLATED = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
_NAME = re.compile(rf"CHECK constraint {CONSTRAINT}(?P<rule>\S+) ")


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


class ContractBroken(PermanentError):
    """Rows that the table's constraints do not take.

    The store stops at the first one; `violations` are those of all rows, by rule, where they could be counted.
    """

    def __init__(self, table: str, rows: int | None, violations: Mapping[str, int]) -> None:
        self.table, self.rows, self.violations = table, rows, violations
        told = ", ".join(f"`{rule}`: {n:,}" for rule, n in sorted(violations.items(), key=lambda item: -item[1]))
        found = f"of {rows:,} rows, these break a rule: {told}" if rows is not None else f"first seen: {told}"
        super().__init__(
            f"`{table}` refuses rows that break its contract ({found}). Nothing of this write is visible. "
            "Correct the rows, or set them apart before they are written; the rules stand in the contract."
        )


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
    # First: of a slice, Delta reports a broken constraint as rows outside of it, with the constraint as the cause.
    constraint = _broken_constraint(error)
    if constraint is not None:
        return _broken(constraint, table, frame)
    if slice_ is not None and frames.stored_outside_slice(error):
        return frames.StoredElsewhere(table.name, slice_.describe(), slice_.columns)
    if frame is not None and slice_ is not None and frames.outside_slice(error):
        hidden = table.contract.personal if table.contract else frozenset()
        values = frames.offending(frame, slice_, hidden)
        return frames.RowsOutsideSlice(table.name, slice_.describe(), slice_.columns, values)
    conflict = ConcurrentWrite.among(error, table.name)
    if conflict is not None:
        return conflict
    away = source_away(error)
    return SourceAway(table.name, away) if away else None


def _broken_constraint(error: Exception) -> str | None:
    """The first rule of a contract that a row broke, by the store's own word."""
    said = (_NAME.search(s.message) for s in causes(error) if s.condition == _VIOLATED)
    return next((found["rule"] for found in said if found), None)


def _broken(rule: str, table: Table, frame: DataFrame | None) -> ContractBroken:
    """What the rows break, without their values, which Delta's own message shows. One more scan, of the frame."""
    if table.contract is not None and frame is not None and not frame.isStreaming:
        counted = frame.agg(*frames.counters(table.contract)).collect()[0].asDict()
        rows, violations = frames.split_counters(counted)
        if any(violations.values()):
            return ContractBroken(table.name, rows, {rule: n for rule, n in violations.items() if n})
    return ContractBroken(table.name, None, {rule: 1})


@contextmanager
def explained(table: Table, frame: DataFrame | None = None, slice_: Slice | None = None) -> Iterator[None]:
    """Turn what the engine refuses into the platform's error, wherever in planning or running it happens.

    Raises `RowsOutsideSlice` for a `frame` with rows outside of `slice_`, `ContractBroken` for one with rows that the
    table's constraints refuse, `ConcurrentWrite`, `SourceAway`, and other failures as they are.
    Every statement that changes a table is run inside of one.
    """
    try:
        yield
    except ENGINE_ERRORS as error:
        refused = refusal(error, table, frame, slice_)
        if refused is None:
            raise
        raise refused from None
