"""A wide table over Spark Connect, whose messages may not be nested deeply: expressions do not grow in depth with columns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from de_resources.local import LocalServices

pytestmark = [pytest.mark.services, pytest.mark.pattern("merger")]

CLIENT = Path(__file__).with_name("wide_merge_client.py")
WIDTH = 300
"""A chain of 44 was refused."""


def test_a_wide_table_is_merged_over_connect(at_home: LocalServices, tmp_path: Path) -> None:
    endpoint = at_home.endpoint("spark_connect")
    assert endpoint is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(
        [sys.executable, str(CLIENT), f"sc://{endpoint.address}", str(tmp_path / "table"), str(WIDTH)],
        env={**environment, "SPARK_CONNECT_AUTHENTICATE_TOKEN": endpoint.password.get_secret_value()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [{"insert": 10}, {"update": 3}, {}]
