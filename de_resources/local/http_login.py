"""How an API over HTTP is reached: where configuration says, or as a service of this home, with a token for nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from de_resources.local.discovery import local_endpoint
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.secrets import Secrets
from de_resources.settings import Settings

if TYPE_CHECKING:
    import requests


def address_and_token(
    settings: Settings,
    service: str,
    url: str | None,
    token: str | None,
    *,
    misconfigured: Callable[[str], Exception],
    hint: str,
) -> tuple[str, str]:
    """Of the API at `url`, whose `token` is a reference (`secret://name`); without `url`, of the service of this home.

    Raises what `misconfigured` makes of a url without a token, `ServiceUnavailable` with the hint where no such service runs,
    `UnknownSecret` and `NotASecretReference`.
    """
    if url:
        if not token:
            raise misconfigured(url)
        return url.rstrip("/"), Secrets.from_settings(settings).resolve(token)
    endpoint = local_endpoint(settings, service)
    if endpoint is None:
        raise ServiceUnavailable(service, "this machine", hint)
    return f"http://{endpoint.address}", endpoint.password.get_secret_value()


@contextmanager
def session_with(token: str) -> Iterator[requests.Session]:
    """A session whose requests have the bearer token. Neither a proxy nor a `.netrc` of this machine has a say."""
    import requests

    with requests.Session() as session:
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {token}"
        yield session
