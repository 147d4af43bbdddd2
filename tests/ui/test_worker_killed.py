"""A worker that dies under the daemon: the run fails, is started again by itself, and what was committed is not repeated."""

import os
import signal
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from waiting import PATIENCE
from web_ui import LOCATION, METADATA, Daemons, DagsterProcess, WebUI, entry, until

from de_resources.csv_files.days import DayFiles
from de_resources.delta.log import TableLog
from de_resources.delta.write.lock import commit_lock
from de_resources.launcher.worker import Worker

pytestmark = [pytest.mark.ui, pytest.mark.faults]

DAY = "2024-10-10"

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
        PATIENCE,
        lambda: f"the run fails and its retry succeeds: {group(web, run)}; the daemon said: {daemon.output()}",
    )
    first, second = sorted(group(web, run), key=lambda r: r["parentRunId"] is not None)
    assert (first["runId"], first["status"]) == (run, "FAILURE")
    assert (second["parentRunId"], second["status"]) == (run, "SUCCESS")
    assert {"key": "dagster/retry_number", "value": "1"} in second["tags"]
    assert "terminated by signal 9 (SIGKILL)" in said(web, run)
    assert "Dagster's own launcher" not in said(web, run) + said(web, second["runId"]), "both workers were forked"

    assert version(table) == before + 1, "one commit in two attempts"
    event = made(web, "bronze/devices")
    assert event["runId"] == second["runId"]
    assert "nothing was repeated" in entry(event, "skipped")["text"]


@pytest.mark.pattern("parallel_split")
def test_a_worker_killed_between_two_branches_is_retried_and_writes_the_one_that_is_missing(
    web: WebUI, lakehouse: dict[str, str], daemon: DagsterProcess
) -> None:
    """Somebody holds the lock of the files until the event log tells of the table; then the worker is killed."""
    serving = Path(lakehouse["DE_HOME"]) / "lake" / "serving"
    table, files = serving / "visits_export", DayFiles("serving.visits_csv", serving / "visits_csv")
    before, rows = version(table), len(DeltaTable(str(table)).to_pyarrow_table())
    file = files.file(DAY).stat().st_ino
    with commit_lock(str(files.folder), table=files.name, shared=False):
        run = launch(web, "serving/visits_export", "serving/visits_csv", partition=DAY)
        until(lambda: made(web, "serving/visits_export")["runId"] == run, PATIENCE, lambda: said(web, run))
        worker = worker_of(lakehouse, run)
        os.kill(worker.pid, signal.SIGKILL)
        until(lambda: not worker.is_alive, PATIENCE, lambda: said(web, run))
        written = version(table)
        assert (written > before, files.file(DAY).stat().st_ino) == (True, file), "of the two, the table is written"
    until(
        lambda: {r["status"] for r in group(web, run)} == {"FAILURE", "SUCCESS"},
        PATIENCE,
        lambda: f"the run fails and its retry succeeds: {group(web, run)}; the daemon said: {daemon.output()}",
    )
    (second,) = [each for each in group(web, run) if each["runId"] != run]
    told = files.manifest(DAY)
    assert told is not None
    assert (told.run, told.origin) == (second["runId"], run), "the retry has written the files, for the run"
    assert files.is_whole(DAY)
    assert made(web, "serving/visits_csv")["runId"] == second["runId"]
    assert (version(table), len(DeltaTable(str(table)).to_pyarrow_table())) == (written, rows), (
        "and the table not again"
    )
    assert "nothing was repeated" in entry(made(web, "serving/visits_export"), "skipped")["text"]


def made(web: WebUI, asset: str) -> dict[str, Any]:
    """The newest materialisation."""
    fields = "assetMaterializations(limit: 1) { runId " + METADATA + " }"
    (event,) = web.asset(asset, fields)["assetMaterializations"]
    found: dict[str, Any] = event
    return found


def worker_of(lakehouse: dict[str, str], run_id: str) -> Worker:
    with dg.DagsterInstance.from_config(lakehouse["DAGSTER_HOME"]) as instance:
        run = instance.get_run_by_id(run_id)
    worker = Worker.of(run) if run else None
    assert worker is not None
    return worker


def launch(web: WebUI, *assets: str, partition: str | None = None) -> str:
    return web.launch(LOCATION, *assets, tags={"dagster/partition": partition} if partition else None)


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
