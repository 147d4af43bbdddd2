"""A plugin of pytest that writes down what became of each test, and from where the project's packages were imported."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

REPORT = "DE_SABOTAGE_REPORT"
"""Environment variable: the file to write."""

_failed: list[str] = []
_passed: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)
    elif report.when == "call" and report.passed:
        _passed.append(report.nodeid)


def pytest_sessionfinish() -> None:
    own = ("de_assets", "de_resources", "de_checks")
    modules = {name: sys.modules[name].__file__ for name in own if name in sys.modules}
    report = {"failed": _failed, "passed": _passed, "modules": modules}
    Path(os.environ[REPORT]).write_text(json.dumps(report))
