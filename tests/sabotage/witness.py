"""A plugin of pytest that writes down what became of each test, and from where the project's packages were imported.

The first engine of the process is an application in the Java process that is told by `ENGINE`, if one is. Programs that tests
start do not know of it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

REPORT = "DE_SABOTAGE_REPORT"
"""Environment variable: the file to write."""
ENGINE = "DE_SABOTAGE_ENGINE"
"""Environment variable: port and secret of a Java process to use."""

# Elsewhere a wait in vain is a defect that somebody has to mend; here it is the answer of many a test.
_PATIENCE = 60.0

_failed: list[str] = []
_passed: list[str] = []


def _use_engine(port: str, secret: str) -> None:
    from pyspark.core import context

    launch = context.launch_gateway

    def connect(*arguments: Any) -> Any:
        context.launch_gateway = launch
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYSPARK_GATEWAY_PORT", port)
            patch.setenv("PYSPARK_GATEWAY_SECRET", secret)
            return launch(*arguments)

    context.launch_gateway = connect


if ENGINE in os.environ:
    _use_engine(*os.environ.pop(ENGINE).split())


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before any test takes over how long it waits for what has to come."""
    import waiting

    waiting.PATIENCE = _PATIENCE


def pytest_configure() -> None:
    """Hypothesis looks for no smaller example of a failure, which takes minutes: that there is one is all that is asked."""
    settings.register_profile("sabotage", settings.default, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("sabotage")


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
