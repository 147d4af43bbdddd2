"""The launcher that `dagster.yaml` names."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from threading import Lock
from typing import Any

from dagster import Array, DagsterRun, Field

from de_resources.compat.launching import (
    CheckRunHealthResult,
    ConfigurableClassData,
    DagsterLaunchFailedError,
    DefaultRunLauncher,
    ExecuteExternalJobArgs,
    IPCErrorMessage,
    LaunchRunContext,
    RepositoryPythonOrigin,
    WorkerStatus,
    deserialize_value,
    serialize_value,
)
from de_resources.launcher.fork_server import CannotFork, ForkServer
from de_resources.launcher.server import MESSAGE_BYTES
from de_resources.launcher.worker import GO, STARTED, Worker


class ForkingRunLauncher(DefaultRunLauncher):
    """Launches runs in processes that are forked from one which has the code location loaded.

    What cannot be forked is launched as Dagster's own launcher does, and the run's log says why. `preload` names modules
    that workers need besides those of the code location, so that they are imported once as well.
    """

    def __init__(self, preload: list[str] | None = None, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._preload = preload or []
        self._servers: dict[str, tuple[str | None, ForkServer]] = {}
        self._lock = Lock()

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """The launcher's `config` in `dagster.yaml`."""
        return {"preload": Field(Array(str), is_required=False, description="Modules that workers need besides.")}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> ForkingRunLauncher:
        """Made by the instance."""
        return cls(**config_value, inst_data=inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Fork a worker for the run, or let Dagster's launcher start one.

        Raises `DagsterLaunchFailedError` when the worker had its word and did not start.
        """
        run = context.dagster_run
        try:
            with self._lock:
                connection, introduction = self._fork(context)
        except CannotFork as cannot:
            message = f"{cannot}. Dagster's own launcher starts an interpreter for this run instead."
            self._instance.report_engine_event(message, run, cls=type(self))
            super().launch_run(context)
            return
        with connection:
            worker = Worker(**json.loads(introduction))
            # Before the word: whoever terminates the run, or looks for its worker, has to know it by then.
            self._instance.add_run_tags(run.run_id, worker.tag())
            self._run_ids.add(run.run_id)
            try:
                connection.send(GO)
                answer = connection.recv(MESSAGE_BYTES)
            except OSError as error:
                answer = str(error).encode()
        if answer != STARTED:
            raise _failure(worker, answer)

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run's worker; returns whether there was one to interrupt."""
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or run.is_finished:
            return False
        worker = Worker.of(run)
        if worker is None:
            return bool(super().terminate(run_id))
        self._instance.report_run_canceling(run)
        return worker.interrupt()

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Dagster's own launcher cannot tell; here the process is known."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the run's worker lives. Nothing is known of those that Dagster's own launcher has started."""
        worker = Worker.of(run)
        if worker is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "It was started by Dagster's own launcher.")
        if worker.is_alive:
            return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=str(worker.pid))
        message = f"The worker, process {worker.pid}, is gone and has not told how the run ended"
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, message, run_worker_id=str(worker.pid))

    def dispose(self) -> None:
        """Hang up on all fork servers; what they have started works on."""
        with self._lock:
            for _, server in self._servers.values():
                server.close()
            self._servers.clear()
        super().dispose()

    def _fork(self, context: LaunchRunContext) -> tuple[Any, bytes]:
        """A connection to a worker that waits for its word. A server that is stale or gone is replaced, once."""
        origin, arguments = _origin(context), self._arguments(context.dagster_run)
        self._require_definitions_that_stay(context.dagster_run)
        edition = _edition(context)
        server = self._server(origin, edition)
        try:
            return server.fork(arguments)
        except CannotFork:
            self._retire(origin)
        return self._server(origin, edition).fork(arguments)

    def _require_definitions_that_stay(self, run: DagsterRun) -> None:
        """Raise `CannotFork` where each run loads definitions with data of its own, such as those of cacheable assets."""
        if not run.has_repository_load_data or run.execution_plan_snapshot_id is None:
            return
        data = self._instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).repository_load_data
        if data and (data.cacheable_asset_data or data.reconstruction_metadata or data.defs_state_info):
            raise CannotFork("the code location has definitions that each run loads with data of its own")

    def _server(self, origin: RepositoryPythonOrigin, edition: str | None) -> ForkServer:
        """The server that has the code location loaded as its code server has; started where there is none."""
        key = serialize_value(origin)
        if key in self._servers and self._servers[key][0] != edition:
            self._retire(origin)
        if key not in self._servers:
            self._servers[key] = edition, ForkServer(origin, self._instance.get_ref(), self._preload)
        return self._servers[key][1]

    def _retire(self, origin: RepositoryPythonOrigin) -> None:
        if (found := self._servers.pop(serialize_value(origin), None)) is not None:
            found[1].close()

    def _arguments(self, run: DagsterRun) -> str:
        return serialize_value(
            ExecuteExternalJobArgs(
                job_origin=run.remote_job_origin,  # type: ignore[arg-type]  # as Dagster's own launcher passes it
                run_id=run.run_id,
                instance_ref=self._instance.get_ref(),
            )
        )


def _origin(context: LaunchRunContext) -> RepositoryPythonOrigin:
    """The code that the run needs. Raises `CannotFork` for what only a fresh interpreter can do."""
    if sys.platform != "linux":
        raise CannotFork(f"processes are not forked on {sys.platform}")
    if context.job_code_origin is None:
        raise CannotFork("the run does not say which code it needs")
    return context.job_code_origin.repository_origin


def _edition(context: LaunchRunContext) -> str | None:
    """Which load of the code location the UI shows: it changes when somebody reloads it."""
    origin = context.dagster_run.remote_job_origin
    if context.workspace is None or origin is None:
        return None
    location = context.workspace.get_code_location(origin.repository_origin.code_location_origin.location_name)
    return getattr(location, "server_id", None)


def _failure(worker: Worker, answer: bytes) -> DagsterLaunchFailedError:
    if answer.startswith(b"{"):
        error = deserialize_value(answer.decode(), IPCErrorMessage)
        return DagsterLaunchFailedError(error.message, serializable_error_info=error.serializable_error_info)
    worker.interrupt()
    said = answer.decode(errors="replace") or "it ended"
    return DagsterLaunchFailedError(f"The worker, process {worker.pid}, did not start the run: {said}")
