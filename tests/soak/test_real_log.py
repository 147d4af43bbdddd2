"""A real blog's access log, end to end, piece by piece. The log is not part of the project: skipped where it is absent."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from de_assets.sources.access_log import land_access_log
from de_assets.sources.landing import data_files, hour_folder

PROJECT = Path(__file__).resolve().parents[2]
LOG = PROJECT.parent / "shared" / "data" / "blog_access.log"
LINES = 1_000
_DAY = re.compile(rb"\[(\d+/\w+/\d+):")

pytestmark = pytest.mark.skipif(
    not LOG.exists(), reason=f"the shared log ../shared/data/{LOG.name} is not on this machine"
)


def test_a_piece_of_the_log_becomes_the_figures_of_its_lines(
    soak_seed: int, run_de: Callable[..., str], tmp_path: Path
) -> None:
    """`de run --log` as people run it, with services of its own; nobody feeds users, legacy visits and live visits then.

    The piece is of one day: a check rightly finds that the two halves of a night are unlike days.
    """
    lines = LOG.read_bytes().splitlines(keepends=True)
    days = [_DAY.search(line) for line in lines]
    of_one_day = [n for n, (one, other) in enumerate(zip(days, days[LINES - 1 :], strict=False)) if _same(one, other)]
    first = random.Random(soak_seed).choice(of_one_day)  # noqa: S311 - a piece, not a secret
    piece = tmp_path / "piece.log"
    piece.write_bytes(b"".join(lines[first : first + LINES]))
    landed = land_access_log(tmp_path / "landed", [piece], b"sixteen bytes ok")
    records = [json.loads(line) for hour in landed.hours for line in _lines(tmp_path / "landed", hour)]
    ids = [record["visit_id"] for record in records if "visit_id" in record]

    output = run_de("run", "--once", "--log", str(piece))

    dead = len(landed.dead_letters)
    for figure in (
        f"{LINES:,} lines read: {landed.visits:,} visits in {len(landed.hours)} hours, {dead} dead letter(s)",
        f"{LINES:,} records, {dead} dead letter(s), {landed.visits:,} understood in {len(landed.hours)} hourly partitions, "
        f"{len(ids) - len(set(ids)):,} duplicate(s) removed",
        *(f"{day} {visits:,}" for day, visits in landed.per_day.items()),
    ):
        assert figure in output
    assert ", 0 failed; " in output
    left_out = [line for line in output.splitlines() if line.strip().startswith("left out ")]
    assert len(left_out) == 2, left_out
    for table in ("users", "legacy_visits"):
        assert any(f"the database has no table `{table}`" in line for line in left_out)


def _same(one: re.Match[bytes] | None, other: re.Match[bytes] | None) -> bool:
    return one is not None and other is not None and one[1] == other[1]


def _lines(landing: Path, hour: datetime) -> Iterator[bytes]:
    for file in data_files(hour_folder(landing, hour)):
        yield from file.read_bytes().splitlines()
