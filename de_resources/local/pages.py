"""The pages that the platform writes for people, over HTTP: `python -m de_resources.local.pages HOME PORT`.

A browser opens no `file://` link of a page that came over HTTP, so that what Dagster's UI links has to be served. Served are
the pages below the `ROOMS` of the home, to programs of this machine: nothing else of it, no list of what there is, no
hidden file, nothing that a link leads out of its room. They are files: nobody can change or run anything, and whoever may
look at the UI, which has no login either, may look at them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePath
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from de_resources.local.loopback_app import OWN_NAMES_ONLY, serve
from de_resources.local.pages_service import ROOMS

KINDS = frozenset({".css", ".html", ".js", ".png", ".svg"})
"""What a page consists of. What its writer remembers beside it is nobody's business."""

_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PagesRoom(StaticFiles):
    """The pages of one folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)

    async def check_config(self) -> None:
        """A folder that nobody has written yet has no pages, which is no mistake."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """The file, where it is a page or a folder in which one may be."""
        if any(part.startswith(".") and part != "." for part in PurePath(path).parts):
            return "", None
        found, status = super().lookup_path(path)
        if status is None or PurePath(found).suffix in KINDS or Path(found).is_dir():
            return found, status
        return "", None


def application(home: Path) -> Starlette:
    """The server of a home's pages. Requests that name another host, as a foreign page's tricks do, are refused."""
    return Starlette(
        routes=[Mount(f"/{quote(room)}", PagesRoom(home / room)) for room in ROOMS],
        middleware=[Middleware(_Headers), OWN_NAMES_ONLY],
    )


class _Headers:
    """Says with every answer what a browser may do with it: nothing that leads elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


def main(home: str, port: str) -> None:
    """Serve until asked to stop."""
    serve(application(Path(home)), int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
