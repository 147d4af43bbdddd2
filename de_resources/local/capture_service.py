"""The capture of database changes as a service: a Python process beside database and broker, for which it waits itself."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import SecretStr

from de_resources.local.endpoints import Endpoint
from de_resources.local.ports import LOOPBACK
from de_resources.local.service import LeftOut, Program, Service, write_private


class Captured(Protocol):
    """What somebody wants to have captured (`CaptureSource` of `de_resources/capture`); here it is only remembered."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""


WELL = ("relaying", "starting", "expecting")
"""How begins what needs nobody; `expecting`: a table or topic is not there yet. One that failed says why until it relays."""
_ANSWER_SECONDS = 3.0


class CaptureService(Service):
    """Runs when somebody declared what to capture; the declaration is remembered for later starts."""

    name = "capture"
    port_roles = {"client": "DE_CAPTURE_PORT"}  # noqa: RUF012 - a ClassVar by its base

    def declare(self, captures: Iterable[Captured]) -> None:
        """What to capture from the next start on."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._declaration, json.dumps([capture.as_dict() for capture in captures]))

    def check(self) -> None:
        """There must be something to capture."""
        if not self._declaration.exists():
            raise LeftOut(self.name, "nothing to capture is declared; `de up` declares what the platform captures.")

    def prepare(self, ports: Mapping[str, int]) -> Program:
        """The process finds database and broker of the same home by itself."""
        return Program(
            command=[sys.executable, "-m", "de_resources.capture", str(self._declaration), str(ports["client"])],
            directory=self.folder,
            environment={"DE_HOME": str(self.settings.home), "DE_JARS": str(self.settings.jars)},
        )

    def endpoint(self, ports: Mapping[str, int]) -> Endpoint:
        """Where it tells how it stands; nobody can ask it for anything else."""
        return Endpoint(self.name, LOOPBACK, ports["client"], user="", password=SecretStr(""))

    def is_ready(self, endpoint: Endpoint) -> bool:
        """It takes connections; that it waits for a database is no reason to wait for it."""
        return endpoint.accepts

    def complaint(self, endpoint: Endpoint) -> str | None:
        """The sources that are not relayed now, each with what it says; also when it says nothing at all."""
        try:
            told = _told(endpoint)
        except (OSError, ValueError) as silent:
            return f"it does not tell how its sources stand ({type(silent).__name__}); see `de logs capture`."
        wrong = [f"`{name}` {said}" for name, said in sorted(told.items()) if said.partition(":")[0] not in WELL]
        return f"{'; '.join(wrong)}; see `de logs capture`." if wrong else None

    @property
    def _declaration(self) -> Path:
        return self.folder / "sources.json"


def _told(endpoint: Endpoint) -> dict[str, str]:
    """How each source stands, by its name. Raises `OSError` and `ValueError` where there is no answer, or no whole one."""
    with (
        socket.create_connection((endpoint.host, endpoint.port), timeout=_ANSWER_SECONDS) as asked,
        asked.makefile() as answer,
    ):
        return {str(name): str(said) for name, said in json.loads(answer.readline()).items()}
