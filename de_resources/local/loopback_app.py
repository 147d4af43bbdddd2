"""Applications that answer programs of this machine over HTTP, and nobody else."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from de_resources.local.ports import LOOPBACK

OWN_NAMES_ONLY = Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"], www_redirect=False)
"""Refuses requests that name another host, as a foreign page's tricks do."""


def serve(application: Starlette, port: int) -> None:
    """Answer on that port until asked to stop."""
    import uvicorn

    uvicorn.run(application, host=LOOPBACK, port=port, access_log=False, log_level="warning", server_header=False)
