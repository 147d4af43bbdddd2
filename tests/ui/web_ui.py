"""Dagster's processes as a test sees them: started, asked over GraphQL, and stopped with all they started."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import requests
import yaml
from shared_services import SERVICES
from waiting import PATIENCE

from de_resources.local.ports import any_free
from de_resources.settings import Settings

if SERVICES not in sys.path:  # of another folder
    sys.path.append(SERVICES)
import warm_process

PROJECT = Path(__file__).resolve().parents[2]


def repository_of(location: str) -> dict[str, str]:
    """The one repository of a code location, as selectors name it."""
    return {"repositoryLocationName": location, "repositoryName": "__repository__"}


LOCATION = repository_of("de_assets")

SERVE = "from de_assets.cli.ui import serve; from de_resources.settings import Settings; import sys; "
SERVE += "serve(Settings.from_environment(), int(sys.argv[1]))"
"""A program: what `de run` does in the end, on a wanted port."""


def serve_as_de_run(port: int) -> None:
    """To start (`warm_process`): what `de run` does in the end, on a wanted port."""
    from de_assets.cli.ui import serve

    os.chdir(PROJECT)
    serve(Settings.from_environment(), port)


def until(condition: Callable[[], object], seconds: float, what: Callable[[], str]) -> None:
    """Poll until the condition is true; fail with `what` was waited for when it is not in time, nor within `PATIENCE`."""
    seconds = max(seconds, PATIENCE)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what()}"
        time.sleep(0.5)


def wind(root: Path, moment: datetime) -> None:
    """Set the clock of a location that reads it from a file: whole, so that nobody reads half of a time."""
    draft = root / "clock.new"
    draft.write_text(moment.isoformat())
    draft.replace(root / "clock")


def looks(instance: dg.DagsterInstance) -> dict[str, int]:
    """How often the daemon has evaluated each sensor and schedule."""
    states = instance.all_instigator_state()
    return {each.name: len(instance.get_ticks(each.instigator_origin_id, each.selector_id)) for each in states}


def free_port() -> int:
    """One on which a server can still listen when it has started."""
    return any_free()


class DagsterProcess:
    """One of Dagster's programs as `python -m …`, with its libraries imported before, in a folder that is not the project's."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        home = environment["DAGSTER_HOME"]
        self._log = Path(home) / f"{arguments[0]}.log"
        self._log.write_text("")
        self._process = warm_process.start(
            "warm_process:program", home, *arguments, environment=dict(environment), output=self._log
        )

    def __enter__(self) -> DagsterProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask it to end; what it started ends with it."""
        everything = self.family()
        self._process.terminate()
        _ended, left = psutil.wait_procs(everything, timeout=30)
        _kill(left)
        self._process.join()

    def family(self) -> list[psutil.Process]:
        """The process and everything that it started; nothing once it has ended."""
        if self._process.exitcode is not None:
            return []
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def kill(self) -> None:
        """Kill -9, and what it started with it."""
        _kill(self.family())
        self._process.join()

    def output(self) -> str:
        """The end of what was printed."""
        return self._log.read_text(errors="replace")[-2000:]


@contextmanager
def code_server(location: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The file's code location, by the name of the file."""
    with code_servers({location.name: ["--python-file", str(location)]}, environment) as workspace:
        yield workspace


@contextmanager
def code_servers(locations: Mapping[str, Sequence[str]], environment: Mapping[str, str]) -> Iterator[str]:
    """One process has each code location loaded for webserver and daemon, as where `dagster dev` serves both.

    They are told by their names and where their code is. The path of a workspace that names them all.
    """
    home = Path(environment["DAGSTER_HOME"])
    workspace = home / "workspace.yaml"
    sockets = {name: home / f"code-{number}" for number, name in enumerate(locations)}
    servers = [{"grpc_server": {"socket": str(socket), "location_name": name}} for name, socket in sockets.items()]
    workspace.write_text(json.dumps({"load_from": servers}))  # which is YAML as well
    with ExitStack() as started:
        processes = [
            started.enter_context(DagsterProcess(_serving(name, locations[name], socket), environment))
            for name, socket in sockets.items()
        ]
        for process, socket in zip(processes, sockets.values(), strict=True):
            until(socket.exists, PATIENCE, process.output)
        yield str(workspace)


def _serving(name: str, code: Sequence[str], socket: Path) -> list[str]:
    return ["dagster", "api", "grpc", *code, "--socket", str(socket), "--location-name", name]


def locations_of_the_project() -> dict[str, list[str]]:
    """Those of `workspace.yaml`."""
    named = yaml.safe_load((PROJECT / "workspace.yaml").read_text())["load_from"]
    modules = [location["python_module"] for location in named]
    return {module["location_name"]: ["--module-name", module["module_name"]] for module in modules}


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kill -9, whatever of them still lives: workers end while one goes through the list."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=PATIENCE)


