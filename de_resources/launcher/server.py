"""The process that has a code location loaded and forks workers from it.

It stays what can be forked safely: one thread, no connection, no session, no instance of Dagster's. It ends when the
launcher's end of the socket is closed, by intention or by death, and its last worker has ended.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from select import select

from dagster import DagsterInstance

from de_resources.compat.launching import (
    ExecuteExternalJobArgs,
    InstanceRef,
    ReconstructableRepository,
    RepositoryPythonOrigin,
    deserialize_value,
    get_run_crash_explanation,
)
from de_resources.launcher.freshness import Reads, recorded
from de_resources.launcher.worker import WORKED_OFF, Worker, work

MESSAGE_BYTES = 2**20
BURY_SECONDS = 0.5
"""How soon after its death a worker is reported: as often as Dagster's code server looks."""

QUIET_VARIABLES = {
    # Libraries that start threads when they are imported, which a fork would leave behind.
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}

Task = Callable[[], None]
"""What a forked process does after it has left the server's loop."""


@dataclass
class Loaded:
    """A code location in this process's memory, and what was forked from it: workers, and None for who reports a death."""

    repository: ReconstructableRepository
    reads: Reads
    children: dict[int, ExecuteExternalJobArgs | None] = field(default_factory=dict)

    def why_not(self) -> str | None:
        """Why no worker may be forked now; None: one may."""
        if changed := self.reads.changed():
            return f"{changed} has changed since it was read"
        return _unfit_to_fork()


def prepare(control: socket.socket) -> Loaded | None:
    """Load the code location that the first message names, and tell whether it can be forked; None when it cannot."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the workers; ours is the hung-up socket
    order = json.loads(control.recv(MESSAGE_BYTES))
    try:
        with recorded() as reads:
            repository = _repository(deserialize_value(order["origin"], RepositoryPythonOrigin))
            repository.get_definition().get_all_jobs()
            for module in order["preload"]:
                import_module(module)
        _import_what_an_instance_needs(deserialize_value(order["instance"], InstanceRef))
    except Exception as error:  # noqa: BLE001 - whatever a code location raises; the run's log gets it
        control.send(f"the code location does not load: {type(error).__name__}: {error}"[:2000].encode())
        return None
    for name, value in order["environment"].items():  # what workers start is to see the launcher's variables
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    why_not = _unfit_to_fork()
    control.send((why_not or "").encode() or b"ready")
    # What is loaded is never garbage: no collection has to look at it, which would copy its pages into every worker.
    gc.collect()
    gc.freeze()
    return None if why_not else Loaded(repository, reads)


def serve(control: socket.socket, loaded: Loaded) -> Task | None:
    """Fork a worker for each request and report those that die. Returns a task in a forked process only."""
    is_open = True
    while is_open or loaded.children:
        waiting = [control] if is_open else []
        readable, _, _ = select(waiting, [], [], BURY_SECONDS if loaded.children else None)
        for dead, status in list(_ended(loaded)):
            if (reporter := os.fork()) == 0:
                control.close()
                return partial(_report, dead, status)
            loaded.children[reporter] = None
        if readable:
            request, descriptors = _received(control)
            is_open = bool(descriptors)
            task = _answer(control, loaded, request, socket.socket(fileno=descriptors[0])) if is_open else None
            if task is not None:
                return task
    return None


def _received(control: socket.socket) -> tuple[str, list[int]]:
    """A request and the connection on which to answer it; nothing once the launcher has hung up, or was killed."""
    try:
        request, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
    except ConnectionResetError:
        return "", []
    return request.decode(), descriptors


def _answer(control: socket.socket, loaded: Loaded, arguments: str, reply: socket.socket) -> Task | None:
    """Refuse, or fork a worker that answers for itself."""
    why_not = loaded.why_not()
    if why_not is not None:
        reply.send(why_not.encode())
    elif (pid := os.fork()) == 0:
        control.close()
        return partial(work, reply, arguments, loaded.repository)
    else:
        loaded.children[pid] = deserialize_value(arguments, ExecuteExternalJobArgs)
    reply.close()
    return None


def _ended(loaded: Loaded) -> Iterator[tuple[tuple[int, ExecuteExternalJobArgs], int]]:
    """Bury what has ended, and yield the workers that did not end by themselves."""
    while loaded.children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        run, code = loaded.children.pop(pid, None), os.waitstatus_to_exitcode(status)
        if run is not None and code != WORKED_OFF:
            yield (pid, run), code


def _report(dead: tuple[int, ExecuteExternalJobArgs], exit_code: int) -> None:
    """Fail the run of a worker that died, in the words of Dagster's code server. The daemon may start it again."""
    pid, arguments = dead
    with DagsterInstance.from_ref(_instance_ref(arguments)) as instance:
        run = instance.get_run_by_id(arguments.run_id)
        worker = None if run is None else Worker.of(run)
        if run is None or run.is_finished or worker is None or worker.pid != pid:
            return
        message = get_run_crash_explanation(f"Run execution process for {run.run_id}", exit_code)
        instance.report_engine_event(message, run)
        instance.report_run_failed(run)


def _instance_ref(arguments: ExecuteExternalJobArgs) -> InstanceRef:
    if arguments.instance_ref is None:
        raise ValueError("a run without an instance")
    return arguments.instance_ref


def _repository(origin: RepositoryPythonOrigin) -> ReconstructableRepository:
    return ReconstructableRepository(
        origin.code_pointer,
        container_image=origin.container_image,
        executable_path=origin.executable_path,
        entry_point=origin.entry_point,
        container_context=origin.container_context,
    )


def _import_what_an_instance_needs(ref: InstanceRef) -> None:
    """Import what opening the instance imports, which is up to its configuration, without opening it here.

    A scout opens it, in a process of its own, and tells the names of the modules that it did not have before.
    """
    reading, writing = os.pipe()
    if (scout := os.fork()) == 0:
        try:
            before = set(sys.modules)
            with DagsterInstance.from_ref(ref) as instance, os.fdopen(writing, "w") as names:
                instance.get_run_records(limit=1)
                _ = instance.compute_log_manager
                names.write(json.dumps([name for name in sys.modules if name not in before]))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as names:
        found = names.read()
    os.waitpid(scout, 0)
    for name in json.loads(found or "[]"):
        with suppress(ImportError):  # some are made by others while they are imported
            import_module(name)


def _unfit_to_fork() -> str | None:
    """Threads and connections do not survive a fork: locks that a thread holds are never released in the child."""
    threads = [(thread / "comm").read_text().strip() for thread in Path("/proc/self/task").iterdir()]
    if len(threads) > 1:
        return f"loading it leaves {len(threads) - 1} thread(s) running: {', '.join(sorted(threads)[:5])}"
    connections = [line for name in ("tcp", "tcp6") for line in _own_connections(name)]
    return f"loading it leaves {len(connections)} connection(s) open" if connections else None


def _own_connections(protocol: str) -> list[str]:
    """Inodes of this process's own sockets of that protocol."""
    try:
        lines = Path(f"/proc/self/net/{protocol}").read_text().splitlines()[1:]
    except FileNotFoundError:
        return []
    inodes = {line.split()[9] for line in lines}
    links = (_target(link) for link in Path("/proc/self/fd").iterdir())
    return [link for link in links if link.startswith("socket:[") and link[8:-1] in inodes]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""
