"""Which engine a process gets, what it is called, and how it is got back after a loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from platform_world import Platform
from waiting import PATIENCE

from de_resources.spark import EngineUnreachable, SparkEngine

pytestmark = pytest.mark.services

CLIENT = Path(__file__).with_name("engine_client.py")


def test_a_process_finds_the_running_server_by_itself(platform: Platform) -> None:
    (told,) = _documents(_use(_environment(platform)))
    assert told == {"label": _label(platform), "shared": True, "answer": 42, "same": True, "across_resources": True}


@pytest.mark.parametrize("inherited", [{}, {"SPARK_CONNECT_MODE_ENABLED": "1"}], ids=["new", "child of a client"])
def test_without_a_server_the_engine_is_in_the_process(tmp_path: Path, inherited: dict[str, str]) -> None:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    (told,) = _documents(_use({**outside, **inherited, "DE_HOME": str(tmp_path)}))
    assert told == {"label": "local[*]", "shared": False, "answer": 42, "same": True, "across_resources": True}


@pytest.mark.faults
def test_after_a_loss_there_is_no_second_engine_and_then_a_new_session(platform: Platform) -> None:
    server, label = platform.status("spark_connect").pid, _label(platform)
    with subprocess.Popen(
        [sys.executable, str(CLIENT), str(server)],
        env=_environment(platform),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        told = json.loads(client.stdout.readline())
        platform.up()
        client.stdin.write("up again\n")
        client.stdin.flush()
        again = json.loads(client.stdout.readline())
        assert client.wait(PATIENCE) == 0

    assert f"The engine {label} stopped answering" in told["lost"]
    assert told["lost_to_others"] == told["lost"], "and not that there is no active session"
    assert f"The engine {label} does not answer" in told["unreachable"]
    assert told["shared_still"]
    assert again == {"answer": 7, "label": label, "made_anew": True}
    assert _token(platform) not in json.dumps([told, again])


def test_the_label_has_no_token(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    with platform.at_home():
        assert _token(platform) in SparkEngine().resolved_url()
        assert SparkEngine().label == _label(platform)
    for url in ("sc://host:1/;token=geheim", "sc://host:1/;user_id=me;token=geheim", "sc://host:1;token=geheim"):
        assert SparkEngine(url=url).label == "sc://host:1"
    monkeypatch.setenv("DE_SPARK", "sc://other:2/;token=geheim")
    assert SparkEngine().label == "sc://other:2"
    assert SparkEngine(url="local[2]").label == "local[2]", "the resource's own address wins"


def test_a_configured_server_that_is_away_is_named_at_once_and_without_its_token() -> None:
    with pytest.raises(EngineUnreachable, match=r"sc://localhost:1 does not answer.*de up") as away:
        _ = SparkEngine(url="sc://localhost:1/;token=geheim").spark_session
    assert "geheim" not in str(away.value)


def _use(environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, str(CLIENT)], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _documents(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _environment(platform: Platform) -> dict[str, str]:
    return {**os.environ, "DE_HOME": str(platform.services.settings.home)}


def _label(platform: Platform) -> str:
    endpoint = platform.services.endpoint("spark_connect")
    assert endpoint is not None
    return f"sc://{endpoint.address}"


def _token(platform: Platform) -> str:
    endpoint = platform.services.endpoint("spark_connect")
    assert endpoint is not None
    return endpoint.password.get_secret_value()
