"""Which tests passed in all of their cases, kept by pytest beside those that failed.

`make sabotage` does not ask them again without a defect.
"""

from __future__ import annotations

import re

import pytest

KEPT = "de/passed"
"""Where in pytest's cache."""
# `--dist loadgroup` appends the group to the id of a test.
_GROUP = re.compile(r"@[^]@:/]+$")

_passed: set[str] = set()
_failed: set[str] = set()


def without_group(test: str) -> str:
    """The id by which pytest finds it again."""
    return _GROUP.sub("", test)


def _function(test: str) -> str:
    return without_group(test).partition("[")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)
    elif report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The process that others report to writes it down."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        failed = {_function(test) for test in _failed}
        cache.set(KEPT, sorted(without_group(test) for test in _passed if _function(test) not in failed))
