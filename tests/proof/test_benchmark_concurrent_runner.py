"""The case `concurrent_runner`: when a commit counts as lost. Nothing here is timed, and no engine is started."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from benchmarks.case import ResultsDiffer
from benchmarks.cases.concurrent_runner import NAMES, OURS, PLAIN, RS, Writers, figures, lost_commits, rows_of
from benchmarks.figure import Kind
from benchmarks.measure import Sample
from benchmarks.programs.slot_writer import ROWS

WHOLE = Counter(range(ROWS))


def table(folder: Path, rows: dict[str, list[int]]) -> str:
    """A table that holds these numbers by slot."""
    flat = [(slot, number) for slot, numbers in rows.items() for number in numbers]
    columns = {"slot": [slot for slot, _ in flat], "number": [number for _, number in flat]}
    write_deltalake(str(folder), pa.table(columns), partition_by=["slot"])
    return str(folder)


def test_a_commit_is_lost_where_its_rows_are_not_there_each_once() -> None:
    assert lost_commits(["a", "b"], {"a": WHOLE, "b": WHOLE}) == 0
    assert lost_commits(["a", "b"], {"a": WHOLE}) == 1, "nothing of it"
    assert lost_commits(["a"], {"a": WHOLE - Counter([0])}) == 1, "a row is missing"
    assert lost_commits(["a"], {"a": WHOLE + Counter([0])}) == 1, "a row is there twice"
    assert lost_commits([], {"a": WHOLE}) == 1, "rows of a commit that nobody believes to have made"


def test_ours_may_lose_none_and_the_peers_losses_are_told(tmp_path: Path) -> None:
    full, numbers = tmp_path / "full", list(range(ROWS))
    torn = table(tmp_path / "torn", {"w0r0c0": numbers, "w1r0c0": numbers[1:]})
    tables = {OURS: table(full, {"w0r0c0": numbers, "w1r0c0": numbers}), PLAIN: torn, RS: str(full)}
    nobody: Any = [None] * 8
    writers = Writers(nobody, tables, 1, {way: ["w0r0c0", "w1r0c0"] for way in NAMES})
    assert rows_of(str(full)) == {"w0r0c0": WHOLE, "w1r0c0": WHOLE}
    writers.verify()
    writers.again[PLAIN] = 3
    samples = {way: (Sample(2.0), Sample(4.0), Sample(4.0)) for way in NAMES}
    beside_plain, beside_rs, *rates = figures(writers, samples)
    assert beside_plain.note == (
        "0 of 2 commits lost, begun again 0 times; peer: 1 of 2 commits lost, begun again 3 times"
    )
    assert beside_rs.note.count("0 of 2 commits lost") == 2
    assert [(rate.kind, rate.value) for rate in rates] == [(Kind.RATE, 2.0)] * 3, "eight commits in four seconds"
    with pytest.raises(ResultsDiffer, match="commits lost"):
        Writers([], {**tables, OURS: torn}, 1, writers.believed).verify()
