"""An API that tells what is known of values, as a Dagster resource: the one that configuration names, else the service `geo`.

What it expects of an API is little, and the document that its keeper would be given:

| request | answer |
|---|---|
| `GET /v1/quota` | `{"left": 9000, "values": 100}`: what it still answers, and how much of it at once; costs nothing |
| `POST /v1/lookup` with `{"values": […]}`, each once | `{"results": [{"value", "found": {…} or null}, …]}`, one for each; is paid for by the value |
| the same with too many values, others than it knows, a wrong login | `413`, `400`, `401` |
| while it is out of order, or asked too often | `503`, `429`, with `Retry-After` in seconds or as a date |

A request that fails is made again by `tenacity`: after what the API says, and at least after a pause that grows, with jitter. What
is waited in all is bounded. Failures in a row open a circuit (`circuit.py`), and then nobody asks for a while. A busy API is a
living one: it opens none. A request whose answer was lost may have been paid for, and is paid for again.
"""  # noqa: E501 - a table

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field

from de_resources.enrichment.errors import (
    ApiMisconfigured,
    ApiRefuses,
    ApiUnavailable,
    CircuitOpen,
    NonsenseAnswer,
    QuotaTooSmall,
)
from de_resources.enrichment.staged_answers import Attributes
from de_resources.local.http_login import address_and_token, session_with
from de_resources.settings import Settings

if TYPE_CHECKING:
    import requests
    from pybreaker import CircuitBreaker
    from tenacity import RetryCallState

SERVICE = "geo"
_FAILING = (408, 500, 502, 503, 504)
_BUSY = 429
_HINT = "start it with `de up geo`, or name another API in the resource's `url`."

Answers = Mapping[str, Attributes | None]
"""What is known of each value that was asked for; None: nothing."""


class _Failed(Exception):
    """One request that may be made again; `after` is what the API says about when."""

    def __init__(self, what: str, after: float = 0.0) -> None:
        super().__init__(what)
        self.after = after


class _Busy(_Failed):
    """The API lives, and wants fewer requests."""


@dataclass(frozen=True)
class Quota:
    """How many values it still answers, and how many in one call."""

    left: int
    values: int


