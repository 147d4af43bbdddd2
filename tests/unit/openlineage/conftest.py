"""Real runs of small assets, and who reads their events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest
from openlineage_reader import require_valid


@pytest.fixture(scope="session")
def validate() -> Callable[[dict[str, Any]], None]:
    """Reads an event, and each of its facets as the one whose schema it names."""
    return require_valid


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
