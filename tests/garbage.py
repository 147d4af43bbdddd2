"""What a test process has imported and collected is never garbage: the collector of Python does not look at it.

A million objects are there before the first test. A full collection takes half a second of them, and the process makes a
dozen while it imports and a few more between the tests: a quarter of the time of the units' own processes. Processes that
are forked share the pages of what is frozen.
"""

from __future__ import annotations

import gc

import pytest

gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From the first test on garbage is collected as always."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """What is lost by now is looked for once. Pytest looks five times more, at all that there is, before it ends."""
    if gc.isenabled():
        gc.collect()
    gc.freeze()
