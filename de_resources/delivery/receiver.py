"""A receiver of records over HTTP, as a Dagster resource: the one that configuration names, else the service `partner`.

What it expects of a receiver is little, and the document that a partner would be given:

| request | answer |
|---|---|
| `GET /v1/limits` | `{"records": 100, "bytes": 1000000}`: what a batch may have at most |
| `POST /v1/records` with `{"records": [{"id", "stream", "key", "sequence", "body"}, …]}` | `207` with `{"results": [{"id", "outcome", "said"}, …]}`, one for each; `outcome` is `accepted`, `repeated`, `rejected` or `refused` |
| the same with a batch that is too large, a wrong login | `413`, `401` |
| while it is out of order, or asked too often | `503`, `429`, with `Retry-After` in seconds |

Every request has the login as a bearer token. A request that may have been lost is made again by urllib3's `Retry`, a `POST` too: the
records have identities. Redirects are not followed, so that the token goes nowhere else.
"""  # noqa: E501 - a table

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field

from de_resources.delivery.bin_pack_orderer import BinLimits
from de_resources.delivery.errors import AnswerNotUnderstood, ReceiverRefuses, ReceiverUnavailable
from de_resources.delivery.records import Answer, Answers, Outcome, OutgoingRecord
from de_resources.errors import PermanentError
from de_resources.local.http_login import address_and_token, session_with
from de_resources.settings import Settings

if TYPE_CHECKING:
    import requests

SERVICE = "partner"
_BUSY = (408, 429, 500, 502, 503, 504)
_HINT = "start it with `de up partner`, or name another receiver in the resource's `url`."


class ReceiverMisconfigured(PermanentError):
    """A receiver without the secret of its login."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"The receiver {url} cannot be used: give `token` (secret://name) too.")


class BulkReceiver(dg.ConfigurableResource):
    """How the receiver is reached. Nothing is contacted before a method is called.

    `token` is a reference (`secret://name`), never the value; without `url` both come from the local service.
    """

    services: ClassVar[tuple[str, ...]] = (SERVICE,)

    url: str | None = Field(default=None, description="https://host/path; unset: the local partner")
    token: str | None = Field(default=None, description="reference of the bearer token: secret://name")
    attempts: int = Field(default=6, ge=1, description="how often a request is made before the receiver counts as away")
    first_pause: float = Field(default=0.1, ge=0, description="seconds before the second attempt; later ones double")
    longest_pause: float = Field(
        default=10.0, gt=0, description="of which no more is waited, whatever the receiver says"
    )
    seconds: float = Field(default=15.0, gt=0, description="longest wait for a connection, and for an answer")

    @contextmanager
    def open(self) -> Iterator[BulkConnection]:
        """A connection that is kept for many requests.

        Raises:
            ServiceUnavailable: none is configured and none runs here.
            ReceiverMisconfigured, UnknownSecret, NotASecretReference: the configured login is no good.
        """
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        address, token = self._login()
        retry = Retry(
            total=self.attempts - 1,
            redirect=0,
            allowed_methods=None,
            status_forcelist=_BUSY,
            backoff_factor=self.first_pause / 2,
            backoff_jitter=self.first_pause / 2,
            backoff_max=self.longest_pause,
            retry_after_max=int(self.longest_pause),
            raise_on_status=False,
        )
        with session_with(token) as session:
            session.mount(address, HTTPAdapter(max_retries=retry))
            yield BulkConnection(session, self.name, address, self.seconds)

    @property
    def name(self) -> str:
        """How errors call it."""
        return SERVICE if self.url is None else "receiver"

    def description(self) -> dict[str, str]:
        """The address for metadata, without the login."""
        return {"receiver": self._login()[0]}

    def _login(self) -> tuple[str, str]:
        settings = Settings.from_environment()
        return address_and_token(
            settings, SERVICE, self.url, self.token, misconfigured=ReceiverMisconfigured, hint=_HINT
        )


class BulkConnection:
    """An open connection to a receiver."""

    def __init__(self, session: requests.Session, name: str, address: str, seconds: float) -> None:
        self._session, self._name, self.address, self._seconds = session, name, address, seconds

    def limits(self) -> BinLimits:
        """What the receiver takes in one request. Raises as `send`."""
        said = self._asked("GET", "/v1/limits")
        try:
            return BinLimits(int(said["records"]), int(said["bytes"]))
        except (KeyError, TypeError, ValueError):
            raise AnswerNotUnderstood(self._name, self.address, "no usable limits") from None

    def send(self, records: Sequence[OutgoingRecord]) -> Answers:
        """Send a batch; an answer for every record of it.

        Raises:
            ReceiverUnavailable: no answer, or none but "later", in all attempts; the batch may have arrived.
            AnswerNotUnderstood: an answer that does not say of each record what became of it; the batch may have arrived.
            ReceiverRefuses: it takes no such request, from nobody or not with this login.
        """
        said = self._asked("POST", "/v1/records", {"records": [_sent(record) for record in records]})
        try:
            found = {
                str(each["id"]): Answer(Outcome(each["outcome"]), str(each.get("said", ""))) for each in said["results"]
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise AnswerNotUnderstood(self._name, self.address, "results that are none") from None
        asked = {record.id: record for record in records}
        if found.keys() != asked.keys():
            why = f"{len(asked.keys() - found.keys())} record(s) without an answer, {len(found.keys() - asked.keys())} too many"
            raise AnswerNotUnderstood(self._name, self.address, why)
        return {asked[id_]: answer for id_, answer in found.items()}

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        import requests

        try:
            answer = self._session.request(
                method, self.address + path, json=body, timeout=self._seconds, allow_redirects=False
            )
        except requests.RequestException as error:
            # Without the error's text, which names what was sent to where.
            raise ReceiverUnavailable(self._name, self.address, type(error).__name__) from None
        if answer.status_code in _BUSY:
            raise ReceiverUnavailable(self._name, self.address, f"status {answer.status_code}")
        if answer.status_code >= 300:
            raise ReceiverRefuses(self._name, self.address, answer.status_code)
        try:
            return answer.json()
        except ValueError:
            raise AnswerNotUnderstood(self._name, self.address, "it is no JSON") from None


def _sent(record: OutgoingRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "stream": record.stream,
        "key": record.key,
        "sequence": record.sequence,
        "body": json.loads(record.body),
    }
