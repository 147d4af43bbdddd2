"""A small application of the platform as a service: a process of this Python that answers on loopback to who has its token."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import ClassVar

from pydantic import SecretStr

from de_resources.local.endpoints import Endpoint
from de_resources.local.ports import LOOPBACK
from de_resources.local.service import Program, Service


class ApplicationService(Service):
    """It needs nothing but the platform. `module` is started with the home and a port; `secret` names its token."""

    module: ClassVar[str]
    secret: ClassVar[str]

    def check(self) -> None:
        """It needs nothing besides the platform."""

    def prepare(self, ports: Mapping[str, int]) -> Program:
        """Its login is made here, and read by the process from the home: nobody else sees it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.secrets.generate(self.secret)
        return Program(
            command=[sys.executable, "-m", self.module, str(self.settings.home), str(ports["client"])],
            directory=self.folder,
        )

    def endpoint(self, ports: Mapping[str, int]) -> Endpoint:
        """On loopback; the password is the bearer token."""
        token = SecretStr(self.secrets.generate(self.secret))
        return Endpoint(self.name, LOOPBACK, ports["client"], user="", password=token)

    def is_ready(self, endpoint: Endpoint) -> bool:
        """It takes connections."""
        return endpoint.accepts
