"""Runs in forked workers, on a real code server and instance: what is new, what fails, what ends, and what is gone."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster._core.test_utils import create_run_for_test
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration

from de_resources.launcher import ForkingRunLauncher
from de_resources.launcher.worker import Worker

pytestmark = pytest.mark.faults

INSTANCE = """
telemetry: {enabled: false}
run_launcher: {module: de_resources.launcher, class: ForkingRunLauncher}
run_monitoring: {enabled: true}
"""


class Platform:
    """An instance, a code location in a folder of its own, and its code server."""

    def __init__(self, home: Path) -> None:
        self.folder, self.home = home / "code", home / "dagster"
        self.folder.mkdir()
        self.home.mkdir()
        self.code = self.folder / "forked_location.py"
        shutil.copy(Path(__file__).with_name("forked_location.py"), self.code)
        (self.home / "dagster.yaml").write_text(INSTANCE)
        self.instance = dg.DagsterInstance.from_config(str(self.home))
        target = PythonFileTarget(
            str(self.code), attribute=None, working_directory=str(self.folder), location_name="small"
        )
        self.context = WorkspaceProcessContext(self.instance, target)
        self.known = ""

    @property
    def launcher(self) -> ForkingRunLauncher:
        launcher = self.instance.run_launcher
        assert isinstance(launcher, ForkingRunLauncher)
        return launcher

    def launch(self, asset: str, **tags: str) -> str:
        """Launch a run as the daemon does, without waiting for its end."""
        repository = self.context.create_request_context().get_code_location("small").get_repository("__repository__")
        job = repository.get_full_job("__ASSET_JOB")
        run = create_run_for_test(
            self.instance,
            job_name=job.name,
            tags=tags,
            asset_selection=frozenset({dg.AssetKey(asset)}),
            job_snapshot=job.job_snapshot,
            parent_job_snapshot=job.parent_job_snapshot,
            remote_job_origin=job.get_remote_origin(),
            job_code_origin=job.get_python_origin(),
            asset_graph=repository.asset_graph,
        )
        self.instance.launch_run(run.run_id, self.context.create_request_context())
        return run.run_id

    def waiting(self) -> tuple[str, int]:
        """A run that waits in its step, and its worker."""
        for file in ("waits", "go"):
            (self.folder / file).unlink(missing_ok=True)
        run = self.launch("patient")
        until((self.folder / "waits").exists, f"{run} waits; it is {self.status(run)}")
        worker = Worker.of(self.run(run))
        assert worker is not None
        return run, worker.pid

    def run(self, run: str) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run)
        assert found is not None
        return found

    def status(self, run: str) -> str:
        return self.run(run).status.value

    def end(self, run: str) -> str:
        """Wait for the end, and how it was."""
        until(lambda: self.run(run).is_finished, f"{run} ends; it is {self.status(run)}: {self.said(run)}")
        return self.status(run)

    def said(self, run: str) -> str:
        return "\n".join(entry.user_message or entry.message for entry in self.instance.all_logs(run))

    def identity(self) -> dict[str, Any]:
        """What a new run's worker tells of itself."""
        run = self.launch("identity")
        assert self.end(run) == "SUCCESS", self.said(run)
        event = self.instance.get_latest_materialization_event(dg.AssetKey("identity"))
        assert event is not None
        assert event.run_id == run
        assert event.asset_materialization is not None
        self.known = run
        return {"run": run} | {name: value.value for name, value in event.asset_materialization.metadata.items()}

    def done(self) -> dg.DagsterRun:
        """A run that a worker has worked off, for who does not ask about a new one."""
        return self.run(self.known or self.identity()["run"])

    def monitor(self) -> None:
        """One look of the daemon that monitors runs."""
        list(execute_run_monitoring_iteration(self.context, logging.getLogger(__name__)))


