"""How long the whole suite takes, as its last run reported: `make test` writes `.de/test-report.json`.

It is not run here, for it takes many times longer than all cases together. Without a report nothing is judged, and the bar
counts as one that was not shown to hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.figure import Figure, Kind
from benchmarks.measure import Sample
from benchmarks.workbench import PROJECT, Workbench

BAR = 20 * 60
REPORT = PROJECT / ".de" / "test-report.json"


def run(bench: Workbench) -> list[Figure]:  # noqa: ARG001 - every case has the bench; this one reads a file
    """Seconds of the last complete run."""
    return [figure_of(json.loads(REPORT.read_text()) if REPORT.exists() else None)]


def figure_of(report: Mapping[str, Any] | None) -> Figure:
    """The figure from the report, or one that says how to get it."""
    if report is None:
        return Figure(
            "make_test", "the whole suite", Kind.SECONDS, "tests", (), bar=BAR, note="no report yet: run `make test`"
        )
    parts = ", ".join(f"{name} {float(seconds):,.0f} s" for name, seconds in report["parts"].items())
    note = f"{report['tests']:,} tests on {report['date']}, commit {report['commit'][:12]}: {parts}"
    sample = Sample(float(report["wall_seconds"]))
    return Figure("make_test", "the whole suite", Kind.SECONDS, "tests", (sample,), bar=BAR, note=note)
