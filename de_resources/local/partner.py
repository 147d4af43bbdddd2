"""A partner who takes records, as an application: `python -m de_resources.local.partner HOME PORT`.

It stands for somebody else's system, so that deliveries can be tried against a real one: it wants a login, takes batches of a
limited size, part of a batch at random (by a seed), so many requests per second, and nothing while it is out of order. How it
behaves is in `behaviour.json` of its folder, and is read again when it changes. `GET /v1/limits` and `POST /v1/records` are
what `de_resources/delivery/receiver.py` describes; `GET /v1/streams/<stream>` tells what a test wants to know of a stream.

It counts what must not happen instead of refusing it: records that came again, that came before one which belongs before them,
and that left a gap. What it has taken survives its death.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from de_resources.local.loopback_app import OWN_NAMES_ONLY
from de_resources.local.partner_service import PartnerService
from de_resources.local.simulated_api import SimulatedApi, WrittenBehaviour, chance, serve_home

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS arrivals (place INTEGER PRIMARY KEY, id TEXT, stream TEXT, key TEXT, sequence INTEGER,
        body TEXT, repeated INTEGER);
    CREATE UNIQUE INDEX IF NOT EXISTS first_arrivals ON arrivals (id) WHERE NOT repeated;
    CREATE INDEX IF NOT EXISTS by_stream ON arrivals (stream, key, place);
    CREATE TABLE IF NOT EXISTS attempts (id TEXT PRIMARY KEY, number INTEGER);
    CREATE TABLE IF NOT EXISTS requests (stream TEXT PRIMARY KEY, number INTEGER);
"""


@dataclass(frozen=True)
class Behaviour(WrittenBehaviour):
    """How the partner is disposed today."""

    seed: int = 7
    rejects: float = 0.05
    """Share of the records that it does not take now, drawn again for each attempt."""
    refuses: tuple[str, ...] = ()
    """Keys whose records it never takes."""
    records: int = 200
    bytes: int = 500_000
    per_second: float = 500.0
    """Requests that it takes; the others are told to come back in a second."""
    busy: int = 0
    """So many of the next requests are answered by 503: an outage. -1: all of them."""
    nonsense: str = ""
    """`html`, `missing`, `unknown`: it takes the records, and answers what no one understands."""
    lost: int = 0
    """Of so many of the next requests it takes the records, and then answers that something broke."""
    seconds_per_record: float = 0.0
    """How long it works on a record."""


