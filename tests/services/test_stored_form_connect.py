"""The last stage of a writer over Spark Connect: the cases of `tests/graph/stored_forms.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.services, pytest.mark.pattern("merger"), pytest.mark.pattern("data_overwrite")]

CLIENT = Path(__file__).with_name("stored_form_client.py")


def test_a_merge_compares_what_is_meant_and_the_guards_hold(
    over_connect: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "graph"))
    from stored_forms import CHANGED, MERGED

    found = json.loads(over_connect(CLIENT, str(tmp_path)).splitlines()[-1])
    assert ([tuple(row) for row in found["rows"]], found["changes"]) == (MERGED, CHANGED)
    assert found["refused"] == ["RowsOutsideSlice", "StoredElsewhere"]
