"""A wide table over Spark Connect, whose messages may not be nested deeply: expressions do not grow in depth with columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.services, pytest.mark.pattern("merger")]

CLIENT = Path(__file__).with_name("wide_merge_client.py")
WIDTH = 300
"""A chain of 44 was refused."""


def test_a_wide_table_is_merged_over_connect(over_connect: Callable[..., str], tmp_path: Path) -> None:
    said = over_connect(CLIENT, str(tmp_path / "table"), str(WIDTH))
    assert json.loads(said.splitlines()[-1]) == [{"insert": 10}, {"update": 3}, {}]