class EnrichmentApi(dg.ConfigurableResource):
    """How the API is reached. Nothing is contacted before a method is called.

    `token` is a reference (`secret://name`), never the value; without `url` both come from the local service.
    """

    services: ClassVar[tuple[str, ...]] = (SERVICE,)

    url: str | None = Field(default=None, description="https://host/path; unset: the local service")
    token: str | None = Field(default=None, description="reference of the bearer token: secret://name")
    first_pause: float = Field(default=0.5, gt=0, description="seconds before a second request; later pauses double")
    longest_pause: float = Field(default=15.0, gt=0, description="of which one grows no longer by itself")
    patience: float = Field(default=60.0, gt=0, description="seconds that are waited in all while it is open")
    failures: int = Field(default=6, ge=1, description="failed requests in a row that open the circuit")
    rest_seconds: float = Field(default=60.0, ge=0, description="how long an open circuit lets nobody ask")
    seconds: float = Field(default=15.0, gt=0, description="longest wait for a connection, and for an answer")

    @contextmanager
    def open(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[EnrichmentConnection]:
        """A connection that is kept for many requests, and waits by `sleep`.

        Raises:
            ServiceUnavailable: none is configured and none runs here.
            ApiMisconfigured, UnknownSecret, NotASecretReference: the configured login is no good.
        """
        from de_resources.enrichment.circuit import circuit

        settings = Settings.from_environment()
        address, token = address_and_token(
            settings, SERVICE, self.url, self.token, misconfigured=ApiMisconfigured, hint=_HINT
        )
        name = hashlib.sha256(address.encode()).hexdigest()[:16]
        breaker = circuit(
            settings.home / "circuits" / f"{name}.json",
            failures=self.failures,
            rest_seconds=self.rest_seconds,
            lives=(_Busy, ApiRefuses, NonsenseAnswer),
        )
        with session_with(token) as session:
            yield EnrichmentConnection(self, address, session, breaker, sleep)

    @property
    def name(self) -> str:
        """How errors call it."""
        return SERVICE if self.url is None else "api"


class EnrichmentConnection:
    """An open connection. `requests` counts all that were made, `calls` the bulk calls with an answer; `waited`: seconds."""

    def __init__(
        self,
        api: EnrichmentApi,
        address: str,
        session: requests.Session,
        breaker: CircuitBreaker,
        sleep: Callable[[float], None],
    ) -> None:
        self._api, self.address, self._session, self._breaker, self._sleep = api, address, session, breaker, sleep
        self.requests, self.calls, self.waited = 0, 0, 0.0

    def quota(self) -> Quota:
        """What it still answers; costs nothing. Raises as `lookup`."""
        said = self._asked("GET", "/v1/quota")
        try:
            return Quota(int(said["left"]), max(int(said["values"]), 1))
        except (KeyError, TypeError, ValueError):
            raise NonsenseAnswer(self._api.name, self.address, "no usable quota") from None

    def require_quota(self, values: int) -> Quota:
        """The quota. Raises `QuotaTooSmall` where it is not enough for so many values, and as `lookup`."""
        quota = self.quota()
        if quota.left < values:
            raise QuotaTooSmall(self._api.name, values, quota.left)
        return quota

    def in_bulk(self, values: Sequence[str], size: int, fields: Mapping[str, str]) -> Iterator[Answers]:
        """Ask for all values, each once, so many in one call, and hand on each call's answers before the next is made."""
        each = list(dict.fromkeys(values))
        for first in range(0, len(each), size):
            yield self.lookup(each[first : first + size], fields)

    def lookup(self, values: Sequence[str], fields: Mapping[str, str]) -> Answers:
        """One bulk call. `fields` are what has to be told of a value that is known, each with a pattern for the whole text.

        Raises:
            ApiUnavailable: no answer, or none but "later", as long as it was waited; the call may have been paid for.
            CircuitOpen: it was not asked, having failed too often.
            NonsenseAnswer: an answer that does not say of each value, once and in its form, what is known.
            ApiRefuses: it answers no such request, to nobody or not with this login.
        """
        answers = self._understood(self._asked("POST", "/v1/lookup", {"values": list(values)}), values, fields)
        self.calls += 1
        return answers

    def _understood(self, said: Any, values: Sequence[str], fields: Mapping[str, str]) -> Answers:
        try:
            told = [(each["value"], each["found"]) for each in said["results"]]
            times = Counter(value for value, _ in told)
        except (KeyError, TypeError):
            raise NonsenseAnswer(self._api.name, self.address, "results that are none") from None
        missing, unasked = set(values) - set(times), set(times) - set(values)
        wrong = [
            f"{len(missing)} value(s) without an answer" * bool(missing),
            f"{len(unasked)} that were not asked for" * bool(unasked),
            "one value answered twice" * any(number > 1 for number in times.values()),
            "a field that is missing or has another form" * (not all(_has_form(found, fields) for _, found in told)),
        ]
        if any(wrong):
            raise NonsenseAnswer(self._api.name, self.address, ", ".join(filter(None, wrong)))
        return {value: None if found is None else {name: found[name] for name in fields} for value, found in told}

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        from pybreaker import CircuitBreakerError
        from tenacity import Retrying, retry_if_exception_type

        again = Retrying(
            retry=retry_if_exception_type(_Failed),
            wait=self._pause,
            stop=self._gives_up,
            sleep=self._wait,
            reraise=True,
        )
        try:
            return again(self._breaker.call, self._request, method, path, body)
        except _Failed as error:
            raise ApiUnavailable(self._api.name, self.address, str(error), self.requests) from None
        except CircuitBreakerError:
            raise CircuitOpen(self._api.name, self.address, self._api.rest_seconds, self.requests) from None

    def _pause(self, state: RetryCallState) -> float:
        """What the API says, and at least a pause that grows, with jitter: who failed together does not come back together."""
        from tenacity import wait_exponential_jitter

        grown = wait_exponential_jitter(
            multiplier=self._api.first_pause, max=self._api.longest_pause, jitter=self._api.first_pause
        )
        error = state.outcome.exception() if state.outcome else None
        return max(grown(state), error.after if isinstance(error, _Failed) else 0.0)

    def _gives_up(self, state: RetryCallState) -> bool:
        """The circuit opened, or the next pause is longer than what is left of the patience."""
        return self._breaker.current_state == "open" or self.waited + state.upcoming_sleep > self._api.patience

    def _wait(self, seconds: float) -> None:
        self.waited += seconds
        self._sleep(seconds)

    def _request(self, method: str, path: str, body: Any) -> Any:
        import requests

        self.requests += 1
        try:
            answer = self._session.request(
                method, self.address + path, json=body, timeout=self._api.seconds, allow_redirects=False
            )
        except requests.RequestException as error:
            # Without the error's text, which names what was sent to where.
            raise _Failed(type(error).__name__) from None
        if answer.status_code in (_BUSY, *_FAILING):
            kind = _Busy if answer.status_code == _BUSY else _Failed
            raise kind(f"status {answer.status_code}", _seconds(answer.headers.get("Retry-After")))
        if answer.status_code >= 300:
            raise ApiRefuses(self._api.name, self.address, answer.status_code)
        try:
            return answer.json()
        except ValueError:
            raise NonsenseAnswer(self._api.name, self.address, "it is no JSON") from None


def _has_form(found: Any, fields: Mapping[str, str]) -> bool:
    if found is None:
        return True
    texts = [found.get(name) for name in fields] if isinstance(found, dict) else [None]
    return all(isinstance(t, str) and re.fullmatch(form, t) for t, form in zip(texts, fields.values(), strict=True))


def _seconds(said: str | None) -> float:
    """What `Retry-After` means, in seconds or as a date; 0 where it says nothing that can be understood."""
    from urllib3.exceptions import InvalidHeader
    from urllib3.util import Retry

    try:
        return max(float(Retry().parse_retry_after(said)), 0.0) if said else 0.0
    except InvalidHeader:
        return 0.0