class Webserver:
    """A webserver on a loopback port, whoever has started it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy stands between us and the loopback
        # A connection for each question: one that was idle is closed by the server at the moment in which it is asked again.
        self._http.headers["Connection"] = "close"

    def answers(self) -> bool:
        try:
            return self._http.get(f"{self.url}/server_info", timeout=PATIENCE).ok
        except (requests.ConnectionError, requests.Timeout):
            return False

    def ask(self, query: str, **variables: object) -> dict[str, Any]:
        """The data of the answer; errors of the server fail the test."""
        answer = self._http.post(f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=PATIENCE)
        assert answer.ok, answer.text
        body = answer.json()
        assert "errors" not in body, body["errors"]
        data: dict[str, Any] = body["data"]
        return data

    def launch(
        self,
        location: Mapping[str, str],
        *assets: str,
        job: str = "__ASSET_JOB",
        tags: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a run of assets, `layer/name`, or of a whole job, as a person's click does; its identity."""
        what = {"assetSelection": [{"path": asset.split("/")} for asset in assets]} if assets else {}
        said = [{"key": key, "value": value} for key, value in (tags or {}).items()]
        params = {
            "selector": {**location, "pipelineName": job, **what},
            "mode": "default",
            "runConfigData": config or {},
        }
        return self.begun(LAUNCH, {**params, "executionMetadata": {"tags": said}})

    def begun(self, mutation: str, params: Mapping[str, Any]) -> str:
        """The identity of the run that a mutation begins; a refusal fails the test."""
        (answer,) = self.ask(mutation, params=params).values()
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def asset(self, name: str, fields: str, **variables: object) -> dict[str, Any]:
        """Fields of one asset, `layer/name`."""
        declared = ", ".join(f"${name}: [String!]" for name in variables)
        query = f"query Asset($key: AssetKeyInput!{', ' if declared else ''}{declared}) " + (
            "{ assetNodeOrError(assetKey: $key) { __typename ... on AssetNode { " + fields + " } } }"
        )
        node: dict[str, Any] = self.ask(query, key={"path": name.split("/")}, **variables)["assetNodeOrError"]
        assert node["__typename"] == "AssetNode", name
        return node

    def stop_automation(self) -> None:
        """Switch every sensor and schedule of both locations off, as one does in the UI."""
        locations = self.ask(_INSTIGATORS)["repositoriesOrError"]["nodes"]
        for sensor in (s for location in locations for s in location["sensors"]):
            self.ask(_STOP_SENSOR, id=sensor["sensorState"]["id"])
        for schedule in (s for location in locations for s in location["schedules"]):
            self.ask(_STOP_SCHEDULE, id=schedule["scheduleState"]["id"])
        for location in self.ask(_INSTIGATORS)["repositoriesOrError"]["nodes"]:
            states = [s["sensorState"] for s in location["sensors"]] + [
                s["scheduleState"] for s in location["schedules"]
            ]
            assert {state["status"] for state in states} == {"STOPPED"}


class WebUI(Webserver):
    """A webserver that a test has started."""

    def __init__(self, port: int, process: DagsterProcess) -> None:
        super().__init__(port)
        self.process = process


@contextmanager
def webserver(over: Sequence[str], environment: Mapping[str, str], port: int | None = None) -> Iterator[WebUI]:
    """A webserver over `-w` a workspace or `-f` a file, once it answers; nothing of it is left afterwards."""
    port = port or free_port()
    with DagsterProcess(["dagster_webserver", *over, "-h", "127.0.0.1", "-p", str(port)], environment) as process:
        web = WebUI(port, process)
        until(web.answers, 180, lambda: f"the webserver answers; it said: {process.output()}")
        yield web


@dataclass
class Daemons:
    """The daemon over both code locations, one for all tests: with what forks its workers it takes seconds to start."""

    environment: Mapping[str, str]
    web: WebUI
    workspace: str
    next_death: Path
    """Where this file is, the next worker that has written the table of devices removes it and dies before it tells."""
    running: DagsterProcess | None = None

    def one(self) -> DagsterProcess:
        """The one that runs, or a new one; before it starts, what would launch runs by itself is switched off."""
        if self.running is None or not self.running.family():
            self.web.stop_automation()
            self.running = self.another()
        return self.running

    def another(self) -> DagsterProcess:
        """In the place of one that is dead; whatever is switched on goes on."""
        deadly = {"DE_KILL_AT": "after_commit:bronze.devices", "DE_KILL_ONCE": str(self.next_death)}
        self.running = DagsterProcess(["dagster._daemon", "run", "-w", self.workspace], {**self.environment, **deadly})
        return self.running

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()


_INSTIGATORS = """
query Instigators { repositoriesOrError { ... on RepositoryConnection { nodes {
  sensors { name sensorState { id status } } schedules { name scheduleState { id status } }
} } } }
"""
_STOP_SENSOR = "mutation Stop($id: String!) { stopSensor(id: $id) { __typename } }"
_STOP_SCHEDULE = "mutation Stop($id: String!) { stopRunningSchedule(id: $id) { __typename } }"

LAUNCH = """mutation Launch($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } } ... on InvalidSubsetError { message } } }"""
BACKFILL = """mutation Backfill($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
AGAIN = """mutation Again($params: ReexecutionParams!) { launchPipelineReexecution(reexecutionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""

METADATA = """
metadataEntries { __typename label
  ... on TextMetadataEntry { text }
  ... on MarkdownMetadataEntry { mdStr }
  ... on JsonMetadataEntry { jsonString }
  ... on IntMetadataEntry { intRepr }
  ... on FloatMetadataEntry { floatRepr }
  ... on BoolMetadataEntry { boolValue }
  ... on UrlMetadataEntry { url }
  ... on PathMetadataEntry { path }
  ... on TimestampMetadataEntry { timestamp }
  ... on TableMetadataEntry { table { records } }
  ... on TableSchemaMetadataEntry {
    schema { columns { name type description constraints { nullable unique other } tags { key } } } }
  ... on TableColumnLineageMetadataEntry { lineage { columnName columnDeps { assetKey { path } columnName } } }
}
"""
"""Every kind of metadata entry that the platform attaches, whole."""


def entry(node: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The metadata entry of that label."""
    found: list[dict[str, Any]] = [e for e in node["metadataEntries"] if e["label"] == label]
    assert len(found) == 1, f"{label}: {[e['label'] for e in node['metadataEntries']]}"
    return found[0]
