"""A service that knows in which country a network is, as an application: `python -m de_resources.local.geo HOME PORT`.

It stands for somebody else's API that is paid for by the value, so that lookups can be tried against a real one: it wants a
login, answers so many values at once and so many in all, takes its time, fails now and then (by a seed), is too busy, away, or
answers nonsense. How it behaves is in `behaviour.json` of its folder, and is read again when it changes. `GET /v1/quota` and
`POST /v1/lookup` are what `de_resources/enrichment/api.py` describes; `GET /v1/account` tells what a test wants to know.

What it answers is invented: a network's hash decides its country, the same for ever, and whether it is known at all. It takes
networks of at most /24 (IPv6: /48) and no addresses. What was paid for survives its death.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from de_resources.local.geo_service import GeoService
from de_resources.local.loopback_app import OWN_NAMES_ONLY
from de_resources.local.simulated_api import SimulatedApi, WrittenBehaviour, chance, serve_home

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS requests (number INTEGER PRIMARY KEY, kind TEXT);
    CREATE TABLE IF NOT EXISTS charged (number INTEGER PRIMARY KEY, value TEXT);
"""
COUNTRIES = ("AT", "BE", "BR", "CZ", "DE", "ES", "FR", "GB", "IN", "IT", "JP", "NL", "PL", "SE", "US")
UNKNOWN = 0.05
"""Share of the networks of which it knows nothing."""
_FINEST = {4: 24, 6: 48}


@dataclass(frozen=True)
class GeoBehaviour(WrittenBehaviour):
    """How the service is disposed today."""

    seed: int = 7
    errors: float = 0.02
    """Share of the requests that fail with 500, before anything is paid for; drawn again for each."""
    values: int = 100
    """So many in one call."""
    quota: int = 10_000_000
    """Values that it answers in all, those of the past included."""
    seconds: float = 0.01
    """How long a lookup takes."""
    busy: int = 0
    """So many of the next requests are answered by 429. -1: all of them."""
    away: int = 0
    """So many by 503: an outage. -1: all of them."""
    retry_after: str = "1"
    """What the two say about when to come back; empty: nothing."""
    lost: int = 0
    """So many of the next lookups are paid for, and then answered by 500."""
    nonsense: str = ""
    """`html`, `missing`, `twice`, `unasked`, `type`, `form`: answers that no one understands; paid for all the same."""


def country_of(network: str) -> str | None:
    """What the service answers about a network, for ever; None: it does not know it."""
    if chance("known", network) < UNKNOWN:
        return None
    return COUNTRIES[int(chance("country", network) * len(COUNTRIES))]


class Geo(SimulatedApi[GeoBehaviour]):
    """What was asked and paid for, and how it answers."""

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__(folder, token, GeoBehaviour, store="account.db", schema=_SCHEMA)

    async def quota(self, request: Request) -> Response:
        """What it still answers. Is not paid for."""
        today = self._today()
        if refused := self._refused(request, "quota", today):
            return refused
        return JSONResponse({"left": max(today.quota - self._charged(), 0), "values": today.values})

    async def lookup(self, request: Request) -> Response:
        """Answer about networks, each for its price."""
        today = self._today()
        if refused := self._refused(request, "lookup", today):
            return refused
        try:
            values = json.loads(await request.body())["values"]
            usable = isinstance(values, list) and all(map(_is_network, values)) and len(set(values)) == len(values)
        except (ValueError, KeyError, TypeError):
            usable = False
        if not usable:
            return PlainTextResponse("networks, each once", 400)
        if len(values) > today.values:
            return PlainTextResponse("too many", 413)
        if self._charged() + len(values) > today.quota:
            return PlainTextResponse("nothing left", 402)
        await asyncio.sleep(today.seconds)
        self._store.executemany("INSERT INTO charged (value) VALUES (?)", [(value,) for value in values])
        if self._counts_down("lost", today.lost):
            return PlainTextResponse("something broke", 500)
        return _answer(values, today.nonsense)

    async def account(self, request: Request) -> Response:
        """What was asked and charged so far: numbers, and the charged values in their order."""
        if not self._knows(request):
            return PlainTextResponse("who are you?", 401)
        values = [value for (value,) in self._store.execute("SELECT value FROM charged ORDER BY number")]
        asked = dict(self._store.execute("SELECT kind, count(*) FROM requests GROUP BY kind").fetchall())
        return JSONResponse({"requests": asked, "charged": values})

    def _refused(self, request: Request, kind: str, today: GeoBehaviour) -> Response | None:
        """Why a request is not answered, if so. Every one with a login is counted."""
        if not self._knows(request):
            return PlainTextResponse("who are you?", 401)
        number = self._store.execute("INSERT INTO requests (kind) VALUES (?)", (kind,)).lastrowid
        later = {"Retry-After": today.retry_after} if today.retry_after else {}
        if self._counts_down("away", today.away):
            return PlainTextResponse("out of order", 503, later)
        if self._counts_down("busy", today.busy):
            return PlainTextResponse("too many requests", 429, later)
        if chance(today.seed, number) < today.errors:
            return PlainTextResponse("something broke", 500)
        return None

    def _charged(self) -> int:
        (number,) = self._store.execute("SELECT count(*) FROM charged").fetchone()
        return int(number)


def _is_network(value: object) -> bool:
    try:
        network = ip_network(str(value))
    except ValueError:
        return False
    return "/" in str(value) and network.prefixlen <= _FINEST[network.version]


def _answer(values: Sequence[str], nonsense: str) -> Response:
    if nonsense == "html":
        return PlainTextResponse("<html>Welcome back!</html>", 200)
    found = [(value, country_of(value)) for value in values]
    results: list[dict[str, Any]] = [{"value": v, "found": {"country": c} if c else None} for v, c in found]
    changed: dict[str, list[dict[str, Any]]] = {
        "missing": results[1:],
        "twice": [*results, *results[:1]],
        "unasked": [*results, {"value": "192.0.2.0/24", "found": None}],
        "type": [{**each, "found": {"country": 17}} for each in results],
        "form": [{**each, "found": {"country": "Atlantis"}} for each in results],
    }
    return JSONResponse({"results": changed.get(nonsense, results)})


def application(folder: Path, token: str) -> Starlette:
    """The service of a folder."""
    geo = Geo(folder, token)
    return Starlette(
        routes=[
            Route("/v1/quota", geo.quota),
            Route("/v1/lookup", geo.lookup, methods=["POST"]),
            Route("/v1/account", geo.account),
        ],
        middleware=[OWN_NAMES_ONLY],
    )


def main(home: str, port: str) -> None:
    """Serve until asked to stop."""
    serve_home(GeoService, application, home, port)


if __name__ == "__main__":
    main(*sys.argv[1:])
