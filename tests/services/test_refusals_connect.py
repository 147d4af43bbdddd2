"""Every refusal is the platform's own error, over Spark Connect: the list that `tests/graph` runs in a classic session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from de_resources.local import LocalServices

pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.pattern("data_overwrite")]

CLIENT = Path(__file__).with_name("refusals_client.py")


def test_every_refusal_has_its_own_name_and_leaves_the_table_alone(
    over_connect: Callable[..., str], at_home: LocalServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "graph"))
    from refusals import CANARY, REFUSALS

    found = json.loads(over_connect(CLIENT, str(tmp_path)).splitlines()[-1])
    assert found == {refusal.name: [[refusal.expected], refusal.rows] for refusal in REFUSALS}
    log = (at_home.settings.logs / "spark_connect.log").read_text()
    assert "violated by row with values: ***" in log
    assert CANARY not in log, "no value of a refused row reaches the engine's log"
