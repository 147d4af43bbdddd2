"""Two logs that overlap, in any order, and both of them at once: the same rows in every table from silver on."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

PROJECT = Path(__file__).resolve().parents[2]
BEGAN = datetime(2024, 10, 10, 20, tzinfo=UTC)
LINES, HOURS = 300, 8
OF_THE_RUN = {"run_id", "attempt", "computed_at", "ingested_at", "loaded_at"}
"""Columns that tell of the run and not of the visits."""


def test_a_log_in_two_parts_ends_with_the_tables_of_the_whole_log(soak_seed: int, tmp_path: Path) -> None:
    """Over midnight, without services; the second home has the secret of the first, by which visitors get their names."""
    random_ = random.Random(soak_seed)  # noqa: S311 - a log, not a secret
    seconds = sorted(random_.randrange(HOURS * 3600) for _ in range(LINES))
    lines = [_line(BEGAN + timedelta(seconds=at), random_.randrange(9)) for at in seconds]
    cut, overlap = random_.randrange(LINES // 4, 3 * LINES // 4), random_.randrange(LINES // 4)
    parts = [lines[:cut], lines[cut - overlap :]]
    random_.shuffle(parts)
    whole = Counter(parts[0]) | Counter(parts[1])
    in_parts, at_once = tmp_path / "in_parts", tmp_path / "at_once"
    for number, part in enumerate(parts):
        _run(in_parts, _written(tmp_path / f"{number}.log", part))
    shutil.copytree(in_parts / "secrets", at_once / "secrets")
    _run(at_once, _written(tmp_path / "whole.log", sorted(whole.elements(), key=lines.index)))

    expected = _tables(at_once)
    assert all(expected[name] for name in ("silver/visits_enriched", "gold/sessions", "gold/visits_cube_daily"))
    found = _tables(in_parts)
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name] == rows, name


def _run(home: Path, log: Path) -> None:
    command = [str(Path(sys.executable).with_name("de")), "run", "--once", "--without-services", "--log", str(log)]
    environment = {**os.environ, "DE_HOME": str(home), "COLUMNS": "240"}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _tables(home: Path) -> dict[str, Counter[str]]:
    """The rows of all tables that are computed from what bronze has, without what tells of runs."""
    found: dict[str, Counter[str]] = {}
    for layer in ("silver", "gold"):
        for log in sorted((home / "lake" / layer).rglob("_delta_log")):
            table = DeltaTable(log.parent).to_pyarrow_table()
            kept = table.select(sorted(set(table.column_names) - OF_THE_RUN))
            found[f"{layer}/{log.parent.name}"] = Counter(map(str, kept.to_pylist()))
    return found


def _written(file: Path, lines: list[str]) -> Path:
    file.write_text("".join(lines))
    return file


def _line(at: datetime, page: int) -> str:
    time = f"{at:%d/%b/%Y:%H:%M:%S} +0000"
    return f'203.0.113.{page} - - [{time}] "GET /{page}/{at:%M} HTTP/1.1" 200 5 "-" "Mozilla/5.0 (X11) Firefox/128.0"\n'
