"""A wide table over Spark Connect, whose messages may not be nested deeply: expressions do not grow in depth with columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.services]

CLIENT = Path(__file__).with_name("wide_merge_client.py")
WIDTHS = 48, 300, 2_000
"""A chain of 44 was refused, so that the first one tells; 2,000 is the bar."""


@pytest.mark.pattern("merger")
def test_rows_of_sixty_key_columns_are_merged_over_connect(over_connect: Callable[..., str], tmp_path: Path) -> None:
    said = over_connect(CLIENT, str(tmp_path), "10", "merge_by_many")
    assert json.loads(said.splitlines()[-1]) == {"merge_by_many": {"insert": 2, "update": 3}}


@pytest.mark.pattern("merger", "data_overwrite", "stateful_merger")
@pytest.mark.parametrize("width", WIDTHS)
def test_a_wide_table_is_written_in_every_way_over_connect(
    over_connect: Callable[..., str], tmp_path: Path, width: int
) -> None:
    """In one process, whose start takes as long as some of them."""
    said = over_connect(CLIENT, str(tmp_path), str(width), "merge", "overwrite", "append", "stateful_merge", "stream")
    assert json.loads(said.splitlines()[-1]) == {
        "merge": {"insert": 2, "update": 3},
        "overwrite": 12,
        "append": 12,
        "stateful_merge": {"insert": 12},
        "stream": 12,
    }
