"""What the rest of the platform knows of a service: its state, its address, and the error when it does not answer."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from enum import StrEnum

from pydantic import SecretStr

from de_resources.errors import TransientError

PROBE_SECONDS = 1.0


class ServiceState(StrEnum):
    """Where a local service stands."""

    RUNNING = "running"
    STARTING = "starting"
    DEGRADED = "degraded"
    STOPPED = "stopped"
    FAILED = "failed"
    LEFT_OUT = "left_out"


@dataclass(frozen=True)
class ServiceStatus:
    """One local service as it is now; `why` explains every state other than running, and what to do."""

    name: str
    state: ServiceState
    port: int | None = None
    pid: int | None = None
    memory_bytes: int | None = None
    why: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether the service was started by us and runs, though maybe not all of it."""
        return self.state in (ServiceState.RUNNING, ServiceState.DEGRADED)

    @property
    def is_broken(self) -> bool:
        """Whether somebody has to look at it: it died, or a part of it does not do its work."""
        return self.state in (ServiceState.FAILED, ServiceState.DEGRADED)

    def as_dict(self) -> dict[str, str | int | None]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"state": str(self.state)}


@dataclass(frozen=True)
class Endpoint:
    """Where and as whom a service is reached. `host` is the name that clients have to use; the password never shows."""

    service: str
    host: str
    port: int
    user: str
    password: SecretStr
    database: str | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def accepts(self) -> bool:
        """Whether something takes TCP connections there; answers within a second."""
        return accepts_connections(self.host, self.port)


class ServiceUnavailable(TransientError):
    """A service does not answer."""

    def __init__(self, service: str, address: str, hint: str) -> None:
        self.service = service
        self.address = address
        self.hint = hint
        super().__init__(f"{service} at {address} does not answer: {hint}")


def accepts_connections(host: str, port: int, timeout: float = PROBE_SECONDS) -> bool:
    """Whether `host:port` takes a TCP connection within `timeout` seconds."""
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False
