"""A real blog's access log, end to end, piece by piece. The log is not part of the project: skipped where it is absent."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from de_assets.sources.access_log import land_access_log
from de_assets.sources.landing import data_files, hour_folder

PROJECT = Path(__file__).resolve().parents[2]
LOG = PROJECT.parent / "shared" / "data" / "blog_access.log"
LINES = 1_000

pytestmark = pytest.mark.skipif(
    not LOG.exists(), reason=f"the shared log ../shared/data/{LOG.name} is not on this machine"
)


def test_two_logs_that_overlap_become_the_figures_of_their_lines(
    soak_seed: int, run_de: Callable[..., str], tmp_path: Path
) -> None:
    """`de run --log` as people run it, twice, with services of its own; nobody feeds users, legacy and live visits then."""
    random_ = random.Random(soak_seed)  # noqa: S311 - a piece, not a secret
    lines = LOG.read_bytes().splitlines(keepends=True)
    first = random_.randrange(len(lines) - LINES)
    piece = lines[first : first + LINES]
    cut, overlap = random_.randrange(LINES // 4, 3 * LINES // 4), random_.randrange(LINES // 4)
    logs = [piece[:cut], piece[cut - overlap :]]
    random_.shuffle(logs)
    for number, log in enumerate(logs):
        (tmp_path / f"{number}.log").write_bytes(b"".join(log))
    both = Counter(logs[0]) | Counter(logs[1])
    landed = land_access_log(tmp_path / "landed", [_written(tmp_path / "both.log", both)], b"sixteen bytes ok")
    ids = [record["visit_id"] for record in _records(tmp_path / "landed", landed.hours) if "visit_id" in record]

    run_de("run", "--once", "--log", str(tmp_path / "0.log"))
    output = run_de("run", "--once", "--log", str(tmp_path / "1.log"))

    for figure in (
        f"{len(logs[1]):,} lines read: ",
        f"{both.total():,} records, {landed.rejected} dead letter(s), {landed.visits:,} understood in "
        f"{len(landed.hours)} hourly partitions, {len(ids) - len(set(ids)):,} duplicate(s) removed",
        *(f"{day} {visits:,}" for day, visits in landed.per_day.items()),
    ):
        assert figure in output
    assert ", 0 failed; " in output
    left_out = [line for line in output.splitlines() if line.strip().startswith("left out ")]
    assert len(left_out) == 2, left_out
    for table in ("users", "legacy_visits"):
        assert any(f"the database has no table `{table}`" in line for line in left_out)


def _written(file: Path, lines: Counter[bytes]) -> Path:
    file.write_bytes(b"".join(lines.elements()))
    return file


def _records(landing: Path, hours: list[datetime]) -> Iterator[dict[str, Any]]:
    for hour in hours:
        for file in data_files(hour_folder(landing, hour)):
            yield from map(json.loads, file.read_bytes().splitlines())
