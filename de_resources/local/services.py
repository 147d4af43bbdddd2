"""The services of one machine, without containers: started together, watched, and stopped to the last process.

`up` is idempotent and never touches a server that it did not start. What cannot run on this machine is left out with
its reason while the rest starts. All state is under `Settings.home`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from de_resources.errors import PermanentError, PlatformError
from de_resources.local import processes
from de_resources.local.capture_service import Captured, CaptureService
from de_resources.local.endpoints import Endpoint, ServiceState, ServiceStatus
from de_resources.local.geo_service import GeoService
from de_resources.local.jars import JarsMissing, ensure_jars
from de_resources.local.kafka_server import KafkaService, client_config
from de_resources.local.pages_service import PagesService
from de_resources.local.partner_service import PartnerService
from de_resources.local.postgres_server import PostgresService
from de_resources.local.revival import LIMIT, Restarts
from de_resources.local.service import LeftOut, Service
from de_resources.local.spark_connect import SparkConnectService
from de_resources.local.supervision import ProcessInfo, Supervision
from de_resources.local.topics import TopicSpec, create_topics
from de_resources.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str, str], None]
"""Called with a service's name and what happens to it now; from several threads."""

KINDS: tuple[type[Service], ...] = (
    SparkConnectService,
    PostgresService,
    KafkaService,
    CaptureService,
    PagesService,
    PartnerService,
    GeoService,
)
START_SECONDS = 240.0
_SHOWN_LOG_LINES = 15


class ServiceStartFailed(PermanentError):
    """A service that can run here ended, or was not ready in time. It was stopped; the others run on."""

    def __init__(self, service: str, what: str, last_lines: str, log: Path) -> None:
        self.service = service
        self.what = what
        self.last_lines = last_lines
        self.log = log
        tail = "".join(f"\n  {line}" for line in last_lines.splitlines()) or "\n  (nothing was logged)"
        super().__init__(
            f"{service} {what}. Its log is `{log}`; correct what it says and run `de up {service}` again. "
            f"Last lines:{tail}"
        )


class ServicesFailed(PermanentError):
    """At least one service did not start; `statuses` tells about all, `failures` has one error per failed one."""

    def __init__(self, failures: Sequence[PlatformError], statuses: Sequence[ServiceStatus]) -> None:
        self.failures = list(failures)
        self.statuses = list(statuses)
        super().__init__("\n".join(str(failure) for failure in failures))


