"""Keys and broken rules counted in Arrow: against a count by hand, however the rows come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from de_resources.engine.arrow_counts import MASK_BITS, arrow_counts

pytestmark = pytest.mark.pattern("constraints_enforcer")

KEYS = st.tuples(st.sampled_from([None, "", "a", "b"]), st.integers(0, 2))
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 7)), min_size=1, max_size=30)


def batches(rows: list[tuple[tuple[str | None, int], int]], size: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of `size`: two columns of a key, and a mask."""
    for at in range(0, len(rows), size):
        some = rows[at : at + size]
        yield pa.RecordBatch.from_pydict(
            {
                "key_0": pa.array([key[0] for key, _ in some], pa.string()),
                "key_1": pa.array([key[1] for key, _ in some], pa.int64()),
                "mask_0": pa.array([mask for _, mask in some], pa.int64()),
            }
        )


@settings(deadline=None)
@given(rows=ROWS, size=st.integers(1, 7), piece=st.integers(1, 40))
def test_the_counts_are_those_by_hand(rows: list[tuple[tuple[str | None, int], int]], size: int, piece: int) -> None:
    (told,) = (batch.to_pylist()[0] for batch in arrow_counts(2, 3, piece=piece)(batches(rows, size)))
    times = Counter(key for key, _ in rows)
    several = {key: n for key, n in times.items() if n > 1}
    assert [told["rows"], told["keys"], told["in_rows"]] == [len(rows), len(several), sum(several.values())]
    assert [told[f"rule_{n}"] for n in range(3)] == [sum(mask >> n & 1 for _, mask in rows) for n in range(3)]
    example = told["key_0"], told["key_1"]
    assert example in several if several else example == (None, None)


def test_a_task_without_rows_tells_nothing() -> None:
    assert list(arrow_counts(2, 3)(batches([], 1))) == []
    nothing = pa.RecordBatch.from_pydict({"key_0": pa.array([], pa.string()), "mask_0": pa.array([], pa.int64())})
    assert list(arrow_counts(1, 3)(iter([nothing]))) == []


def test_the_last_bit_and_the_first_of_a_second_mask_are_rules() -> None:
    rows = pa.RecordBatch.from_pydict({"key_0": [1, 2], "mask_0": [1 << MASK_BITS - 1, 1], "mask_63": [1, 1]})
    ((told,),) = (batch.to_pylist() for batch in arrow_counts(1, MASK_BITS + 1)(iter([rows])))
    broken = {n: told[f"rule_{n}"] for n in range(MASK_BITS + 1) if told[f"rule_{n}"]}
    assert broken == {0: 1, MASK_BITS - 1: 1, MASK_BITS: 2}


def test_a_key_that_repeats_takes_the_room_of_one() -> None:
    """Of a million rows of one key, no more than a piece waits to be counted."""
    alive: list[int] = []

    def many() -> Iterator[pa.RecordBatch]:
        for _ in range(100):
            alive.append(pa.total_allocated_bytes())
            yield pa.RecordBatch.from_pydict({"key_0": pa.array(["a" * 16] * 10_000)})

    (told,) = arrow_counts(1, 0, piece=20_000)(many())
    assert told.to_pylist()[0]["in_rows"] == 1_000_000
    assert max(alive) - alive[0] < 2_000_000, "a batch has 200 kB, and all of them 20 MB"
