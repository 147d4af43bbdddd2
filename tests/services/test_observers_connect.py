"""Both observers through the shared engine, over Spark Connect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.services, pytest.mark.pattern("online_observer", "offline_observer")]

CLIENT = Path(__file__).with_name("observers_client.py")


def test_rows_and_no_rows_are_observed_over_connect(over_connect: Callable[..., str], tmp_path: Path) -> None:
    filled, empty = json.loads(over_connect(CLIENT, str(tmp_path)))
    assert filled == {
        "observer/rows": 100,
        "observer/v/nulls": 0,
        "observer/v/min": 0.0,
        "observer/v/max": 99.0,
        "observer/v/median": 49.0,
        "observer/v/not_finite": 0,
        "observer/at/nulls": 0,
        "observer/who/nulls": 10,
        "observer/who/distinct": 1,
        "profiled": 100,
    }
    assert (empty["observer/rows"], empty["profiled"]) == (0, 0)
