"""`@pytest.mark.red_check("name")`: the test plants a cause, sees this very check red, does what docs/second-day.md says, and
sees it green.

Taken at its word: among the verdicts that the test's instances record there has to be one of the check that failed, and a
later one that passed. `tests/graph/test_second_day.py` compares the marks with the rows of the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

_VERDICTS: defaultdict[str, list[bool]] = defaultdict(list)


def told(name: str, *, passed: bool) -> None:
    """What a check said that was called without an instance."""
    _VERDICTS[name].append(passed)


@pytest.fixture(autouse=True)
def _seen_red_then_green(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    claimed = [name for mark in request.node.iter_markers("red_check") for name in mark.args]
    if not claimed:
        yield
        return
    _VERDICTS.clear()
    handle = dg.DagsterInstance.handle_new_event

    def note(instance: dg.DagsterInstance, event: dg.EventLogEntry, **more: Any) -> None:
        verdict = event.asset_check_evaluation
        if verdict is not None:
            told(verdict.check_name, passed=verdict.passed)
        handle(instance, event, **more)

    monkeypatch.setattr(dg.DagsterInstance, "handle_new_event", note)
    yield
    for name in claimed:
        seen = _VERDICTS[name]
        assert False in seen, f"`{name}` was never red: {seen}"
        assert True in seen[seen.index(False) :], f"`{name}` was red, and never green again: {seen}"
