"""What a local service is: how it is prepared, run, asked whether it is ready, and reached."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from de_resources.errors import PermanentError
from de_resources.local.endpoints import Endpoint
from de_resources.local.ports import allocate, recorded
from de_resources.secrets import Secrets
from de_resources.settings import Settings


class LeftOut(PermanentError):
    """A service cannot run on this machine; the others can."""

    def __init__(self, service: str, why: str) -> None:
        self.service = service
        self.why = why
        super().__init__(f"{service} is left out: {why}")


@dataclass(frozen=True)
class Program:
    """What the supervisor runs. No secret in `command` or `environment`: other users of the machine may read both."""

    command: list[str]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop_signal: str = "TERM"


class Service(ABC):
    """One local service. Everything it keeps is in `folder`; its ports are remembered under the home."""

    name: ClassVar[str]
    port_roles: ClassVar[Mapping[str, str | None]]
    """Role -> variable that configures its port. The role `client` is the one that clients use."""

    jar_sets: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.secrets = Secrets.from_settings(settings)

    @property
    def folder(self) -> Path:
        """The service's data and configuration."""
        return self.settings.home / self.name

    @property
    def ports(self) -> dict[str, int]:
        """The ports of the last start, by role; empty before the first."""
        return recorded(self._port_record)

    def allocate_ports(self) -> dict[str, int]:
        """Choose the ports of the next start.

        Raises:
            PortTaken: a configured port is in use.
        """
        return allocate(self.name, self.port_roles, self._port_record)

    @abstractmethod
    def check(self) -> None:
        """Raise a PermanentError (LeftOut, JavaMissing, JarsMissing) when the service cannot run on this machine."""

    @abstractmethod
    def prepare(self, ports: Mapping[str, int]) -> Program:
        """Make everything that a start needs, once, and say what to run."""

    @abstractmethod
    def endpoint(self, ports: Mapping[str, int]) -> Endpoint:
        """How clients reach the service on those ports."""

    @abstractmethod
    def is_ready(self, endpoint: Endpoint) -> bool:
        """One attempt, at most a few seconds, to get a real answer from the service."""

    def complaint(self, endpoint: Endpoint) -> str | None:
        """What a running service says is wrong with a part of it; None where nothing is. At most a few seconds."""
        del endpoint
        return None

    def bootstrap(self, endpoint: Endpoint) -> None:
        """What has to be created inside the running service before clients can use it; nothing on a rerun."""
        del endpoint

    @property
    def _port_record(self) -> Path:
        return self.settings.home / "run" / "ports" / f"{self.name}.json"


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)
