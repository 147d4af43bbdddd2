"""A piece of a real blog's access log, end to end, by the command that people use, on the shared engine.

Beside it are a database and topics in which nothing has happened: that is a normal case.
Other pieces, by an engine of their own, are in the long proofs. The log is not part of the project: skipped where it is absent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from platform_world import Platform

from de_resources.local import LocalServices
from de_resources.spark import SparkEngine

PROJECT = Path(__file__).resolve().parents[2]
LOG = PROJECT.parent / "shared" / "data" / "blog_access.log"
# With the one line of the log that is none; of the second of its three hours, nothing else.
PIECE = slice(8_800, 9_000)
QUIET = b"[20/May/2015:12:"
FIGURES = (
    "89 lines read: 88 visits in 3 hours, 1 dead letter(s). 3 hours are new or have grown, 1 are quiet.",
    "piece.log line 55",
    "89 records, 1 dead letter(s), 88 understood in 2 hourly partitions, 0 duplicate(s) removed",
    "2015-05-20 88",
    ", 0 failed; ",
)

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(not LOG.exists(), reason=f"the shared log ../shared/data/{LOG.name} is not on this machine"),
]


def test_a_piece_of_the_log_with_a_quiet_hour_becomes_its_known_figures(
    platform: Platform, quiet_services: LocalServices, tmp_path: Path
) -> None:
    piece = tmp_path / "piece.log"
    lines = LOG.read_bytes().splitlines(keepends=True)[PIECE]
    piece.write_bytes(b"".join(line for line in lines if QUIET not in line or line.count(b'"') % 2))
    with platform.at_home():
        engine = SparkEngine().resolved_url()
    environment = {**os.environ, "DE_HOME": str(quiet_services.settings.home), "DE_SPARK": engine, "COLUMNS": "240"}
    command = [str(Path(sys.executable).with_name("de")), "run", "--once", "--without-services", "--log", str(piece)]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    for figure in FIGURES:
        assert figure in done.stdout
    for said in ("left out", "held back", "failed:"):
        assert said not in done.stdout
