"""The server of the platform's pages as a service, and the address of a page.

Its port is remembered, so that the links of earlier runs go on to work.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from pydantic import SecretStr

from de_resources.local.endpoints import Endpoint
from de_resources.local.ports import LOOPBACK
from de_resources.local.service import Program, Service
from de_resources.settings import Settings

ROOMS = ("dashboards", "observatory", "profiles")
"""The folders of a home whose pages are served."""


class PagesService(Service):
    """Serves what the platform's own jobs have written for people."""

    name = "pages"
    port_roles = {"client": "DE_PAGES_PORT"}  # noqa: RUF012 - a ClassVar by its base

    def check(self) -> None:
        """It needs nothing besides the platform."""

    def prepare(self, ports: Mapping[str, int]) -> Program:
        """Nothing has to be made: a room without pages serves none."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Program(
            command=[sys.executable, "-m", "de_resources.local.pages", str(self.settings.home), str(ports["client"])],
            directory=self.folder,
        )

    def endpoint(self, ports: Mapping[str, int]) -> Endpoint:
        """On loopback; there is nothing to log in to."""
        return Endpoint(self.name, LOOPBACK, ports["client"], user="", password=SecretStr(""))

    def is_ready(self, endpoint: Endpoint) -> bool:
        """It takes connections."""
        return endpoint.accepts


def page_address(settings: Settings, page: Path) -> str | None:
    """The URL of a page in one of the rooms of a home.

    None where it lies elsewhere, or where pages were never served from this home. The link opens while the service runs.
    """
    port = PagesService(settings).ports.get("client")
    if port is None or not page.is_relative_to(settings.home):
        return None
    path = page.relative_to(settings.home)
    if path.parts[0] not in ROOMS:
        return None
    return f"http://{LOOPBACK}:{port}/{quote(path.as_posix())}"
