"""What happens to a frame before it is written: conformed to its schema, guarded by its slice, counted on the way.

Everything here is lazy. The guard and the counters ride on the write's own job, so that they cost no pass of their own.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from de_resources.contract import ROWS, Contract
from de_resources.delta.slices import Slice
from de_resources.engine.errors import ENGINE_ERRORS, causes
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier, type_text

# Rows, and violations per rule; None where the engine did not tell.
Counters = tuple[int | None, dict[str, int] | None]
OUTSIDE = "DE_ROW_OUTSIDE_SLICE"
"""How a guard says that a row is not of the run's slice."""
STORED_OUTSIDE = "DE_ROW_STORED_OUTSIDE_SLICE"
"""How it says that its stored form would not be."""


class SchemaMismatch(PermanentError):
    """A frame whose columns are not those that the table, or its contract, declares."""

    def __init__(
        self,
        table: str,
        missing: Sequence[str],
        unexpected: Sequence[str],
        mistyped: Mapping[str, tuple[str, str]],
        readers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.table, self.missing, self.unexpected, self.mistyped = table, missing, unexpected, mistyped
        self.readers = {column: tuple(names) for column, names in (readers or {}).items() if names}
        parts = [f"missing: {', '.join(missing)}"] if missing else []
        parts += [f"unexpected: {', '.join(unexpected)}"] if unexpected else []
        parts += [f"`{c}` is {got}, declared {wanted}" for c, (got, wanted) in mistyped.items()]
        who = "; ".join(f"`{column}`: {', '.join(names)}" for column, names in self.readers.items())
        super().__init__(
            f"The frame for `{table}` does not have the declared columns ({'; '.join(parts)}). Nothing was written. "
            + (f"Who reads what it lacks: {who}. " if who else "")
            + "Change the transform, or the contract; a table that may gain columns says so by `schema_mode`: `merge`."
        )

    def read_by(self, readers: Mapping[str, Sequence[str]]) -> SchemaMismatch:
        """The same, with the names of those who read the columns."""
        return SchemaMismatch(self.table, self.missing, self.unexpected, self.mistyped, readers)


class RowsOutsideSlice(PermanentError):
    """A frame that holds rows which the run does not own."""

    def __init__(self, table: str, slice_: str, columns: Sequence[str], values: Sequence[str]) -> None:
        self.table, self.slice, self.columns, self.values = table, slice_, columns, values
        super().__init__(
            f"The frame for `{table}` holds rows outside the partition {slice_}: {', '.join(columns)} = "
            f"{'; '.join(values)}. Nothing was written. Filter the frame to the partition, or fix the partition column."
        )


class StoredElsewhere(PermanentError):
    """A writer that stores rows so that they are of another partition than they were."""

    def __init__(self, table: str, slice_: str, columns: Sequence[str]) -> None:
        self.table, self.slice, self.columns = table, slice_, columns
        super().__init__(
            f"The writer of `{table}` stores rows of {slice_} with other values of {', '.join(columns)}, by which "
            "partitions are told apart. Nothing was written. Let it leave these columns as they are, or partition the "
            "table by others."
        )


def match_schema(frame: DataFrame, table: str, declared: StructType, *, allow_new: bool = False) -> DataFrame:
    """The frame with the declared columns in their declared order; new columns, where allowed, come last.

    Raises `SchemaMismatch`, which lists every difference at once. Nothing is cast: a silent cast hides a wrong value.
    """
    actual = {f.name: f.dataType for f in frame.schema.fields}
    wanted = {f.name: f.dataType for f in declared.fields}
    missing = [c for c in wanted if c not in actual]
    new = [c for c in actual if c not in wanted]
    mistyped = {
        c: (actual[c].simpleString(), t.simpleString())
        for c, t in wanted.items()
        if c in actual and type_text(actual[c]) != type_text(t)
    }
    if missing or mistyped or (new and not allow_new):
        raise SchemaMismatch(table, missing, [] if allow_new else new, mistyped)
    order = {c: identifier(c) for c in [*wanted, *new]}
    if frame.schema.names == list(order):
        return frame  # whose schema is known: a projection would be analysed once more
    return frame.select(*map(F.col, order.values()))


def guard(frame: DataFrame, slice_: Slice | None, says: str = OUTSIDE) -> DataFrame:
    """Let the write fail at the first row outside the slice.

    The check is a projection of the partition column and not a filter: a filter may be pushed below the frame's own
    filters, and would then refuse rows that these remove.
    """
    if slice_ is None or not slice_.columns:
        return frame
    column = slice_.columns[0]
    inside = F.coalesce(F.expr(slice_.predicate(frame.schema)), F.lit(False))
    checked = F.when(inside, F.col(identifier(column))).otherwise(F.raise_error(F.lit(says)))
    return frame.withColumn(column, checked)


def outside_slice(error: Exception) -> bool:
    """Whether a failed write failed because of the guard, or of Delta's own `replaceWhere` check."""
    return any(
        said.condition == "DELTA_REPLACE_WHERE_MISMATCH"
        or (said.condition == "USER_RAISED_EXCEPTION" and OUTSIDE in said.message)
        for said in causes(error)
    )


def stored_outside_slice(error: Exception) -> bool:
    """Whether a failed write failed because a row's stored form is of another slice than the row."""
    return any(said.condition == "USER_RAISED_EXCEPTION" and STORED_OUTSIDE in said.message for said in causes(error))


def offending(frame: DataFrame, slice_: Slice, hidden: frozenset[str], limit: int = 5) -> list[str]:
    """The first few distinct partition values outside the slice. One extra scan, on the error path only."""
    columns = slice_.columns
    outside = frame.where(~F.coalesce(F.expr(slice_.predicate(frame.schema)), F.lit(False)))
    rows = outside.select(*(F.col(identifier(c)).cast("string") for c in columns)).distinct().limit(limit).collect()
    return sorted(
        ", ".join("•••" if c in hidden else str(v) for c, v in zip(columns, row, strict=True)) for row in rows
    )


def counted(
    frame: DataFrame, contract: Contract | None, observation: Observation | str, left_out: Container[str] = ()
) -> DataFrame:
    """Count rows, and rows that break each rule, while the frame is written (Online Observer), but of the rules `left_out`."""
    return frame.observe(observation, *counters(contract, left_out))


def counters(contract: Contract | None, left_out: Container[str] = ()) -> list[Column]:
    """The aggregates that count rows, and rows that break each rule."""
    rules = [rule for rule in contract.rules if rule.name not in left_out] if contract else []
    # One text each: built of parts, every part would be some calls of the engine.
    texts = {ROWS: "count(1)", **{r.name: f"count(CASE WHEN {r.violated} THEN 1 END)" for r in rules}}
    return [F.expr(f"{text} AS {identifier(name)}") for name, text in texts.items()]


def observed(observation: Observation) -> Counters:
    """The counters of a write that ended. Its rows are committed, so that a lost observation must not fail it."""
    try:
        return split_counters(observation.get)
    except ENGINE_ERRORS:
        return None, None


def nothing_observed(contract: Contract | None) -> Counters:
    """The counters of a frame without rows."""
    return 0, {r.name: 0 for r in contract.rules} if contract else {}


def split_counters(observed: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """The observation as (rows, violations per rule)."""
    counts = {k: int(v or 0) for k, v in observed.items()}
    return counts.pop(ROWS, 0), counts
