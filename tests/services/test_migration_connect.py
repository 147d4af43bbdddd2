"""Tables go through their migrations in the shared engine, over Spark Connect: the same walks as in a classic session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import migration_walk
import pytest
from migration_walk import RESTARTS

pytestmark = [pytest.mark.services, pytest.mark.pattern("schema_migrator")]

CLIENT = Path(migration_walk.__file__)


def test_columns_become_a_struct_and_come_back_over_connect(over_connect: Callable[..., str], tmp_path: Path) -> None:
    assert json.loads(over_connect(CLIENT, str(tmp_path))) == {}


@pytest.mark.parametrize("kind", RESTARTS)
def test_every_kind_goes_forward_and_back_over_connect(
    over_connect: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    assert json.loads(over_connect(CLIENT, str(tmp_path), kind)) == {kind: RESTARTS[kind]}
