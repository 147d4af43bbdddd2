"""Events held against JSON schemas: by `de openlineage validate`, and by the reader that the other tests trust.

The published schemas are in no package that can be installed. Where `OPENLINEAGE_SPEC` names a folder with them (such as
`website/static/spec` of OpenLineage's repository), the events of all kinds are held against them, and the reader is shown to
refuse what they refuse; elsewhere that is skipped, and the reader and schemas made here prove the rest.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import Result
from told_runs import all_kinds
from typer.testing import CliRunner

from de_assets.cli.application import application
from de_resources.openlineage.validity import NoSpecification, Specification

pytestmark = pytest.mark.pattern("dataset_tracker")

Event = dict[str, Any]
EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
VERSION = "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A specification of two schemas, of which one refers to the other, and of files that are none."""
    text = {"type": "string"}
    facet = {"type": "object", "properties": {"_producer": {**text, "format": "uri"}}, "required": ["_producer"]}
    event = {
        "$id": EVENT,
        "$defs": {"Facet": facet},
        "type": "object",
        "properties": {
            "eventTime": {**text, "format": "date-time"},
            "eventType": {"enum": ["START", "COMPLETE"]},
            "run": {"type": "object", "properties": {"runId": {**text, "format": "uuid"}}, "required": ["runId"]},
        },
        "required": ["eventTime", "run"],
    }
    own = {"type": "object", "properties": {"datasetVersion": text}, "required": ["datasetVersion"]}
    version = {
        "$id": VERSION,
        "$defs": {"Version": {"allOf": [{"$ref": f"{EVENT}#/$defs/Facet"}, own]}},
        "properties": {"version": {"$ref": "#/$defs/Version"}},
    }
    folder = tmp_path / "spec"
    (folder / "facets").mkdir(parents=True)
    (folder / "OpenLineage.json").write_text(json.dumps(event))
    (folder / "facets" / "version.json").write_text(json.dumps(version))
    (folder / "facets" / "example.json").write_text("[1, 2]")
    (folder / "facets" / "broken.json").write_text("{")
    return folder


def good() -> Event:
    facet = {"_producer": "urn:blog", "_schemaURL": f"{VERSION}#/$defs/Version", "datasetVersion": "7"}
    return {
        "eventTime": "2024-10-10T12:00:00+00:00",
        "eventType": "COMPLETE",
        "schemaURL": EVENT,
        "run": {"runId": "01936a5e-5f6c-7c5e-9f5e-0242ac120002"},
        "outputs": [{"name": "blog/visits", "facets": {"version": facet}}],
    }


def changed(event: Event, path: list[Any], value: Any) -> Event:
    """A copy with another value at a place; `...` takes the place away."""
    copied = copy.deepcopy(event)
    place: Any = copied
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copied


FACET = ["outputs", 0, "facets", "version"]
WRONG = [
    (["run"], ..., "event: 'run' is a required property"),
    (["run", "runId"], "7", "event.run.runId: '7' is not a 'uuid'"),
    (["eventTime"], "2024-10-10T12:00:00", "event.eventTime: '2024-10-10T12:00:00' is not a 'date-time'"),
    (["eventTime"], "yesterday", "event.eventTime: 'yesterday' is not a 'date-time'"),
    (["eventType"], "BEGUN", "event.eventType: 'BEGUN' is not one of"),
    (["schemaURL"], ..., "event: names no schema"),
    (["schemaURL"], VERSION, "event: `schemaURL` names no schema of an event"),
    ([*FACET, "datasetVersion"], ..., "outputs[0].facets.version: 'datasetVersion' is a required property"),
    ([*FACET, "datasetVersion"], 7, "outputs[0].facets.version.datasetVersion: 7 is not of type 'string'"),
    ([*FACET, "_producer"], "no address", "outputs[0].facets.version._producer: 'no address' is not a 'uri'"),
    ([*FACET, "_producer"], ..., "outputs[0].facets.version: '_producer' is a required property"),
    ([*FACET, "_schemaURL"], ..., "outputs[0].facets.version: names no schema"),
    ([*FACET, "_schemaURL"], "https://blog.example/own.json", "outputs[0].facets.version: its schema is not in the folder"),
    ([*FACET, "_schemaURL"], f"{VERSION}#/$defs/None", "outputs[0].facets.version: a schema that"),
    (FACET, "7", "outputs[0].facets.version: names no schema"),
]  # fmt: skip


class TestAgainstSchemas:
    def test_what_they_want_is_valid(self, small: Path) -> None:
        assert Specification.read(small).problems(good()) == []

    @pytest.mark.parametrize(("path", "value", "said"), WRONG)
    def test_what_is_wrong_is_told_with_its_place(self, small: Path, path: list[Any], value: Any, said: str) -> None:
        problems = Specification.read(small).problems(changed(good(), path, value))
        assert any(problem.startswith(said) for problem in problems), problems

    def test_a_facet_has_the_name_that_its_schema_gives_it(self, small: Path) -> None:
        event = good()
        event["outputs"][0]["facets"]["edition"] = event["outputs"][0]["facets"].pop("version")
        (problem,) = Specification.read(small).problems(event)
        assert problem == "outputs[0].facets.edition: is called `edition`, and by its schema version"

    def test_a_folder_without_the_schema_of_events_or_with_two_of_a_name_is_refused(self, small: Path) -> None:
        with pytest.raises(NoSpecification, match="holds no schema of OpenLineage's events"):
            Specification.read(small / "facets")
        (small / "other.json").write_text(json.dumps({"$id": EVENT}))
        with pytest.raises(NoSpecification, match="that differ"):
            Specification.read(small)


