"""Sessions of a stream over the engine that all runs share: state, timers and what is remembered, read from outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

CLIENT = Path(__file__).with_name("stateful_sessions_client.py")

pytestmark = [pytest.mark.services, pytest.mark.pattern("stateful_sessionizer")]


def test_a_session_goes_on_from_batch_to_batch_and_ends_when_time_has_come(
    over_connect: Callable[..., str], tmp_path: Path
) -> None:
    came = [("ann", 0, "home"), ("bob", 5, "logout"), ("ann", 25, "home"), ("ann", 45, "home"), ("eve", 200, "home")]
    told = json.loads(over_connect(CLIENT, str(tmp_path), json.dumps(came)))
    assert told["found"] == [["ann", 0, 3, "inactivity"], ["bob", 5, 1, "closing_page"]]
    assert told["state"] == 1
    account = {"visits": 5, "in_closed_sessions": 4, "in_open_sessions": 0, "waiting": 1, "late_at_most": 0}
    assert told["account"] == account
    # Other streams of the same session keep the engine's own state store.
    assert told["left"] == "unsaferow"
