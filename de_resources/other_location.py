"""Another code location, asked by a call to the webserver and without an import: its jobs are launched, its code loaded again.

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
_LOADING_SECONDS = 300
"""Loading imports everything anew; on a machine that runs have to themselves it takes a minute."""


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


class NotLoaded(PermanentError):
    """Definitions that the webserver could not load again: the code is broken, or there is no such location."""

    def __init__(self, location: str, why: str) -> None:
        self.location, self.why = location, why
        super().__init__(
            f"The code location `{location}` was not loaded again: {why}. The page Deployment of the UI shows the whole error; "
            "mend it, and reload the location there."
        )


@dataclass(frozen=True)
class LaunchedRun:
    """A run of the other location; `anew` is false where an earlier attempt had launched it."""

    run_id: str
    anew: bool


class OtherLocation(dg.ConfigurableResource["OtherLocation"]):
    """Another code location of the same instance."""

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

    def load_again(self) -> None:
        """Load the location's definitions again, as the button Reload does, and return when it is done. Runs that work go on.

        Raises `UIAway` (transient), `NotLoaded`, `NoAddress`.
        """
        from dagster_graphql import DagsterGraphQLClientError, ReloadRepositoryLocationStatus

        try:
            done = self._client(_LOADING_SECONDS).reload_repository_location(self.location)
        except DagsterGraphQLClientError as error:
            raise self._away(error) or NotLoaded(self.location, _why(error)) from error
        if done.status is not ReloadRepositoryLocationStatus.SUCCESS:
            raise NotLoaded(self.location, f"{done.failure_type}: {done.message}"[:300])

    def _submit(self, job: str, tags: Mapping[str, str]) -> str:
        from dagster_graphql import DagsterGraphQLClientError

        try:
            return self._client(_SECONDS).submit_job_execution(
                job, repository_location_name=self.location, repository_name=self.repository, tags=dict(tags)
            )
        except DagsterGraphQLClientError as error:
            raise self._away(error) or NotLaunched(self.location, job, _why(error)) from error

    def _away(self, error: Exception) -> UIAway | None:
        """What the error is where nobody answered; None: somebody did."""
        from requests.exceptions import ConnectionError as Unreachable
        from requests.exceptions import Timeout

        nobody = any(isinstance(each, Unreachable | Timeout) for each in _causes(error))
        return UIAway(self.address) if nobody else None

    def _client(self, seconds: int) -> DagsterGraphQLClient:
        from dagster_graphql import DagsterGraphQLClient
        from gql.transport.requests import RequestsHTTPTransport

        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoAddress(self.address)
        # No proxy of the environment stands between this process and its own machine.
        direct: dict[str, Any] = (
            {"proxies": {"http": None, "https": None}} if parts.hostname in ("127.0.0.1", "localhost") else {}
        )
        transport = RequestsHTTPTransport(f"{self.address.rstrip('/')}/graphql", timeout=seconds, **direct)
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
