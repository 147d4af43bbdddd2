"""Two logs that overlap, in any order, and both of them at once: the same rows in every table from silver on."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

BEGAN = datetime(2024, 10, 10, 20, tzinfo=UTC)
LINES, HOURS = 300, 8
OF_THE_RUN = {"run_id", "attempt", "computed_at", "ingested_at", "loaded_at"}
"""Columns that tell of the run and not of the visits."""


def test_a_log_in_two_parts_ends_with_the_tables_of_the_whole_log(
    soak_seed: int, run_de: Callable[..., str], tmp_path: Path
) -> None:
    """Over midnight, without services; the second home has the secret of the first, by which visitors get their names."""
    random_ = random.Random(soak_seed)  # noqa: S311 - a log, not a secret
    seconds = sorted(random_.randrange(HOURS * 3600) for _ in range(LINES))
    lines = [_line(BEGAN + timedelta(seconds=at), random_.randrange(9)) for at in seconds]
    cut, overlap = random_.randrange(LINES // 4, 3 * LINES // 4), random_.randrange(LINES // 4)
    parts = [lines[:cut], lines[cut - overlap :]]
    random_.shuffle(parts)
    whole = Counter(parts[0]) | Counter(parts[1])

    def land(home: str, name: str, log: list[str]) -> None:
        (tmp_path / name).write_text("".join(log))
        run_de("run", "--once", "--without-services", "--log", str(tmp_path / name), home=home)

    for number, part in enumerate(parts):
        land("in_parts", f"{number}.log", part)
    shutil.copytree(tmp_path / "in_parts" / "secrets", tmp_path / "at_once" / "secrets")
    land("at_once", "whole.log", sorted(whole.elements(), key=lines.index))

    expected = _tables(tmp_path / "at_once")
    assert all(expected[name] for name in ("silver/visits_enriched", "gold/sessions", "gold/visits_cube_daily"))
    found = _tables(tmp_path / "in_parts")
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name] == rows, name


def _tables(home: Path) -> dict[str, Counter[str]]:
    """The rows of all tables that are computed from what bronze has, without what tells of runs."""
    found: dict[str, Counter[str]] = {}
    for layer in ("silver", "gold"):
        for log in sorted((home / "lake" / layer).rglob("_delta_log")):
            table = DeltaTable(log.parent).to_pyarrow_table()
            kept = table.select(sorted(set(table.column_names) - OF_THE_RUN))
            found[f"{layer}/{log.parent.name}"] = Counter(map(str, kept.to_pylist()))
    return found


def _line(at: datetime, page: int) -> str:
    time = f"{at:%d/%b/%Y:%H:%M:%S} +0000"
    return f'203.0.113.{page} - - [{time}] "GET /{page}/{at:%M} HTTP/1.1" 200 5 "-" "Mozilla/5.0 (X11) Firefox/128.0"\n'
