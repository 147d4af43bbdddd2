"""Launching a job of another location: once per run, and refusals that say what to do. The webserver is in `tests/ui`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import dagster as dg
import pytest
from dagster._core.utils import make_new_run_id

from de_assets.automation.maintenance.readers import JOB, launch_readers
from de_resources.other_location import LAUNCHED_BY, NoAddress, NotLaunched, OtherLocation, UIAway

pytestmark = pytest.mark.pattern("isolated_sequencer")


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.delenv("DE_UI", raising=False)
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def run(instance: dg.DagsterInstance, ui: str = "", run_id: str | None = None) -> dg.ExecuteInProcessResult:
    @dg.job
    def night() -> None:
        launch_readers()

    resources = {"dashboards": OtherLocation(location="dashboards", ui=ui)}
    return night.execute_in_process(instance=instance, resources=resources, run_id=run_id)


def launched(result: dg.ExecuteInProcessResult) -> object:
    (event,) = result.filter_events(lambda each: each.event_type == dg.DagsterEventType.STEP_OUTPUT)
    return event.step_output_data.metadata["launched"].value


def test_without_a_webserver_nothing_is_launched_and_that_is_said(instance: dg.DagsterInstance) -> None:
    assert launched(run(instance)) == "nothing: no webserver is known to this run"


@pytest.mark.parametrize("address", ["127.0.0.1:3000", "here", "file:///etc/passwd"])
def test_what_is_no_address_is_refused(instance: dg.DagsterInstance, address: str) -> None:
    with pytest.raises(NoAddress, match="Write the UI's address"):
        run(instance, address)


def test_a_webserver_that_is_away_is_worth_another_try(instance: dg.DagsterInstance) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UIAway, match="Start the UI with `de run`"):
            run(instance, f"http://127.0.0.1:{taken.getsockname()[1]}")


@contextmanager
def in_front(status: int, body: str) -> Iterator[str]:
    """The address of something that stands before the webserver and answers itself, as a proxy with a login does."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, "who are you?", "401"),
        (200, '{"errors": [{"message": "Cannot query field"}]}', "Cannot query field"),
        (200, "<html>", "Not a JSON answer"),
    ],
    ids=["no login", "an error of the query", "no answer of a webserver"],
)
def test_who_answers_is_not_away_and_what_he_said_is_told(
    instance: dg.DagsterInstance, status: int, body: str, said: str
) -> None:
    with in_front(status, body) as address, pytest.raises(NotLaunched, match=said):
        run(instance, address)


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.SUCCESS], ids=str)
def test_what_an_attempt_before_has_launched_is_not_launched_again(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    ours, theirs = make_new_run_id(), make_new_run_id()
    instance.add_run(dg.DagsterRun(job_name=JOB, run_id=theirs, status=status, tags={LAUNCHED_BY: ours}))
    assert launched(run(instance, "http://127.0.0.1:9", ours)) == theirs


@pytest.mark.parametrize(
    "other",
    [
        {"status": dg.DagsterRunStatus.FAILURE},
        {"tags": {LAUNCHED_BY: make_new_run_id()}},
        {"job_name": "another_job"},
    ],
    ids=["failed", "of another run", "another job"],
)
def test_only_a_living_run_of_this_one_counts(instance: dg.DagsterInstance, other: dict[str, object]) -> None:
    ours = make_new_run_id()
    known = {"job_name": JOB, "status": dg.DagsterRunStatus.SUCCESS, "tags": {LAUNCHED_BY: ours}, **other}
    instance.add_run(dg.DagsterRun(run_id=make_new_run_id(), **known))  # type: ignore[arg-type]
    with pytest.raises(UIAway):
        run(instance, "http://127.0.0.1:9", ours)
