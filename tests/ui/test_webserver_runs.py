"""A run started from the UI: taken from the queue, worked off by a process of its own, visible in the table."""

from pathlib import Path

import pytest
from web_ui import LOCATION, METADATA, DagsterProcess, WebUI, entry, until

from de_resources.delta.log import TableLog

pytestmark = pytest.mark.ui

HOUR = "2024-10-10-09:00"
LAUNCH = """mutation Launch($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } } ... on InvalidSubsetError { message } } }"""
STATUS = """query Run($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"""
ERRORS = """query Errors($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events {
    ... on ErrorEvent { error { message causes { message } } } } } } }"""


def test_one_hour_launched_from_the_ui_is_recomputed(
    web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str]
) -> None:
    table = Path(lakehouse["DE_HOME"]) / "lake" / "silver" / "visits"
    before = _log(table)

    run = _launch(web, HOUR, "silver/visits", "silver/visits_late")
    until(
        lambda: _status(web, run) in ("SUCCESS", "FAILURE", "CANCELED"),
        240,
        lambda: f"the run ends; it is {_status(web, run)}, and the daemon said: {daemon.output()}",
    )
    assert _status(web, run) == "SUCCESS", web.ask(ERRORS, run=run)

    after = _log(table)
    assert after.version > before.version
    assert after.rows_by_partition() == before.rows_by_partition(), "a rerun of an hour gives the same rows"
    fields = "latestMaterializationByPartition(partitions: $partitions) { runId " + METADATA + " }"
    (event,) = web.asset("silver/visits", fields, partitions=[HOUR])["latestMaterializationByPartition"]
    assert event["runId"] == run
    assert int(entry(event, "delta/version")["intRepr"]) == after.version


def _launch(web: WebUI, partition: str, *assets: str) -> str:
    selector = {
        **LOCATION,
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": name.split("/")} for name in assets],
    }
    tags = [{"key": "dagster/partition", "value": partition}]
    params = {"selector": selector, "mode": "default", "runConfigData": {}, "executionMetadata": {"tags": tags}}
    launched = web.ask(LAUNCH, params=params)["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    run_id: str = launched["run"]["runId"]
    return run_id


def _status(web: WebUI, run: str) -> str:
    status: str = web.ask(STATUS, run=run)["runOrError"]["status"]
    return status


def _log(table: Path) -> TableLog:
    log = TableLog.open(str(table))
    assert log is not None
    return log