def until(condition: Callable[[], object], what: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """Whether the process has ended; one that waits to be buried has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    platform = Platform(tmp_path_factory.mktemp("launcher"))
    with platform.instance, platform.context:
        yield platform


def test_workers_are_children_of_one_process_that_loaded_once(platform: Platform) -> None:
    first, second = platform.identity(), platform.identity()
    assert first["parent"] == second["parent"]
    assert first["pid"] != second["pid"]
    assert first["random"] != second["random"], "siblings do not share a random state"
    assert first["threads"] == os.environ.get("OPENBLAS_NUM_THREADS", ""), "what the server needs is not for workers"
    loads = (platform.folder / "loads").read_text().split()
    assert loads.count(str(first["parent"])) == 1
    assert not {str(first["pid"]), str(second["pid"])} & set(loads), "a worker imports nothing again"
    assert f"Started process for run (pid: {first['pid']})" in platform.said(first["run"])


def test_what_a_worker_prints_is_in_the_logs_of_its_run(platform: Platform) -> None:
    run = platform.done().run_id
    (captured,) = [e.dagster_event for e in platform.instance.all_logs(run, of_type=dg.DagsterEventType.LOGS_CAPTURED)]
    assert captured is not None
    key = [run, "compute_logs", captured.logs_captured_data.file_key]
    stdout = platform.instance.compute_log_manager.get_log_data(key).stdout
    assert stdout is not None
    assert b"words of the worker" in stdout


@pytest.mark.parametrize("what", ["code", "a file that loading reads", "a reload in the UI"])
def test_what_has_changed_is_loaded_again(platform: Platform, what: str) -> None:
    if what == "a file that loading reads":
        (platform.folder / "setting.txt").write_text("as it was")
        platform.code.write_text(platform.code.read_text() + "\n")
    before = platform.identity()
    if what == "code":
        platform.code.write_text(platform.code.read_text().replace('"first"', '"second"'))
    elif what == "a reload in the UI":
        platform.context.reload_code_location("small")
    else:
        (platform.folder / "setting.txt").write_text("as it is now")
    after = platform.identity()
    assert after["parent"] != before["parent"]
    assert (after["version"], after["setting"]) == {
        "code": ("second", before["setting"]),
        "a file that loading reads": (before["version"], "as it is now"),
        "a reload in the UI": (before["version"], before["setting"]),
    }[what]
    until(lambda: gone(before["parent"]), "the server with the old code ends")


def test_any_process_can_terminate_a_run(platform: Platform) -> None:
    """The webserver terminates what the daemon has launched."""
    run, pid = platform.waiting()
    with dg.DagsterInstance.from_config(str(platform.home)) as another:
        assert another.run_launcher.terminate(run)
    assert platform.end(run) == "CANCELED"
    assert "DagsterExecutionInterruptedError" in "".join(
        str(e.dagster_event.step_failure_data.error)
        for e in platform.instance.all_logs(run, of_type=dg.DagsterEventType.STEP_FAILURE)
    )
    until(lambda: gone(pid), "the worker ends")
    assert not platform.launcher.terminate(run), "there is nobody left to terminate"


def test_a_worker_killed_is_reported_at_once_in_dagsters_words(platform: Platform) -> None:
    run, pid = platform.waiting()
    os.kill(pid, signal.SIGKILL)
    assert platform.end(run) == "FAILURE"
    assert "terminated by signal 9 (SIGKILL)" in platform.said(run)


def test_a_worker_outlives_its_server_and_the_next_run_has_another(platform: Platform) -> None:
    before = platform.identity()["parent"]
    run, pid = platform.waiting()
    os.kill(before, signal.SIGKILL)
    until(lambda: gone(before), "the server is dead")
    platform.monitor()
    assert platform.status(run) == "STARTED"
    (platform.folder / "go").touch()
    assert platform.end(run) == "SUCCESS"
    until(lambda: gone(pid), "the worker ends")
    after = platform.identity()
    assert after["parent"] != before
    assert "Dagster's own launcher" not in platform.said(after["run"])


def test_run_monitoring_finds_a_worker_that_died_with_its_server(platform: Platform) -> None:
    server = platform.identity()["parent"]
    run, pid = platform.waiting()
    for process in (server, pid):
        os.kill(process, signal.SIGKILL)
        until(lambda process=process: gone(process), "it is dead")
    assert platform.status(run) == "STARTED", "nobody could tell"
    platform.monitor()
    assert platform.status(run) == "FAILURE"
    assert f"The worker, process {pid}, is gone" in platform.said(run)


def test_a_retry_is_not_taken_for_the_worker_of_the_run_that_it_repeats(platform: Platform) -> None:
    first = platform.done()
    worker = Worker.of(first)
    assert worker is not None
    assert Worker.of(first.with_tags(Worker("another run", worker.pid, worker.started).tag())) is None


@pytest.mark.parametrize(
    ("mark", "reason", "status"), [("threads", "thread", "SUCCESS"), ("broken", "broken on purpose", "FAILURE")]
)
def test_what_cannot_be_forked_is_launched_by_dagster(platform: Platform, mark: str, reason: str, status: str) -> None:
    (platform.folder / mark).touch()
    platform.code.write_text(platform.code.read_text() + "\n")
    try:
        run = platform.launch("identity")
        assert platform.end(run) == status
    finally:
        (platform.folder / mark).unlink()
        platform.code.write_text(platform.code.read_text() + "\n")
    said = platform.said(run)
    assert "Dagster's own launcher starts an interpreter for this run instead" in said
    assert reason in said
    assert platform.launcher.check_run_worker_health(platform.run(run)).status.value == "RUNNING"
    assert "Dagster's own launcher" not in platform.said(platform.identity()["run"]), "forked again once it can be"


def test_other_systems_keep_dagsters_launcher(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("de_resources.launcher.launcher.sys.platform", "darwin")
    run = platform.launch("identity")
    assert platform.end(run) == "SUCCESS"
    assert "processes are not forked on darwin" in platform.said(run)


def test_the_server_has_no_name_and_no_ear_for_ctrl_c(platform: Platform) -> None:
    server = psutil.Process(platform.identity()["parent"])
    assert [c.laddr for c in server.net_connections("unix") if c.laddr] == [], "nobody can find the socket"
    assert server.net_connections("inet") == []
    assert server.num_threads() == 1
    server.send_signal(signal.SIGINT)
    assert platform.identity()["parent"] == server.pid


def test_a_worker_does_nothing_without_the_word(platform: Platform) -> None:
    """The launcher died, or let Dagster's own start the run: nobody works it off twice."""
    run = platform.done()
    server = next(server for _, server in platform.launcher._servers.values())
    connection, introduction = server.fork(platform.launcher._arguments(run))
    worker = Worker(**json.loads(introduction))
    assert worker.is_alive
    entries = len(platform.instance.all_logs(run.run_id))
    connection.close()
    until(lambda: gone(worker.pid), "the worker ends")
    assert len(platform.instance.all_logs(run.run_id)) == entries


def test_the_server_ends_with_whoever_started_it(platform: Platform) -> None:
    origin = platform.done().job_code_origin
    assert origin is not None
    program = (
        "import sys, time; from dagster import DagsterInstance; from dagster._serdes import deserialize_value\n"
        "from dagster._core.origin import RepositoryPythonOrigin; from de_resources.launcher.fork_server import ForkServer\n"
        "instance = DagsterInstance.from_config(sys.argv[2])\n"
        "server = ForkServer(deserialize_value(sys.argv[1], RepositoryPythonOrigin), instance.get_ref())\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, dg.serialize_value(origin.repository_origin), str(platform.home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launching:
        assert launching.stdout is not None
        server = int(launching.stdout.readline())
        assert not gone(server)
        launching.kill()
    until(lambda: gone(server), "the server ends")
