"""What tests of assets on a lake share."""

from pathlib import Path

import pytest
from io_manager_support import Shop

from de_resources.spark import SparkEngine


@pytest.fixture
def shop(engine: SparkEngine, lake: Path) -> Shop:
    """A lake of the test's own, with an instance of its own."""
    return Shop(engine, lake)
