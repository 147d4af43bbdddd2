"""What runs are told as: what OpenLineage's own models take, with what the runs have really done."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from told_runs import broken, cancelled, live, poison, relay, run, told, totals, visits

from de_assets.automation.openlineage import openlineage_events
from de_assets.cli.doctor.finding import FindingVerdict
from de_assets.cli.doctor.listener import check_listener
from de_resources.lineage.undeclared_writes import UNDECLARED_WRITES
from de_resources.openlineage.relay import Relay, Relayed
from de_resources.settings import Settings

pytestmark = pytest.mark.pattern("dataset_tracker")

Validate = Callable[[dict[str, Any]], None]


def test_every_run_is_told_and_each_event_is_valid(
    instance: dg.DagsterInstance, tmp_path: Path, validate: Validate
) -> None:
    ids = [run(instance, visits, "2024-01-01", "2024-01-02"), run(instance, totals), run(instance, broken)]
    done = relay(instance, tmp_path)
    events = told(tmp_path)
    assert (done.runs, done.events, done.away) == (3, len(events), "")
    for event in events:
        validate(event)
    of_runs = [(e["run"]["runId"], e["eventType"]) for e in events if e["run"]["runId"] in ids]
    assert of_runs == [
        (ids[0], "START"), (ids[0], "COMPLETE"), (ids[1], "START"), (ids[1], "COMPLETE"), (ids[2], "START"), (ids[2], "FAIL"),
    ]  # fmt: skip
    steps = [(e["job"]["name"].rpartition(".")[2], e["eventType"]) for e in events if e["run"]["runId"] not in ids]
    assert steps == [
        ("blog__visits", "START"), ("blog__visits", "COMPLETE"), ("blog__totals", "START"), ("blog__totals", "COMPLETE"),
        ("blog__broken", "START"), ("blog__broken", "FAIL"),
    ]  # fmt: skip
    assert {e["run"]["facets"]["parent"]["run"]["runId"] for e in events if e["run"]["runId"] not in ids} == set(ids)


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (["eventType"], "BEGUN"),
        (["run", "runId"], 7),
        (["run", "runId"], "7"),
        (["eventTime"], "2024-10-10T12:00:00"),
        (["producer"], "no address"),
        (["outputs", 0, "outputFacets", "subset", "outputCondition", "type"], "no such type"),
        (["job", "more"], "x"),
        (["outputs", 0, "facets", "schema", "fields", 0, "name"], None),
        (["outputs", 0, "facets", "schema", "_schemaURL"], "https://example.org/none.json"),
    ],
)
def test_what_is_no_event_is_refused(
    instance: dg.DagsterInstance, tmp_path: Path, validate: Validate, path: list[Any], wrong: Any
) -> None:
    """The reader that the other tests trust."""
    run(instance, visits, "2024-01-01", "2024-01-02")
    relay(instance, tmp_path)
    (event,) = [e for e in told(tmp_path) if e["outputs"]]
    place = event
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    with pytest.raises((AssertionError, KeyError, ValueError)):
        validate(event)


def test_columns_partitions_and_undeclared_inputs_are_facets(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    run(instance, visits, "2024-01-01", "2024-01-02")
    relay(instance, tmp_path)
    (event,) = [e for e in told(tmp_path) if e["outputs"]]
    assert [each["name"] for each in event["inputs"]] == ["blog/hidden", "blog/source", "table secrets"]
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == ("blog", "blog/visits")
    lineage = output["facets"]["columnLineage"]
    assert {name: [each["field"] for each in of["inputFields"]] for name, of in lineage["fields"].items()} == {
        "id": ["value"],
        "made": [],
    }
    assert [(each["field"], each["transformations"][0]["type"]) for each in lineage["dataset"]] == [
        ("offset", "INDIRECT")
    ]
    assert [each["name"] for each in output["facets"]["schema"]["fields"]] == ["id", "made"]
    assert output["facets"]["symlinks"]["identifiers"][0]["name"] == "/lake/blog/visits"
    keys = output["outputFacets"]["subset"]["outputCondition"]["partitions"]
    assert [key["identifier"] for key in keys] == ["2024-01-01", "2024-01-02"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 14


def test_tables_that_code_wrote_undeclared_are_outputs(
    instance: dg.DagsterInstance, tmp_path: Path, validate: Validate
) -> None:
    @dg.asset(key=["blog", "sly"])
    def sly() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={UNDECLARED_WRITES: dg.MetadataValue.json(["`blog/hidden`"])})

    run(instance, sly)
    relay(instance, tmp_path)
    (event,) = [e for e in told(tmp_path) if e["outputs"]]
    validate(event)
    assert [each["name"] for each in event["outputs"]] == ["blog/sly", "blog/hidden"]


def test_checks_are_assertions_about_the_dataset_and_no_value_leaves(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run(instance, totals)
    run(instance, broken)
    relay(instance, tmp_path)
    events = told(tmp_path)
    (judged,) = [each for e in events for each in e["inputs"] if each.get("inputFacets")]
    (assertion,) = judged["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (judged["name"], assertion["assertion"], assertion["success"], assertion["severity"]) == (
        "blog/totals",
        "adds_up",
        False,
        "warn",
    )
    (output,) = [each for e in events for each in e["outputs"]]
    assert output["facets"]["version"]["datasetVersion"] == "12"
    assert "blog/visits" in [each["name"] for e in events for each in e["inputs"]]
    errors = {e["run"]["facets"]["errorMessage"]["message"] for e in events if e["eventType"] == "FAIL"}
    assert errors == {"ValueError"}
    assert "alice" not in json.dumps(events)


class Listener(BaseHTTPRequestHandler):
    """Keeps what it is sent; refuses while `answers` is not 200, all of it or the events with one output."""

    taken: list[dict[str, Any]]
    answers = 200
    only_for = ""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        concerns = not self.only_for or self.only_for in [each["name"] for each in body["outputs"]]
        answer = self.answers if concerns else 200
        if answer == 200:
            self.taken.append(body)
        self.send_response(answer)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@contextmanager
def listening(answers: int = 200, only_for: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    handler = type("_Listener", (Listener,), {"taken": [], "answers": answers, "only_for": only_for})
    server = HTTPServer(("127.0.0.1", 0), handler)
    # It looks as often whether it is to end: by default twice a second, and each of these ends once.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.taken  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


def test_a_dead_listener_costs_a_run_nothing_and_gets_everything_later(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validate: Validate
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", nobody())
    first = run(instance, totals)
    run_of = instance.get_run_by_id(first)
    assert run_of is not None
    assert run_of.is_success
    began = time.monotonic()
    done = relay(instance, tmp_path)
    assert done.events == 0
    assert "did not take" in done.away
    assert time.monotonic() - began < 10, "one attempt, and not the client's five with pauses"
    with listening(answers=503) as (url, _):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        assert relay(instance, tmp_path).events == 0
    second = run(instance, totals)
    with listening() as (url, taken):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        assert relay(instance, tmp_path) == Relayed(runs=2, events=len(taken))
        assert relay(instance, tmp_path) == Relayed()
    for event in taken:
        validate(event)
    assert [e["run"]["runId"] for e in taken if e["run"]["runId"] in (first, second)] == [first, first, second, second]
    assert told(tmp_path) == []


def test_a_listener_that_dies_in_between_gets_the_run_again_as_a_whole(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(instance, totals)
    with listening() as (url, taken):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        post, dies_at = Listener.do_POST, 3

        def dying(self: Listener) -> None:
            self.answers = 200 if len(self.taken) < dies_at else 500
            post(self)

        with monkeypatch.context() as dead:
            dead.setattr(Listener, "do_POST", dying)
            assert relay(instance, tmp_path).away
        assert [e["eventType"] for e in taken] == ["START", "START", "COMPLETE"]
        assert not relay(instance, tmp_path).away
    # The run's beginning was taken, and is told once; its end is told as a whole, with the steps.
    assert [e["eventType"] for e in taken[3:]] == ["START", "COMPLETE", "COMPLETE"]


@pytest.mark.parametrize("answers", [400, 413, 422])
def test_an_event_that_is_refused_for_good_stops_nobody_and_is_kept(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    """The listener takes everything but the outputs of one asset."""
    run(instance, visits, "2024-01-01", "2024-01-02")
    run(instance, totals)
    with listening(answers, only_for="blog/visits") as (url, taken):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        done = relay(instance, tmp_path)
        assert (done.runs, done.events, done.refused, done.away) == (2, len(taken), 1, "")
        assert relay(instance, tmp_path) == Relayed()
    (kept,) = told(tmp_path)
    assert kept["outputs"][0]["name"] == "blog/visits"
    assert [e["outputs"][0]["name"] for e in taken if e["outputs"]] == ["blog/totals"]


@pytest.mark.parametrize("answers", [401, 403, 404, 408, 429, 500])
def test_what_is_not_the_events_fault_is_tried_again(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    run(instance, totals)
    with listening(answers) as (url, _):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        done = relay(instance, tmp_path)
    assert (done.events, done.refused) == (0, 0)
    assert "did not take" in done.away


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OPENLINEAGE_URL", "marquez:secret@here", "is no address"),
        ("OPENLINEAGE_URL", "ftp://marquez:secret@here", "is no address"),
        ("OPENLINEAGE_URL", "http://", "is no address"),
        ("OPENLINEAGE_CONFIG", "nothing.yml", "names no file"),
        ("OPENLINEAGE_CONFIG", ".", "names no file"),
        ("OPENLINEAGE_CONFIG", "empty.yml", "without a `transport`"),
        ("OPENLINEAGE_CONFIG", "filters.yml", "without a `transport`"),
        ("OPENLINEAGE_CONFIG", "unknown.yml", "makes no client"),
    ],
)
def test_a_variable_that_names_no_listener_is_told_and_the_events_wait(
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.yml").touch()
    (tmp_path / "filters.yml").write_text("filters: []\n")
    (tmp_path / "unknown.yml").write_text("transport: {type: pigeon}\n")
    run(instance, totals)
    monkeypatch.setenv(variable, value)
    done = relay(instance, tmp_path / "home")
    assert (done.runs, done.events) == (0, 0)
    assert f"`{variable}`" in done.away
    assert said in done.away
    assert "secret" not in done.away, "an address may hold a password"
    assert "blog/totals" not in capsys.readouterr().out, "nothing is printed in place of being told"
    warning = check_listener(Settings.from_environment({"DE_HOME": str(tmp_path)}), {variable: value})
    assert warning.verdict is FindingVerdict.WARN
    assert said in warning.detail
    monkeypatch.delenv(variable)
    assert relay(instance, tmp_path / "home").runs == 1


def test_a_place_that_cannot_be_written_is_told_and_the_events_wait(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home's folder is a file; the file of a listener by configuration is a folder; the position is no position."""
    run(instance, totals)
    home = tmp_path / "openlineage"
    settings = Settings.from_environment({"DE_HOME": str(tmp_path)})
    home.touch()
    assert "cannot be written" in relay(instance, home).away
    assert check_listener(settings, {}).verdict is FindingVerdict.WARN
    home.unlink()
    assert check_listener(settings, {}).verdict is FindingVerdict.OK
    (tmp_path / "taken").mkdir()
    config = tmp_path / "config.yml"
    config.write_text(f"transport: {{type: file, log_file_path: {tmp_path / 'taken'}, append: true}}\n")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("OPENLINEAGE_CONFIG", str(config))
        done = relay(instance, home)
    assert (done.events, "did not take" in done.away) == (0, True)
    (home / "position.json").write_text("[7")
    assert "Remove it" in relay(instance, home).away
    (home / "position.json").unlink()
    assert relay(instance, home).runs == 1
    assert [e["outputs"][0]["name"] for e in told(home) if e["outputs"]] == ["blog/totals"]


