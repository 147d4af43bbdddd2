"""The partner who takes records (`de_resources/local/partner.py`) as a service."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pydantic import SecretStr

from de_resources.local.endpoints import Endpoint
from de_resources.local.ports import LOOPBACK
from de_resources.local.service import Program, Service


class PartnerService(Service):
    """A small application beside the others: it needs nothing but the platform, and remembers what it has taken."""

    name = "partner"
    port_roles = {"client": "DE_PARTNER_PORT"}  # noqa: RUF012 - a ClassVar by its base
    secret = "partner_token"  # noqa: S105 - the name of one

    def check(self) -> None:
        """It needs nothing besides the platform."""

    def prepare(self, ports: Mapping[str, int]) -> Program:
        """Its login is made here, and read by the process from the home: nobody else sees it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.secrets.generate(self.secret)
        return Program(
            command=[sys.executable, "-m", "de_resources.local.partner", str(self.settings.home), str(ports["client"])],
            directory=self.folder,
        )

    def endpoint(self, ports: Mapping[str, int]) -> Endpoint:
        """On loopback; the password is the bearer token."""
        token = SecretStr(self.secrets.generate(self.secret))
        return Endpoint(self.name, LOOPBACK, ports["client"], user="", password=token)

    def is_ready(self, endpoint: Endpoint) -> bool:
        """It takes connections."""
        return endpoint.accepts
