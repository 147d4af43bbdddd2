"""Maintenance and restore through the shared engine, over Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from de_resources.local import LocalServices

pytestmark = [pytest.mark.services, pytest.mark.pattern("compactor")]

CLIENT = Path(__file__).with_name("maintenance_client.py")


def test_a_table_is_compacted_vacuumed_and_restored_over_connect(at_home: LocalServices, tmp_path: Path) -> None:
    endpoint = at_home.endpoint("spark_connect")
    assert endpoint is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(
        [sys.executable, str(CLIENT), f"sc://{endpoint.address}", str(tmp_path / "table")],
        env={**environment, "SPARK_CONNECT_AUTHENTICATE_TOKEN": endpoint.password.get_secret_value()},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["files"] == [4, 1]
    assert answer["lost"] == [0, 1, 2, 3]
    assert answer["rows"] == [40, 40]
    assert answer["stamped"]
    # The statements' settings stayed in a session of their own.
    assert answer["metadata_left"] == "none"