def test_a_run_that_makes_no_events_is_told_without_its_steps_and_stops_nobody(
    instance: dg.DagsterInstance, tmp_path: Path, validate: Validate
) -> None:
    ids = [run(instance, poison), run(instance, totals)]
    done = relay(instance, tmp_path)
    assert (done.runs, done.away, done.without_steps) == (2, "", [f"{ids[0]} (ValueError)"])
    events = told(tmp_path)
    assert [e["eventType"] for e in events if e["run"]["runId"] == ids[0]] == ["START", "COMPLETE"]
    assert [e["outputs"][0]["name"] for e in events if e["outputs"]] == ["blog/totals"]
    for event in events:
        validate(event)


def test_streams_are_streaming_from_their_beginning(
    instance: dg.DagsterInstance, tmp_path: Path, validate: Validate
) -> None:
    ids = [run(instance, live), run(instance, totals), run(instance, broken)]
    relay(instance, tmp_path)
    kinds: dict[str, set[str]] = {}
    for event in told(tmp_path):
        validate(event)
        if event["run"]["runId"] not in ids:
            job_type = event["job"]["facets"].get("jobType", {"processingType": "unknown"})
            kinds.setdefault(event["job"]["name"].rpartition(".")[2], set()).add(job_type["processingType"])
    assert kinds == {"blog__live": {"STREAMING"}, "blog__totals": {"BATCH"}, "blog__broken": {"unknown"}}


