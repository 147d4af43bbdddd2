"""Digests and broken rules counted by columns: against a count by hand, however the rows come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from de_resources.engine.digest_counts import FIRST_BITS, MASK_BITS, counted, in_lots

pytestmark = pytest.mark.pattern("constraints_enforcer")

# The last byte of the first digest is its lot: some share it, and some are the same in one of the two only.
SECOND = 1 << FIRST_BITS
DIGESTS = st.tuples(st.sampled_from([-1, 0, 255, 256, 2**62, -(2**63)]), st.sampled_from([-SECOND, 0, SECOND]))
ROWS = st.lists(st.tuples(DIGESTS, st.integers(0, 7)), min_size=1, max_size=30)
Row = tuple[tuple[int, int], int]


def batches(rows: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of `size`: two digests, the second with a mask in its last bits."""
    for at in range(0, len(rows), size):
        some = rows[at : at + size]
        columns = [digests[0] for digests, _ in some], [digests[1] | mask for digests, mask in some]
        yield pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], ["c0", "c1"])


def by_lot(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the exchange does: the rows of each lot together, whatever task they come from."""
    rows = [row for batch in tasks for row in batch.to_pylist()]
    rows.sort(key=lambda row: (row["lot"] is not None, row["lot"] or 0))
    for row in rows:
        yield pa.RecordBatch.from_arrays(
            [pa.array([row["lot"]], pa.int32()), pa.array([row["packed"]], pa.binary())], ["lot", "packed"]
        )


@settings(deadline=None)
@given(rows=ROWS, size=st.integers(1, 7), told_on=st.integers(1, 9), piece=st.integers(1, 4), cut=st.integers(0, 30))
def test_the_counts_are_those_by_hand(rows: list[Row], size: int, told_on: int, piece: int, cut: int) -> None:
    tasks = [batch for task in (rows[:cut], rows[cut:]) for batch in in_lots(3, told_on=told_on)(batches(task, size))]
    (told,) = (batch.to_pylist()[0] for batch in counted(3, piece=piece)(by_lot(tasks)))
    times = Counter(digests for digests, _ in rows)
    several = {digests: n for digests, n in times.items() if n > 1}
    assert [told["rows"], told["keys"], told["in_rows"]] == [len(rows), len(several), sum(several.values())]
    assert [told[f"rule_{n}"] for n in range(3)] == [sum(mask >> n & 1 for _, mask in rows) for n in range(3)]
    example = told["digest_0"], told["digest_1"]
    assert example in several if several else example == (None, None)


def test_a_task_without_rows_tells_nothing() -> None:
    assert list(in_lots(3)(batches([], 1))) == []
    assert list(in_lots(3)(iter([next(batches([((1, 1), 0)], 1)).slice(1)]))) == []
    assert list(counted(3)(iter([]))) == []


def test_a_lot_is_the_same_for_all_tasks_and_whole() -> None:
    """Two digests of one lot are in one row of a task, and the same lot's of another task have its number too."""
    one, other = ([batch.to_pylist() for batch in in_lots(0)(batches([((n, 0), 0)], 1))] for n in (7, 7 + 256))
    assert one[0][0]["lot"] == other[0][0]["lot"]
    (together, counts) = in_lots(0)(batches([((7, 0), 0), ((7 + 256, 0), 0), ((8, 0), 0)], 2))
    assert [len(row["packed"]) for row in together.to_pylist()] == [32, 16]
    assert counts.to_pylist()[0]["lot"] is None


def test_the_last_bit_of_each_mask_and_the_first_of_the_next_are_rules() -> None:
    rules = FIRST_BITS + MASK_BITS + 1
    second = [SECOND | 1 << FIRST_BITS - 1, SECOND | 1]
    rows = pa.RecordBatch.from_pydict({"c0": [1, 2], "c1": second, "c2": [1 << MASK_BITS - 1, 1], "c3": [1, 1]})
    ((told,),) = (batch.to_pylist() for batch in counted(rules)(in_lots(rules)(iter([rows]))))
    broken = {n: told[f"rule_{n}"] for n in range(rules) if told[f"rule_{n}"]}
    assert broken == {0: 1, FIRST_BITS - 1: 1, FIRST_BITS: 1, rules - 2: 1, rules - 1: 2}


def test_a_key_that_repeats_takes_the_room_of_one() -> None:
    """Of a million rows of one key, no more than a piece waits to be counted."""
    alive: list[int] = []
    (lot, _) = in_lots(0)(batches([((7, SECOND), 0)] * 10_000, 10_000))

    def many() -> Iterator[pa.RecordBatch]:
        for _ in range(100):
            alive.append(pa.total_allocated_bytes())
            yield pa.RecordBatch.from_pydict({"lot": lot["lot"], "packed": pa.array(lot["packed"].to_pylist())})

    (told,) = counted(0, piece=20_000)(many())
    assert told.to_pylist()[0]["in_rows"] == 1_000_000
    assert max(alive) - alive[0] < 2_000_000, "a batch has 160 kB, and all of them 16 MB"
