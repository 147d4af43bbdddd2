"""`--pattern NAME`: only the tests that are marked with this pattern of the catalogue."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pattern", help="Only the tests that prove this pattern, by name, title or other name.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not claim the pattern; an unknown name is an error that names the nearest."""
    asked = config.getoption("--pattern")
    if asked is None:
        return
    from de_assets import catalogue

    try:
        wanted = {pattern.name for pattern in catalogue.look_up(asked)[0]}
    except catalogue.UnknownPattern as unknown:
        raise pytest.UsageError(str(unknown)) from None
    chosen = [item for item in items if any(wanted & set(mark.args) for mark in item.iter_markers("pattern"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
