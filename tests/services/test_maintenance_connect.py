"""Maintenance and restore through the shared engine, over Spark Connect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.services, pytest.mark.pattern("compactor")]

CLIENT = Path(__file__).with_name("maintenance_client.py")


def test_a_table_is_compacted_vacuumed_and_restored_over_connect(
    over_connect: Callable[..., str], tmp_path: Path
) -> None:
    answer = json.loads(over_connect(CLIENT, str(tmp_path / "table")))
    assert answer["files"] == [4, 1]
    assert answer["lost"] == [0, 1, 2, 3]
    assert answer["rows"] == [40, 40]
    assert answer["stamped"]
    # The statements' settings stayed in a session of their own.
    assert answer["metadata_left"] == "none"
