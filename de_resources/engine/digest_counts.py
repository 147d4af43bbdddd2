"""How many keys come more than once, and how many rows break each rule: counted by columns, from digests of the keys.

Spark's own grouping takes each row apart and puts it into a map twice, before and after an exchange of all rows. Keys that come
once each, as keys do, gain nothing by that. Here no key leaves the engine: a Python worker beside each task gets two numbers
for it, of 64 and 48 bits, and lays them into lots by the last byte of the first. What is exchanged are some hundred rows, a
lot of many digests in each. The functions are for `DataFrame.mapInArrow`: `in_lots`, then `repartition(LOT)`, then `counted`.
What it gains: `docs/benchmarks.md`, `rule_suite`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterator[pa.RecordBatch]
Integers = npt.NDArray[np.int64]
DIGESTS = ("digest_0", "digest_1")
FIRST_BITS, MASK_BITS = 16, 63
"""Rules that a LONG tells of, a bit for each that the row breaks: the first ones in the last bits of the second digest."""
LOT, _PACKED = "lot", "packed"
LOTS_SCHEMA = f"{LOT} INT, {_PACKED} BINARY"
"""Of `in_lots`: the integers of a lot's digests, two for each row; without a lot, the task's rows and each rule's."""
_LOTS = 256
_TOLD_ON = 1_000_000
"""Rows of which the digests are laid into lots together."""
_PIECE = 1_000_000
"""Digests of a lot that are counted together. One of which there are many more takes the room of one afterwards."""
_BROKEN = (1 << FIRST_BITS) - 1
_TIMES = "times"
_EVERY_ROW: tuple[list[str], str] = ([], "count_all")


def figures(rules: int) -> list[str]:
    """What is told, by name: all rows, the keys that come more than once, in how many rows these are, and each rule's rows."""
    return ["rows", "keys", "in_rows", *(f"rule_{n}" for n in range(rules))]


def in_lots(rules: int, *, told_on: int = _TOLD_ON) -> Callable[[Batches], Batches]:
    """A function of rows with the two digests of a key, and then the masks of rules. It gives `LOTS_SCHEMA`.

    Of the second digest the last `FIRST_BITS` bits are the mask of the first rules; each further mask has `MASK_BITS`.
    """

    def spread(batches: Batches) -> Batches:
        counts = np.zeros(1 + rules, np.int64)
        held: list[Integers] = []
        waiting = 0
        for batch in batches:
            counts[0] += batch.num_rows
            first, second, *masks = (column.to_numpy() for column in batch.columns)
            _add_broken(counts[1 : 1 + FIRST_BITS], second & _BROKEN)
            for n, mask in enumerate(masks):
                _add_broken(counts[1 + FIRST_BITS + n * MASK_BITS :][:MASK_BITS], mask)
            held.append(np.stack([first, second & ~_BROKEN]))
            waiting += batch.num_rows
            if waiting >= told_on:
                yield _lots_of(held)
                held, waiting = [], 0
        if waiting:
            yield _lots_of(held)
        if counts[0]:
            yield _packed([None], [counts])

    return spread


def counted(rules: int, *, piece: int = _PIECE) -> Callable[[Batches], Batches]:
    """A function of `LOTS_SCHEMA` in which each lot is whole. It gives the `figures`, and the digests of one repeated key.

    It holds the digests of its task's lots, 16 bytes for each key, and `piece` rows of each at most beside them.
    """

    def of(batches: Batches) -> Batches:
        counts = np.zeros(1 + rules, np.int64)
        lots: defaultdict[int, _Lot] = defaultdict(partial(_Lot, piece))
        for batch in batches:
            for lot, packed in zip(*batch.columns, strict=True):
                integers = np.frombuffer(packed.as_buffer(), np.int64)
                if lot.is_valid:
                    lots[lot.as_py()].add(integers.reshape(len(DIGESTS), -1))
                else:
                    counts += integers
        if lots or counts[0]:
            yield _told([lot.several() for lot in lots.values()], counts)

    return of


@dataclass
class _Lot:
    """How often each of the digests of one lot has come."""

    piece: int
    known: pa.Table | None = None
    held: list[Integers] = field(default_factory=list)
    waiting: int = 0

    def add(self, digests: Integers) -> None:
        self.held.append(digests)
        self.waiting += digests.shape[1]
        # Keys that do not repeat stay as many: twice as long until they are looked at again.
        if self.waiting >= max(self.piece, self.known.num_rows if self.known is not None else 0):
            self._count()

    def several(self) -> pa.Table:
        """Those that came more than once."""
        if self.known is None:
            # One that comes once, as nearly all do, has no neighbour like it among the sorted: not worth to be grouped.
            digests = np.concatenate(self.held, axis=1)
            ordered = np.sort(digests[0])
            again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
            self.held = [digests[:, np.isin(digests[0], again)]]
        known = self._count()
        return known.filter(pc.greater(known[_TIMES], 1))

    def _count(self) -> pa.Table:
        tables = [] if self.known is None else [self.known]
        if self.held:
            fresh = pa.table(dict(zip(DIGESTS, np.concatenate(self.held, axis=1), strict=True)))
            tables.append(_grouped(fresh, _EVERY_ROW))
        self.known = tables[0] if len(tables) == 1 else _grouped(pa.concat_tables(tables), (_TIMES, "sum"))
        self.held, self.waiting = [], 0
        return self.known


def _grouped(table: pa.Table, times: tuple[str | list[str], str]) -> pa.Table:
    counted = table.group_by(list(DIGESTS), use_threads=False).aggregate([times])
    return counted.rename_columns([*DIGESTS, _TIMES])


def _add_broken(broken: Integers, mask: Integers) -> None:
    """Count the bits of a batch; rows that break nothing, nearly all, are passed over first."""
    mask = mask[mask != 0]
    for bit in range(len(broken)):
        broken[bit] += (mask >> bit & 1).sum()


def _lots_of(held: Sequence[Integers]) -> pa.RecordBatch:
    digests = np.concatenate(held, axis=1)
    lot = (digests[0] & _LOTS - 1).astype(np.uint8)
    ends = np.cumsum(np.bincount(lot, minlength=_LOTS))
    parts = np.split(digests[:, np.argsort(lot, kind="stable")], ends[:-1], axis=1)
    there = [n for n, part in enumerate(parts) if part.size]
    return _packed(there, [parts[n] for n in there])


def _packed(lots: Sequence[int | None], integers: Sequence[Integers]) -> pa.RecordBatch:
    packed = pa.array([each.tobytes() for each in integers], pa.binary())
    return pa.RecordBatch.from_arrays([pa.array(lots, pa.int32()), packed], names=[LOT, _PACKED])


def _told(several: Sequence[pa.Table], counts: Integers) -> pa.RecordBatch:
    together = pa.concat_tables(several) if several else pa.table({name: [] for name in (*DIGESTS, _TIMES)})
    in_rows = pc.sum(together[_TIMES]).as_py() or 0
    example = together.slice(0, 1).to_pylist() or [{}]
    rows, *broken = counts.tolist()
    told = [*(example[0].get(name) for name in DIGESTS), rows, together.num_rows, in_rows, *broken]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], pa.int64()) for value in told], names=[*DIGESTS, *figures(len(broken))]
    )
