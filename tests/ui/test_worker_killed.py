"""A worker that dies under the daemon: the run fails, is started again by itself, and what was committed is not repeated."""

from pathlib import Path
from typing import Any

import pytest
from web_ui import LAUNCH, LOCATION, METADATA, Daemons, DagsterProcess, WebUI, entry, until

from de_resources.delta.log import TableLog

pytestmark = [pytest.mark.ui, pytest.mark.faults]

GROUP = """query Group($run: ID!) { runGroupOrError(runId: $run) { ... on RunGroup { runs {
    runId status parentRunId tags { key value } } } } }"""
LOGS = """query Logs($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events {
    ... on MessageEvent { message } } } } }"""


def test_a_worker_killed_after_its_commit_is_retried_and_repeats_nothing(
    web: WebUI, lakehouse: dict[str, str], daemon: DagsterProcess, daemons: Daemons
) -> None:
    table = Path(lakehouse["DE_HOME"]) / "lake" / "bronze" / "devices"
    before = version(table)
    daemons.next_death.touch()
    run = launch(web, "bronze/devices")
    until(
        lambda: {r["status"] for r in group(web, run)} == {"FAILURE", "SUCCESS"},
        300,
        lambda: f"the run fails and its retry succeeds: {group(web, run)}; the daemon said: {daemon.output()}",
    )
    first, second = sorted(group(web, run), key=lambda r: r["parentRunId"] is not None)
    assert (first["runId"], first["status"]) == (run, "FAILURE")
    assert (second["parentRunId"], second["status"]) == (run, "SUCCESS")
    assert {"key": "dagster/retry_number", "value": "1"} in second["tags"]
    assert "terminated by signal 9 (SIGKILL)" in said(web, run)
    assert "Dagster's own launcher" not in said(web, run) + said(web, second["runId"]), "both workers were forked"

    assert version(table) == before + 1, "one commit in two attempts"
    (event,) = web.asset("bronze/devices", "assetMaterializations(limit: 1) { runId " + METADATA + " }")[
        "assetMaterializations"
    ]
    assert event["runId"] == second["runId"]
    assert "nothing was repeated" in entry(event, "skipped")["text"]


def launch(web: WebUI, asset: str) -> str:
    selector = {**LOCATION, "pipelineName": "__ASSET_JOB", "assetSelection": [{"path": asset.split("/")}]}
    params = {"selector": selector, "mode": "default", "runConfigData": {}, "executionMetadata": {"tags": []}}
    launched = web.ask(LAUNCH, params=params)["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    run_id: str = launched["run"]["runId"]
    return run_id


def group(web: WebUI, run: str) -> list[dict[str, Any]]:
    """The run and its retries."""
    runs: list[dict[str, Any]] = web.ask(GROUP, run=run)["runGroupOrError"]["runs"]
    return runs


def said(web: WebUI, run: str) -> str:
    return "\n".join(event.get("message", "") for event in web.ask(LOGS, run=run)["logsForRun"]["events"])


def version(table: Path) -> int:
    log = TableLog.open(str(table))
    assert log is not None
    return log.version
