"""One row per key in a table whose runs see one partition each. Part of *Merger*.

A merge is matched inside the run's slice. Where the slice's columns are not part of the key, the row of a key may lie in
another partition, where the match does not see it and the run may not touch it: the key would be in the table twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from de_resources.delta.slices import Slice
from de_resources.delta.table import Table
from de_resources.errors import PermanentError
from de_resources.sql.balanced import balanced
from de_resources.sql.identifiers import identifier

_EXAMPLES = 5


class KeyElsewhere(PermanentError):
    """A merge that would insert keys of which the table has rows in partitions that the run does not own."""

    def __init__(self, table: str, slice_: str, columns: Sequence[str], examples: Sequence[str]) -> None:
        self.table, self.slice, self.columns, self.examples = table, slice_, tuple(columns), tuple(examples)
        named = ", ".join(columns)
        super().__init__(
            f"Cannot merge {slice_} into `{table}`: keys that are new there have rows in other partitions: "
            f"{'; '.join(examples)}. Nothing was written. Add {named} to the merge's key if these are different rows; if they "
            f"move, take them out of the other partition first, or merge the asset without `partition_expr`."
        )


def require_nowhere_else(
    inserted: DataFrame, present: DataFrame, table: Table, key: Sequence[str], slice_: Slice | None
) -> None:
    """Raise `KeyElsewhere` where a row of `present` outside the slice has the key of an inserted row.

    Reads nothing where the slice follows from the key. A row that is only marked as deleted is one of the key as well.
    """
    if slice_ is None or set(slice_.columns) <= set(key):
        return
    outside = ~F.coalesce(F.expr(slice_.predicate(present.schema)), F.lit(False))
    shown = tuple(dict.fromkeys((*key, *slice_.columns)))
    theirs = present.where(outside).select(*map(identifier, shown)).alias("t")
    mine = inserted.select(*map(identifier, key)).alias("s")
    same_key = balanced(Column.__and__, (F.col(f"t.{identifier(k)}") == F.col(f"s.{identifier(k)}") for k in key))
    found = theirs.join(mine, same_key, "left_semi").distinct().limit(_EXAMPLES).collect()
    if found:
        hidden = table.contract.personal if table.contract else frozenset()
        examples = [f"{told(row, key, hidden)} in {told(row, slice_.columns, hidden)}" for row in found]
        raise KeyElsewhere(table.name, slice_.describe(), slice_.columns, sorted(examples))


def told(row: Row, columns: Sequence[str], hidden: Collection[str]) -> str:
    """The values of some columns as text for people; those that are hidden are masked."""
    return ", ".join(f"{c}={'•••' if c in hidden and row[c] is not None else row[c]}" for c in columns)
