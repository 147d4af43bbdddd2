"""A log of scanners, two days of it in 6 of 24 hours each, end to end by the command that people use; then the same again."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from scanner_log import NO_REQUESTS, scanner_log

LINES = 17_847
DAYS = datetime(2026, 3, 9), datetime(2026, 3, 10)
HOURS = 6


def test_a_log_of_scanners_ends_green_and_again_computes_nothing(
    soak_seed: int, run_de: Callable[..., str], tmp_path: Path
) -> None:
    """Without services: what reads users or live visits is left out, and what is left judges the log alone."""
    random = Random(soak_seed)  # noqa: S311 - hours of a log, not a secret
    lines, told, hours = list[str](), dict[str, int](), list[datetime]()
    for n, day in enumerate(DAYS):
        busy = sorted(random.sample(range(24), HOURS))
        hours += [day + timedelta(hours=hour) for hour in busy]
        of_day = scanner_log(soak_seed + n, day, busy, LINES)
        lines += of_day
        told[f"{day:%Y-%m-%d}"] = sum(not _is_dead(line) for line in of_day)
    log = tmp_path / "access.log"
    log.write_text("".join(lines))
    dead = sum(map(_is_dead, lines))

    def run() -> tuple[str, dict[str, list[str]]]:
        """What was printed, and the summary's row of each dataset: partitions, rows, version, seconds, what happened."""
        said = run_de("run", "--once", "--without-services", "--log", str(log))
        assert ", 0 failed; " in said
        rows = [[cell.strip() for cell in line.split("│")] for line in said.splitlines() if line.startswith("│")]
        return said, {row[1]: row[2:7] for row in rows if re.fullmatch(r"\w+/\w+", row[1])}

    said, first = run()
    covered = (hours[-1] - hours[0]) // timedelta(hours=1) + 1
    assert (
        f"{len(lines):,} lines read: {sum(told.values()):,} visits in {covered} hours, {dead:,} dead letter(s)." in said
    )
    for name, visits in told.items():
        assert f"{name} {visits:,}" in said
    partitioned = {name for name, (keys, *_, what) in first.items() if keys and what == "written"}
    assert partitioned >= {
        "bronze/visits",
        "silver/visits",
        "gold/sessions",
        "gold/visits_cube_daily",
        "serving/visits_csv",
    }

    _, second = run()
    assert {name: second[name][-1] for name in partitioned} == dict.fromkeys(partitioned, "up to date")


def _is_dead(line: str) -> bool:
    return any(f'"{request}" 400' in line for request in NO_REQUESTS)