class Partner(SimulatedApi[Behaviour]):
    """What it has taken, and how it decides."""

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__(folder, token, Behaviour, store="taken.db", schema=_SCHEMA)
        self._tokens, self._refilled = 0.0, time.monotonic()

    async def limits(self, request: Request) -> Response:
        """What a batch may have."""
        if not self._knows(request):
            return PlainTextResponse("who are you?", 401)
        today = self._today()
        return JSONResponse({"records": today.records, "bytes": today.bytes})

    async def take(self, request: Request) -> Response:
        """Judge a batch, record by record, keep what is taken, and answer."""
        if not self._knows(request):
            return PlainTextResponse("who are you?", 401)
        today = self._today()
        if self._counts_down("busy", today.busy):
            return PlainTextResponse("out of order", 503, {"Retry-After": "1"})
        if not self._has_time(today.per_second):
            return PlainTextResponse("too many requests", 429, {"Retry-After": "1"})
        try:
            records = json.loads(await request.body())["records"]
            size = sum(len(_compact(record["body"])) + len(record["key"].encode()) for record in records)
        except (ValueError, KeyError, TypeError, AttributeError):
            return PlainTextResponse("that is no batch", 400)
        if len(records) > today.records or size > today.bytes:
            return PlainTextResponse("too large", 413)
        await asyncio.sleep(today.seconds_per_record * len(records))
        results = self._judged(records, today)
        if self._counts_down("lost", today.lost):
            return PlainTextResponse("something broke", 500)
        return _answer(results, today.nonsense)

    async def stream(self, request: Request) -> Response:
        """What has arrived of a stream: counts, and with `?arrivals` every arrival in its order."""
        if not self._knows(request):
            return PlainTextResponse("who are you?", 401)
        name = request.path_params["stream"]
        asked = "SELECT key, sequence, body, repeated FROM arrivals WHERE stream = ? ORDER BY place"
        arrivals = self._store.execute(asked, (name,)).fetchall()
        (number,) = self._store.execute("SELECT number FROM requests WHERE stream = ?", (name,)).fetchone() or (0,)
        told: dict[str, Any] = {"requests": number, **_counted(arrivals)}
        if "arrivals" in request.query_params:
            told["arrivals"] = [
                [key, sequence, json.loads(body), bool(repeated)] for key, sequence, body, repeated in arrivals
            ]
        return JSONResponse(told)

    def _judged(self, records: Iterable[Mapping[str, Any]], today: Behaviour) -> list[dict[str, str]]:
        results = []
        self._store.execute("BEGIN")
        streams = set()
        for record in records:
            streams.add(record["stream"])
            outcome, said = self._judge(record, today)
            results.append({"id": record["id"], "outcome": outcome, "said": said})
        for stream in streams:
            self._store.execute(
                "INSERT INTO requests VALUES (?, 1) ON CONFLICT (stream) DO UPDATE SET number = number + 1", (stream,)
            )
        self._store.execute("COMMIT")
        return results

    def _judge(self, record: Mapping[str, Any], today: Behaviour) -> tuple[str, str]:
        known = self._store.execute(
            "SELECT place FROM arrivals WHERE id = ? AND NOT repeated", (record["id"],)
        ).fetchone()
        if known:
            self._keep(record, repeated=True)
            return "repeated", str(known[0])
        if record["key"] in today.refuses:
            return "refused", "not wanted here"
        count = "INSERT INTO attempts VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET number = number + 1 RETURNING number"
        (attempt,) = self._store.execute(count, (record["id"],)).fetchone()
        if chance(today.seed, record["key"], record["sequence"], attempt) < today.rejects:
            return "rejected", "come back later"
        return "accepted", str(self._keep(record, repeated=False))

    def _keep(self, record: Mapping[str, Any], *, repeated: bool) -> int:
        values = (
            record["id"],
            record["stream"],
            record["key"],
            record["sequence"],
            json.dumps(record["body"]),
            repeated,
        )
        insert = "INSERT INTO arrivals (id, stream, key, sequence, body, repeated) VALUES (?, ?, ?, ?, ?, ?)"
        return int(self._store.execute(insert, values).lastrowid or 0)

    def _begin(self, today: Behaviour) -> None:
        self._tokens = today.per_second

    def _has_time(self, per_second: float) -> bool:
        """A bucket that fills as time goes by, and holds a second's requests."""
        now = time.monotonic()
        self._tokens = min(max(per_second, 1.0), self._tokens + (now - self._refilled) * per_second)
        self._refilled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _compact(body: object) -> str:
    """As senders count its bytes."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def _answer(results: list[dict[str, str]], nonsense: str) -> Response:
    if nonsense == "html":
        return PlainTextResponse("<html>Welcome back!</html>", 200)
    if nonsense == "missing":
        results = results[1:]
    if nonsense == "unknown":
        results = [{**each, "outcome": "perhaps"} for each in results]
    return JSONResponse({"results": results}, 207)


def _counted(arrivals: Iterable[tuple[str, int, str, int]]) -> dict[str, int]:
    """By key: what came again, what came after one that belongs behind it, and what was missing before it."""
    last: dict[str, int] = {}
    told = dict.fromkeys(("received", "repeated", "overtaken", "gaps"), 0)
    for key, sequence, _, repeated in arrivals:
        if repeated:
            told["repeated"] += 1
            continue
        told["received"] += 1
        told["overtaken"] += sequence < last.get(key, 0)
        told["gaps"] += sequence > last.get(key, 0) + 1
        last[key] = max(sequence, last.get(key, 0))
    return told


def application(folder: Path, token: str) -> Starlette:
    """The partner of a folder."""
    partner = Partner(folder, token)
    return Starlette(
        routes=[
            Route("/v1/limits", partner.limits),
            Route("/v1/records", partner.take, methods=["POST"]),
            Route("/v1/streams/{stream}", partner.stream),
        ],
        middleware=[OWN_NAMES_ONLY],
    )


def main(home: str, port: str) -> None:
    """Serve until asked to stop."""
    serve_home(PartnerService, application, home, port)


if __name__ == "__main__":
    main(*sys.argv[1:])
