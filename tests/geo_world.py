"""The service that knows countries: how a test disposes it, and what it was asked and paid for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import requests

from de_resources.local import LocalServices
from de_resources.local.geo import GeoBehaviour
from de_resources.secrets import Secrets

_NUMBERS = count(1)


def networks(number: int) -> list[str]:
    """Networks that no test has asked for before."""
    return [f"10.{n >> 8 & 255}.{n & 255}.0/24" for n in (next(_NUMBERS) for _ in range(number))]


class GeoWorld:
    """The running service; what it says is since `begin`."""

    def __init__(self, services: LocalServices) -> None:
        self.services, self.home = services, services.settings.home
        self._before: dict[str, Any] = {"requests": {}, "charged": []}
        self.behave()
        self._before = self._account()

    def behave(self, **how: Any) -> None:
        """From now on; on time and without errors where nothing else is said."""
        GeoBehaviour(**{"errors": 0.0, "seconds": 0.0, "retry_after": "", **how}).behave(self.home / "geo")

    @property
    def charged(self) -> list[str]:
        """What was paid for, in its order."""
        values: list[str] = self._account()["charged"]
        return values[len(self._before["charged"]) :]

    def requests(self, kind: str = "lookup") -> int:
        """How often it was asked, whatever it answered."""
        return int(self._account()["requests"].get(kind, 0)) - int(self._before["requests"].get(kind, 0))

    def _account(self) -> dict[str, Any]:
        endpoint = self.services.endpoint("geo")
        assert endpoint is not None
        token = Secrets.from_settings(self.services.settings).generate("geo_token")
        answer = requests.get(
            f"http://{endpoint.address}/v1/account", headers={"Authorization": f"Bearer {token}"}, timeout=10
        )
        answer.raise_for_status()
        told: dict[str, Any] = answer.json()
        return told


@contextmanager
def geo_in(services: LocalServices) -> Iterator[LocalServices]:
    """The service alone, in a home of its own."""
    services.up(["geo"])
    try:
        yield services
    finally:
        services.down()