class UnknownService(PermanentError):
    """A name that is none of the services."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = list(known)
        super().__init__(f"There is no service `{name}`: choose from {', '.join(self.known)}.")


class LocalServices:
    """Spark Connect, PostgreSQL, Kafka, the capture from one into the other, pages, a partner, and a geo API, of one home."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings.from_environment()
        self._services = {kind.name: kind(self.settings) for kind in KINDS}
        self._capture = CaptureService(self.settings)
        self._supervision = Supervision(self.settings)
        self._restarts = Restarts(self.settings.home / "run" / "restarts.json")
        self._started: dict[str, None] = {}

    def up(
        self,
        names: Iterable[str] | None = None,
        *,
        topics: Sequence[TopicSpec] = (),
        captures: Sequence[Captured] = (),
        timeout: float = START_SECONDS,
        console: Console | None = None,
        progress: Progress = lambda _name, _what: None,
    ) -> list[ServiceStatus]:
        """Start what does not run yet (all services, or those named), wait until each answers, and return all statuses.

        `topics` are created on the broker when absent, and `captures` relayed from the next start of the capture on. Missing
        jars are fetched first, with a progress display.

        Raises:
            ServicesFailed: a service that can run here was not ready within `timeout` seconds; has its last log lines.
            UnknownService: a name that is none.
        """
        chosen = [self._service(name) for name in (self._services if names is None else names)]
        with self._lock():
            if captures:
                self._capture.declare(captures)
            absence = self._fetch_jars(chosen, console)
            if not self._supervision.is_alive:
                processes.stop_all(self.settings.home)
            self._supervision.ensure_alive()
            with ThreadPoolExecutor(max(len(chosen), 1)) as pool:
                bring_up = partial(self._bring_up, absence=absence, topics=topics, timeout=timeout, progress=progress)
                outcomes = list(pool.map(bring_up, chosen))
        return self._judge(outcomes, absence)

    def down(self) -> int:
        """Stop all that was started for this home, also what a killed supervisor left; returns how many processes."""
        with self._lock():
            return self._stop_all()

    def down_started(self) -> None:
        """Stop what this object has started, and nothing else: what ran before, and what others start meanwhile, runs on."""
        with self._lock():
            others = [service for name, service in self._services.items() if name not in self._started]
            if any(self._alive(service) for service in others):
                for name in self._started:
                    self._supervision.stop(name)
            elif self._started:
                self._stop_all()
            self._started.clear()

    def _stop_all(self) -> int:
        count = len(processes.marked(self.settings.home))
        self._supervision.shut_down()
        return max(count, processes.stop_all(self.settings.home))

    def status(self) -> list[ServiceStatus]:
        """All services as they are now; starts and changes nothing."""
        return [self._status(service) for service in self._services.values()]

    def revive(self, now: datetime) -> list[str]:
        """Start again what died, within limits (`revival`), and return the names; does not wait until they answer.

        Nothing while somebody else starts or stops services. What was stopped on purpose stays stopped.
        """
        revived = []
        died = [s for s in self.status() if s.state is ServiceState.FAILED and self._restarts.allows(s.name, now)]
        if not died:
            return []
        try:
            with self._lock().acquire(timeout=0):
                for status in died:
                    self._restarts.note(status.name, now)
                    service = self._service(status.name)
                    self._supervision.start(service.name, service.prepare(service.allocate_ports()))
                    revived.append(status.name)
        except (Timeout, PlatformError):
            return revived
        return revived

    def logs(self, name: str, lines: int = 50) -> str:
        """The last lines of a service's log; empty before its first start."""
        log = self._supervision.log_of(self._service(name).name)
        if not log.exists():
            return ""
        with log.open(errors="replace") as file:
            return "".join(deque(file, maxlen=lines)).rstrip("\n")

    def endpoint(self, name: str) -> Endpoint | None:
        """How to reach a service that we started and that takes connections now; None otherwise. Takes milliseconds."""
        service = self._service(name)
        info = self._supervision.info(name)
        if info is None or not info.is_alive or not service.ports:
            return None
        endpoint = service.endpoint(service.ports)
        return endpoint if endpoint.accepts else None

    def _service(self, name: str) -> Service:
        try:
            return self._services[name]
        except KeyError:
            raise UnknownService(name, self._services) from None

    def _lock(self) -> FileLock:
        """Two `up` or `down` of one home wait for each other."""
        home, folder = self.settings.home, self.settings.home / "run"
        if not home.exists():
            home.mkdir(parents=True)
            home.chmod(0o755)  # whatever the umask: the database's account has to pass; what is private has own folders
        folder.mkdir(exist_ok=True, mode=0o700)
        return FileLock(folder / "lock")

    def _fetch_jars(self, chosen: Iterable[Service], console: Console | None) -> PlatformError | None:
        """All sets at once; why some could not be had, for the services that are left out by that."""
        try:
            ensure_jars(
                self.settings, dict.fromkeys(name for service in chosen for name in service.jar_sets), console=console
            )
        except PlatformError as reason:
            return reason
        return None

    def _bring_up(
        self,
        service: Service,
        absence: PlatformError | None,
        topics: Sequence[TopicSpec],
        timeout: float,
        progress: Progress,
    ) -> PlatformError | None:
        """Start one service unless it runs; the error that kept it from running, if any."""
        if reason := _why_left_out(service, absence):
            progress(service.name, f"left out: {reason}")
            return None
        try:
            self._start(service, timeout, progress)
            if isinstance(service, KafkaService):
                create_topics(client_config(service.endpoint(service.ports)), topics)
        except PlatformError as failure:
            progress(service.name, "failed")
            return failure
        progress(service.name, "ready")
        return None

    def _start(self, service: Service, timeout: float, progress: Progress) -> None:
        info = self._supervision.info(service.name)
        if info is None or not info.is_alive:
            progress(service.name, "preparing")
            program = service.prepare(ports := service.allocate_ports())
            self._started[service.name] = None
            progress(service.name, f"starting on port {ports['client']}")
            self._supervision.start(service.name, program)
        endpoint = service.endpoint(service.ports)
        self._wait_until_ready(service, endpoint, timeout)
        service.bootstrap(endpoint)

    def _wait_until_ready(self, service: Service, endpoint: Endpoint, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not ((info := self._alive(service)) and endpoint.accepts and service.is_ready(endpoint)):
            if info is None or time.monotonic() > deadline:
                what = f"was not ready after {timeout:g} seconds" if info else "ended while it was starting"
                log = self._supervision.log_of(service.name)
                if info:
                    self._supervision.stop(service.name)
                raise ServiceStartFailed(service.name, what, self.logs(service.name, _SHOWN_LOG_LINES), log)
            time.sleep(0.1)

    def _alive(self, service: Service) -> ProcessInfo | None:
        info = self._supervision.info(service.name)
        return info if info and info.is_alive else None

    def _judge(self, outcomes: Iterable[PlatformError | None], absence: PlatformError | None) -> list[ServiceStatus]:
        statuses = [self._status(service, absence) for service in self._services.values()]
        failures = [outcome for outcome in outcomes if outcome]
        if failures:
            raise ServicesFailed(failures, statuses)
        return statuses

    def _status(self, service: Service, absence: PlatformError | None = None) -> ServiceStatus:
        info = self._supervision.info(service.name)
        port = service.ports.get("client")
        if info is None or (info.state == "STOPPED" and not info.is_alive):
            return _status_without_process(service, port, absence)
        if not info.is_alive:
            tried = self._restarts.is_exhausted(service.name, datetime.now(UTC))
            again = f", and again after {LIMIT} restarts" if tried else ""
            why = f"{info.how_it_ended}{again}; see `de logs {service.name}`, then run `de up`."
            return ServiceStatus(service.name, ServiceState.FAILED, port, why=why)
        memory = processes.memory_bytes(info.pid)
        endpoint = service.endpoint(service.ports)
        if not endpoint.accepts:
            why = "it does not take connections yet."
            return ServiceStatus(service.name, ServiceState.STARTING, port, info.pid, memory, why)
        wrong = service.complaint(endpoint)
        state = ServiceState.DEGRADED if wrong else ServiceState.RUNNING
        return ServiceStatus(service.name, state, port, info.pid, memory, wrong)


def _status_without_process(service: Service, port: int | None, absence: PlatformError | None) -> ServiceStatus:
    if reason := _why_left_out(service, absence):
        return ServiceStatus(service.name, ServiceState.LEFT_OUT, port, why=reason)
    return ServiceStatus(service.name, ServiceState.STOPPED, port, why="it is not started; run `de up`.")


def _why_left_out(service: Service, absence: PlatformError | None) -> str | None:
    """What keeps a service from running here; for jars that are missing, why they could not be had."""
    try:
        service.check()
    except LeftOut as reason:
        return reason.why
    except JarsMissing as missing:
        return str(absence or missing)
    except PlatformError as reason:
        return str(reason)
    return None
