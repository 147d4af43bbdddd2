"""A job of another code location, launched by one of ours: a call to the webserver, and no import between the two.

Pattern: Isolated Sequencer, by task. What the other location is made of is not known here: it may have other packages, be
reloaded, or be broken, and is named by its name and the job's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import dagster as dg
from pydantic import Field

from de_resources.errors import PermanentError, TransientError
from de_resources.retries import origin_of

if TYPE_CHECKING:
    from dagster_graphql import DagsterGraphQLClient

UI = "DE_UI"
"""Environment variable: the address of the webserver. `de run` gives it to all that its UI starts."""
LAUNCHED_BY = "launched_by/run"
"""Tag of a launched run: the run that wanted it, the first of its retries."""
_SECONDS = 60


class NoAddress(PermanentError):
    """An address of a webserver that is none."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"`{UI}` is {address[:80]!r}. Write the UI's address, such as http://127.0.0.1:3000.")


class UIAway(TransientError):
    """A webserver that does not answer."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"No webserver answers at {address}. Start the UI with `de run`, or correct `{UI}`.")


class NotLaunched(PermanentError):
    """A job that the webserver would not launch: its location is broken, or has no such job."""

    def __init__(self, location: str, job: str, why: str) -> None:
        self.location, self.job, self.why = location, job, why
        super().__init__(
            f"The job `{job}` of the code location `{location}` was not launched: {why}. What this run did before stays "
            "done. The page Deployment of the UI says whether that location loads; then re-execute this run from failure."
        )


@dataclass(frozen=True)
class LaunchedRun:
    """A run of the other location; `anew` is false where an earlier attempt had launched it."""

    run_id: str
    anew: bool


class OtherLocation(dg.ConfigurableResource["OtherLocation"]):
    """The jobs of another code location of the same instance."""

    location: str = Field(description="The name of the code location in `workspace.yaml`.")
    repository: str = Field(
        default="__repository__", description="Its repository; the default is that of `Definitions`."
    )
    ui: str = Field(default="", description=f"The webserver's address; default: `{UI}` of the environment.")

    @property
    def address(self) -> str:
        """The webserver's address; empty: there is none."""
        return self.ui or os.environ.get(UI, "")

    def launch(self, context: dg.OpExecutionContext, job: str, tags: Mapping[str, str] | None = None) -> LaunchedRun:
        """Launch the job and return at once: what becomes of its run is the other team's.

        A run wants one run: a retry finds what an attempt before it has launched, also where the answer was lost, unless
        that run has failed. A re-execution by a person launches anew. Raises `UIAway` (transient), `NotLaunched`, `NoAddress`.
        """
        origin = origin_of(context.run)
        wanted = {**(tags or {}), LAUNCHED_BY: origin}
        filters = dg.RunsFilter(job_name=job, tags={LAUNCHED_BY: origin}, statuses=_NOT_FAILED)
        for run in context.instance.get_runs(filters, limit=1):
            return LaunchedRun(run.run_id, anew=False)
        return LaunchedRun(self._submit(job, wanted), anew=True)

    def _submit(self, job: str, tags: Mapping[str, str]) -> str:
        from dagster_graphql import DagsterGraphQLClientError
        from requests.exceptions import ConnectionError as Unreachable
        from requests.exceptions import Timeout

        try:
            return self._client().submit_job_execution(
                job, repository_location_name=self.location, repository_name=self.repository, tags=dict(tags)
            )
        except DagsterGraphQLClientError as error:
            if any(isinstance(each, Unreachable | Timeout) for each in _causes(error)):
                raise UIAway(self.address) from error
            raise NotLaunched(self.location, job, _why(error)) from error

    def _client(self) -> DagsterGraphQLClient:
        from dagster_graphql import DagsterGraphQLClient
        from gql.transport.requests import RequestsHTTPTransport

        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoAddress(self.address)
        # No proxy of the environment stands between this process and its own machine.
        direct: dict[str, Any] = (
            {"proxies": {"http": None, "https": None}} if parts.hostname in ("127.0.0.1", "localhost") else {}
        )
        transport = RequestsHTTPTransport(f"{self.address.rstrip('/')}/graphql", timeout=_SECONDS, **direct)
        return DagsterGraphQLClient(parts.hostname, transport=transport)


_NOT_FAILED = [
    status
    for status in dg.DagsterRunStatus
    if status not in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.CANCELING)
]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _why(error: Exception) -> str:
    """The webserver's name of the refusal, and its first line; what it answered where the client could make nothing of it."""
    answered = error.__cause__ or error
    said = [line for part in answered.args if part for line in str(part).splitlines()[:1]]
    return ": ".join(said)[:300] or type(answered).__name__
