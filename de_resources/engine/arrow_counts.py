"""How often each key comes, and how many rows break each rule: counted in Arrow, for the rows of one task.

Spark's own grouping takes each row apart and puts it into a map twice, before and after the exchange. Keys that come once
each, as keys do, gain nothing by that: beside the same peer, a frame that is judged by an exchange of plain rows which are then
counted by columns takes a seventh less (`docs/benchmarks.md`, `rule_suite`). `arrow_counts` is for `DataFrame.mapInArrow` over
rows that are partitioned by their key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterator[pa.RecordBatch]
_FIGURES = ("rows", "keys", "in_rows")
MASK_BITS = 63
"""Rules that one LONG tells of, a bit for each that the row breaks."""
_PIECE = 4_000_000
"""Rows that are counted together. A key of which there are many more takes the room of one afterwards."""
_TIMES = "times"
_EVERY_ROW: tuple[list[str], str] = ([], "count_all")


def figures(rules: int) -> list[str]:
    """What is told, by name: all rows, the keys that come more than once, in how many rows these are, and each rule's rows."""
    return [*_FIGURES, *(f"rule_{n}" for n in range(rules))]


def arrow_counts(keys: int, rules: int, *, piece: int = _PIECE) -> Callable[[Batches], Batches]:
    """A function of rows with `keys` columns of a key, which Arrow can compare, and then the masks of `rules` rules.

    It gives one row: the least key of those that come more than once (null without one), and the `figures`. It holds the
    distinct keys of its task, and of its rows `piece`.
    """

    def counted(batches: Batches) -> Batches:
        names = [f"key_{n}" for n in range(keys)]
        rows, broken = 0, [0] * rules
        held: list[pa.RecordBatch] = []
        known: pa.Table | None = None
        waiting, enough = 0, piece
        for batch in batches:
            rows += batch.num_rows
            waiting += batch.num_rows
            _add_broken(broken, batch.columns[keys:])
            held.append(batch.select(names))
            if waiting >= enough:
                known = _counted(known, held, names)
                # Keys that do not repeat stay as many: twice as long until they are looked at again.
                held, waiting, enough = [], 0, max(piece, known.num_rows)
        if rows:
            yield _told(_counted(known, held, names), names, rows, broken)

    return counted


def _add_broken(broken: list[int], masks: list[pa.Array]) -> None:
    """Count the bits of a batch; rows that break nothing, nearly all, are passed over first."""
    for number, column in enumerate(masks):
        mask = column.to_numpy(zero_copy_only=False)
        mask = mask[mask != 0]
        first = number * MASK_BITS
        for bit in range(min(MASK_BITS, len(broken) - first)):
            broken[first + bit] += int((mask >> bit & 1).sum())


def _counted(known: pa.Table | None, held: list[pa.RecordBatch], names: list[str]) -> pa.Table:
    """The keys so far, and how often each has come."""
    tables = [known] if known is not None else []
    if held:
        fresh = pa.Table.from_batches(held).group_by(names, use_threads=False).aggregate([_EVERY_ROW])
        tables.append(fresh.rename_columns([*names, _TIMES]))
    if len(tables) == 1:
        return tables[0]
    together = pa.concat_tables(tables).group_by(names, use_threads=False).aggregate([(_TIMES, "sum")])
    return together.rename_columns([*names, _TIMES])


def _told(counted: pa.Table, names: list[str], rows: int, broken: list[int]) -> pa.RecordBatch:
    several = counted.filter(pc.greater(counted[_TIMES], 1))
    in_rows = pc.sum(several[_TIMES]).as_py() or 0
    least = several.select(names).sort_by([(name, "ascending") for name in names]).slice(0, 1)
    example = [column.combine_chunks() if len(column) else pa.nulls(1, column.type) for column in least.itercolumns()]
    counts = [pa.array([n], pa.int64()) for n in (rows, several.num_rows, in_rows, *broken)]
    return pa.RecordBatch.from_arrays([*example, *counts], names=[*names, *figures(len(broken))])
