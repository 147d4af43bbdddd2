"""How a table keeps its rows, where that is another form than the one in which they are judged and read: encrypted, say.

A frame is judged as it is: by its columns, by the rules of the contract, by the slice, and in a merge against the rows that the
table has. What is stored is made of it as the last thing before the commit (`Writer.stored`). A merge reads the table's rows
back through the readers of the asset, so that it compares what was meant, and not how it was written down: an encryption
that never says the same twice would make every row a changed one.

The columns that decide which slice a row belongs to are stored as they are. That is no matter of trust: `StoredElsewhere`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_resources.delta.slices import Slice
from de_resources.delta.write import frames
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier, type_text

Transform = Callable[[DataFrame], DataFrame]
"""From rows in one form to the same rows in the other: same columns, same types, row by row, lazily."""

_KEPT = "__de_stored_"


class NoWayBack(PermanentError):
    """A merge into a table whose stored rows nobody can read back."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"Cannot merge into `{table}`: its asset names a writer that stores rows in another form, and no `reader` that "
            "reads them back, so that nobody can tell which rows changed. Nothing was written. Name the reader as well."
        )


class ConstraintsOnStoredForm(PermanentError):
    """A store that shall judge rows in a form of which no rule speaks."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"`{table}` has `constraints`, and its asset names a writer that stores rows in another form: the store would "
            "judge that form. Nothing was written. Leave `constraints` out; `rows_meet_contract` judges the rows as they come."
        )


class NotTheSameColumns(PermanentError):
    """A writer or reader that gives other columns than it was given."""

    def __init__(self, table: str, what: str, columns: Sequence[str]) -> None:
        self.table, self.columns = table, tuple(columns)
        super().__init__(
            f"The {what} of `{table}` does not keep the columns {', '.join(columns)}: they are gone, new or of another type. "
            "Nothing was written. It has to give each column that it gets, those that it does not know included, in its type."
        )


@dataclass(frozen=True)
class StoredForm:
    """To the stored form and back. No `encode`: rows are stored as they are. No `decode`: nobody can read them back."""

    encode: Transform | None = None
    decode: Transform | None = None

    def encoded(self, frame: DataFrame, table: str, slice_: Slice | None = None) -> DataFrame:
        """The rows as they are to be stored. Raises `NotTheSameColumns`; a row that would leave the slice fails the write."""
        if self.encode is None:
            return frame
        stored = _same_columns(self.encode(frame), frame, table, "stored form")
        return frames.guard(stored, slice_, frames.STORED_OUTSIDE)

    def decoded(self, frame: DataFrame, table: str, key: Sequence[str]) -> DataFrame:
        """The rows as they were meant, with the stored values of the key beside them, by which a MERGE finds them.

        Raises `NoWayBack`, `NotTheSameColumns`.
        """
        if self.encode is None:
            return frame
        if self.decode is None:
            raise NoWayBack(table)
        kept = frame.withColumns({f"{_KEPT}{n}": F.col(identifier(column)) for n, column in enumerate(key)})
        return _same_columns(self.decode(kept), kept, table, "reader")

    def key_now(self, key: Sequence[str]) -> dict[str, str]:
        """In a MERGE of a comparison, SQL for the value with which each key column is, or will be, stored.

        A row that is in the table is found by what is stored there: writing its key down again may give another text.
        """
        own = {column: f"s.{identifier(column)}" for column in key}
        if self.encode is None:
            return own
        return {c: f"coalesce(s.{identifier(f'{_KEPT}{n}')}, {text})" for n, (c, text) in enumerate(own.items())}


AS_IT_IS = StoredForm()
"""What is judged is what is stored."""


def kept_with(target: DataFrame, alias: str) -> list[Column]:
    """What `StoredForm.decoded` has put beside the rows."""
    return [F.col(f"{alias}.{identifier(c)}") for c in target.columns if is_kept(c)]


def is_kept(column: str) -> bool:
    """Whether it is such a column."""
    return column.startswith(_KEPT)


def _same_columns(given: DataFrame, wanted: DataFrame, table: str, what: str) -> DataFrame:
    """What was given, in the wanted order."""
    has, needs = ({f.name: type_text(f.dataType) for f in frame.schema.fields} for frame in (given, wanted))
    other = sorted(name for name in {*has, *needs} if has.get(name) != needs.get(name))
    if other:
        raise NotTheSameColumns(table, what, other)
    return given.select(*(F.col(identifier(c)) for c in wanted.columns))