def test_a_cancelled_run_is_aborted(instance: dg.DagsterInstance, tmp_path: Path, validate: Validate) -> None:
    run_id = cancelled(instance)
    assert relay(instance, tmp_path).runs == 1
    events = told(tmp_path)
    for event in events:
        validate(event)
    assert [(e["run"]["runId"], e["eventType"]) for e in events] == [
        (run_id, "START"),
        (run_id, "ABORT"),
    ]


def test_inputs_of_another_location_are_told_though_its_graph_is_not_known(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run(instance, totals)
    Relay(instance, tmp_path, "blog").relay()
    (written,) = [e for e in told(tmp_path) if e["outputs"]]
    assert "blog/visits" in [each["name"] for each in written["inputs"]]


def test_an_instance_without_runs_and_a_run_that_was_deleted(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    assert relay(instance, tmp_path) == Relayed()
    instance.delete_run(run(instance, totals))
    assert not relay(instance, tmp_path).away


def test_the_sensor_tells_what_is_new_and_starts_nothing(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    defs = dg.Definitions(assets=[visits, totals], sensors=[openlineage_events])
    run(instance, totals)
    said = []
    for _ in range(2):
        with dg.build_sensor_context(instance, definitions=defs, sensor_name=openlineage_events.name) as context:
            answer = openlineage_events.evaluate_tick(context)
        assert not answer.run_requests
        said.append(answer.skip_message)
    assert said == ["4 events of 1 ended runs were taken.", "0 events of 0 ended runs were taken."]
    (written,) = [e for e in told(tmp_path / "openlineage") if e["outputs"]]
    assert written["inputs"][0]["name"] == "blog/visits", "by declaration, as it has no lineage"
