"""What the services that stand for somebody else's API have in common: a login, and a behaviour that somebody writes down.

How one behaves is in `behaviour.json` of its folder, and is read again when it changes, so that a test or a person makes it
slow, busy or talk nonsense while it runs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Generic, Self, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request

from de_resources.local.application_service import ApplicationService
from de_resources.local.loopback_app import serve
from de_resources.secrets import Secrets
from de_resources.settings import Settings

BEHAVIOUR = "behaviour.json"


@dataclass(frozen=True)
class WrittenBehaviour:
    """How a service is disposed today. Its fields have plain values, or tuples of them."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """As written down; what is not, is as usual."""
        try:
            said = json.loads((folder / BEHAVIOUR).read_text())
        except FileNotFoundError:
            return cls()
        known = {field.name for field in fields(cls)} & said.keys()
        return cls(**{name: tuple(said[name]) if isinstance(said[name], list) else said[name] for name in known})

    def behave(self, folder: Path) -> None:
        """Write it down, for the service whose folder it is."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = folder / f"{BEHAVIOUR}.new"
        fresh.write_text(json.dumps(asdict(self)))
        fresh.replace(folder / BEHAVIOUR)


Today = TypeVar("Today", bound=WrittenBehaviour)


class SimulatedApi(Generic[Today]):
    """Who asks, how it is disposed, and what survives its death: the tables of `schema` in the file `store` of its folder."""

    def __init__(self, folder: Path, token: str, behaviour: type[Today], *, store: str, schema: str) -> None:
        self._folder, self._token, self._behaviour = folder, token, behaviour
        self._store = sqlite3.connect(folder / store, isolation_level=None)
        self._store.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; {schema}")
        self._read: tuple[int, Today] = (-1, behaviour())
        self._left: dict[str, int] = {}

    def _knows(self, request: Request) -> bool:
        said = request.headers.get("authorization", "").encode()
        return hmac.compare_digest(said, f"Bearer {self._token}".encode())

    def _today(self) -> Today:
        """As the file says; what counts down begins again with every change of it."""
        try:
            changed = (self._folder / BEHAVIOUR).stat().st_mtime_ns
        except FileNotFoundError:
            changed = 0
        if changed != self._read[0]:
            self._read, self._left = (changed, self._behaviour.of(self._folder)), {}
            self._begin(self._read[1])
        return self._read[1]

    def _begin(self, today: Today) -> None:
        """What else begins again with another behaviour."""

    def _counts_down(self, what: str, number: int) -> bool:
        left = self._left.setdefault(what, number)
        if left > 0:
            self._left[what] = left - 1
        return left != 0


def chance(*seeds: object) -> float:
    """Between 0 and 1, the same in every process."""
    digest = hashlib.sha256(json.dumps(seeds).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def serve_home(
    service: type[ApplicationService], application: Callable[[Path, str], Starlette], home: str, port: str
) -> None:
    """Serve the application of the service's folder in that home, with its token, until asked to stop."""
    settings = Settings.from_environment({"DE_HOME": home})
    token = Secrets.from_settings(settings).generate(service.secret)
    serve(application(settings.home / service.name, token), int(port))
