"""Dagster's webserver and daemon over the project's workspace, and a click on *Materialize* as a program does it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import requests

from de_resources.errors import TransientError

PROJECT = Path(__file__).resolve().parents[2]
READY_SECONDS = 180.0
RUN_SECONDS = 300.0
_POLL_SECONDS = 0.02

_INSTIGATORS = """query { repositoriesOrError { ... on RepositoryConnection { nodes {
    sensors { sensorState { id } } schedules { scheduleState { id } } } } } }"""
_STOP_SENSOR = "mutation Stop($id: String!) { stopSensor(id: $id) { __typename } }"
_STOP_SCHEDULE = "mutation Stop($id: String!) { stopRunningSchedule(id: $id) { __typename } }"
_LAUNCH = """mutation Launch($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } } }"""


class UINotReady(TransientError):
    """The webserver did not answer in time, or a run did not end."""


class UI:
    """The webserver's side of a click; `instance` is read for what became of the run."""

    def __init__(self, port: int, instance: dg.DagsterInstance) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._instance = instance
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy stands between us and the loopback

    def wait(self) -> None:
        """Return when the webserver answers. Raises `UINotReady`."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            try:
                if self._http.get(f"{self._url}/server_info", timeout=10).ok:
                    return
            except requests.ConnectionError:
                time.sleep(0.5)
        raise UINotReady(f"The webserver did not answer within {READY_SECONDS:.0f} s. Look at the machine's load.")

    def stop_automation(self) -> None:
        """Nothing but clicks starts a run."""
        for location in self._ask(_INSTIGATORS)["repositoriesOrError"]["nodes"]:
            for sensor in location["sensors"]:
                self._ask(_STOP_SENSOR, id=sensor["sensorState"]["id"])
            for schedule in location["schedules"]:
                self._ask(_STOP_SCHEDULE, id=schedule["scheduleState"]["id"])

    def materialize(self, asset: str) -> str:
        """Click, wait until the run has succeeded, and return its id. Raises `UINotReady`."""
        selector = {
            "repositoryLocationName": "de_assets",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": asset.split("/")}],
        }
        params = {"selector": selector, "mode": "default", "runConfigData": {}, "executionMetadata": {"tags": []}}
        run: str = self._ask(_LAUNCH, params=params)["launchPipelineExecution"]["run"]["runId"]
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            found = self._instance.get_run_by_id(run)
            if found is not None and found.is_finished:
                if found.is_success:
                    return run
                raise UINotReady(f"The run {run} ended as {found.status.value}. Its log says why.")
            time.sleep(_POLL_SECONDS)
        raise UINotReady(f"The run {run} did not end within {RUN_SECONDS:.0f} s.")

    def _ask(self, query: str, **variables: object) -> dict[str, Any]:
        answer = self._http.post(f"{self._url}/graphql", json={"query": query, "variables": variables}, timeout=120)
        answer.raise_for_status()
        data: dict[str, Any] = answer.json()["data"]
        return data


@contextmanager
def served(environment: Mapping[str, str]) -> Iterator[UI]:
    """The UI in that environment, whose DAGSTER_HOME gets the project's `dagster.yaml`; nothing of it is left."""
    home = Path(environment["DAGSTER_HOME"])
    shutil.copyfile(PROJECT / "dagster.yaml", home / "dagster.yaml")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workspace = ["-w", str(PROJECT / "workspace.yaml")]
    with ExitStack() as stack:
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
        ui = UI(port, instance)
        stack.enter_context(
            _running(["dagster_webserver", *workspace, "-h", "127.0.0.1", "-p", str(port)], environment)
        )
        ui.wait()
        ui.stop_automation()
        stack.enter_context(_running(["dagster._daemon", "run", *workspace], environment))
        yield ui


@contextmanager
def _running(arguments: list[str], environment: Mapping[str, str]) -> Iterator[None]:
    command = [sys.executable, "-m", *arguments]
    variables = {**os.environ, "PYTHONWARNINGS": "ignore", **environment}
    with (Path(environment["DAGSTER_HOME"]) / f"{arguments[0]}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=PROJECT, env=variables, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        process.terminate()
        process.wait(60)
        _, left = psutil.wait_procs(family, timeout=30)
        for each in left:
            each.kill()