def de(*arguments: str) -> Result:
    return CliRunner().invoke(application(), ["openlineage", "validate", *arguments])


class TestTheCommand:
    def test_the_events_of_this_home_are_held_against_a_folder(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DE_HOME", str(tmp_path))
        assert "There are no events" in " ".join(de("--spec", str(small)).output.split())
        assert de("--spec", str(small)).exit_code == 1
        file = tmp_path / "openlineage" / "events-2024-10-10.jsonl"
        file.parent.mkdir()
        file.write_text(f"{json.dumps(good())}\n" * 2)
        said = de("--spec", str(small))
        assert (said.exit_code, said.output.strip()) == (0, "2 events are valid, and all of their facets.")
        with file.open("a") as more:
            more.write(json.dumps(changed(good(), ["run", "runId"], "7")) + "\n{\n[7]\n")
        said = de("--spec", str(small))
        assert said.exit_code == 1
        assert f"{file}:3: event.run.runId: '7' is not a 'uuid'" in said.output
        assert f"{file}:4: event: is no JSON" in said.output
        assert f"{file}:5: event: is no JSON object" in said.output
        assert "3 of 5 events are not valid" in said.output

    def test_files_that_are_named_are_held_instead_and_a_folder_that_is_none_is_told(
        self, small: Path, tmp_path: Path
    ) -> None:
        file = tmp_path / "one.jsonl"
        file.write_text(json.dumps(good()))
        assert "1 events are valid" in de(str(file), "--spec", str(small)).output
        assert de(str(file), "--spec", str(tmp_path / "none")).exit_code == 1


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """Of runs and steps that begin, complete, fail and are aborted, with every facet that the platform writes."""
    with dg.DagsterInstance.ephemeral() as instance:
        return all_kinds(instance, tmp_path_factory.mktemp("told"))


@pytest.fixture(scope="module")
def published() -> Specification:
    folder = os.environ.get("OPENLINEAGE_SPEC")
    if not folder:
        pytest.skip("the published schemas are not here: OPENLINEAGE_SPEC names no folder with them")
    return Specification.read(Path(folder))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside an event."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in children:
        yield from places(child, (*path, step))


def refuses(validate: Callable[[Event], None], event: Event) -> bool:
    try:
        validate(event)
    except (AssertionError, KeyError, ValueError, TypeError, AttributeError):
        return True
    return False


class TestThePublishedSchemas:
    def test_events_of_all_kinds_with_all_facets_are_valid(self, published: Specification, events: list[Event]) -> None:
        assert [problem for event in events for problem in published.problems(event)] == []

    def test_the_reader_of_the_other_tests_refuses_what_they_refuse(
        self, published: Specification, events: list[Event], validate: Callable[[Event], None]
    ) -> None:
        """Every value of every kind of event taken away, and replaced by one of each type and of no format."""
        told: dict[str, Event] = {}
        for event in events:
            shape = json.dumps(sorted({tuple(s for s in p if isinstance(s, str)) for p in places(event)}))
            told[shape] = event
        missed, refused = [], 0
        for event in told.values():
            for path in places(event):
                for value in (..., None, 7, -1.5, True, "no such value", [], {}, [7], {"x": 7}):
                    broken = changed(event, list(path), value)
                    if published.problems(broken):
                        refused += 1
                        if not refuses(validate, broken):
                            missed.append((path, value))
        assert not missed, sorted({f"{path}: {value!r}" for path, value in missed})
        assert refused > 1000, "that many wrong events were tried"


def test_every_facet_of_the_platform_is_among_the_events_and_valid(
    events: list[Event], validate: Callable[[Event], None]
) -> None:
    """What is held against the schemas above is all that there is."""
    for event in events:
        validate(event)
    holders = [h for e in events for h in (e["run"], e["job"], *e["inputs"], *e["outputs"])]
    kinds = ("facets", "inputFacets", "outputFacets")
    found = {name for holder in holders for kind in kinds for name in holder.get(kind, {})}
    assert found == {
        "tags", "parent", "errorMessage", "jobType", "schema", "columnLineage", "version", "symlinks",
        "outputStatistics", "subset", "dataQualityAssertions",
    }  # fmt: skip
    of_steps = [e for e in events if "parent" in e["run"]["facets"]]
    assert {e["eventType"] for e in of_steps} == {"START", "COMPLETE", "FAIL"}
    assert {e["eventType"] for e in events if e not in of_steps} == {"START", "COMPLETE", "FAIL", "ABORT"}
