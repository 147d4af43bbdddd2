"""Cases of the benchmarks work: at small size, from the first line to the figures. Nothing here is judged by its time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_process
from waiting import PATIENCE

from benchmarks.workbench import PROJECT
from de_resources.local import LocalServices
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.services

CASES = ("generator", "import_time", "observatory", "make_test", "orderers", "sessions", "lineage", "year_of_hours")
"""Those that end within some minutes; `make bench ARGS="--size small"` tries the others too."""


def environment(**variables: str) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name not in ("DE_HOME", "DE_SPARK", "DE_CALENDAR")}
    return {**known, "PYTHONWARNINGS": "ignore", **variables}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


@pytest.mark.parametrize("name", CASES)
def test_a_case_comes_to_its_figures(name: str) -> None:
    done = python("-m", "benchmarks", name, "--size", "small", "--anyway")
    told = done.stdout + done.stderr
    # 1: a bar is missed, which figures of this size say nothing about; 2: it could not measure.
    assert done.returncode in (0, 1), told[-3000:]
    assert "docs/benchmarks.md is left as it is" in told


def test_a_measured_program_that_fails_says_why(at_home: LocalServices, tmp_path: Path) -> None:
    places = {"DE_HOME": str(tmp_path), "LAKE_ROOT": str(tmp_path / "lake"), "DAGSTER_HOME": str(tmp_path / "dagster")}
    (tmp_path / "dagster").mkdir()
    hours = "2026-01-05T00/2026-01-05T02"
    said = tmp_path / "said"
    process = warm_process.start(
        "warm_process:program",
        *(str(PROJECT), "benchmarks.programs.load_hours"),
        environment=environment(DE_CALENDAR=hours, DE_SPARK=SparkEngine().resolved_url(), **places),
        output=said,
    )
    process.join(PATIENCE)
    assert process.exitcode == 1
    assert "2 landed folder(s) are not complete" in said.read_text()
