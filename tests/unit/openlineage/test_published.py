"""The reader of published schemas, by a specification of one facet for each side that stands here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published import Check, NotValid, by_published_schemas

pytestmark = pytest.mark.pattern("dataset_tracker")

DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
BASE = "https://example.org/spec/1-0-0/OpenLineage.json"
FACET = "https://example.org/spec/facets/1-0-0/CountedFacet.json"


def extends(base: str, **properties: Any) -> dict[str, Any]:
    return {"allOf": [{"$ref": f"{BASE}#/$defs/{base}"}, {"properties": properties, "required": list(properties)}]}


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """`counted` may be about what is written, with a number, or about what is read, with a text."""
    event = {"properties": {"eventType": {"enum": ["START", "COMPLETE"]}}, "required": ["eventType", "run", "job"]}
    facets = {each: {"required": ["_schemaURL"]} for each in ("InputDatasetFacet", "OutputDatasetFacet")}
    (tmp_path / "OpenLineage.json").write_text(
        json.dumps({**DRAFT, "$id": BASE, "$defs": {"RunEvent": event, **facets}})
    )
    forms = {
        "Counted": {"oneOf": [{"$ref": "#/$defs/Written"}, {"$ref": "#/$defs/Read"}]},
        "Written": extends("OutputDatasetFacet", rows={"type": "integer"}),
        "Read": extends("InputDatasetFacet", rows={"type": "string"}),
    }
    document = {**DRAFT, "$id": FACET, "$defs": forms, "properties": {"counted": {"$ref": "#/$defs/Counted"}}}
    (tmp_path / "facets").mkdir()
    (tmp_path / "facets" / "CountedFacet.json").write_text(json.dumps(document))
    return by_published_schemas(tmp_path)


def event(**changes: Any) -> dict[str, Any]:
    facet = {"_schemaURL": f"{FACET}#/$defs/Written", "rows": 7, **changes.pop("facet", {})}
    output = {"name": "visits", changes.pop("holder", "outputFacets"): {changes.pop("name", "counted"): facet}}
    told = {"schemaURL": f"{BASE}#/$defs/RunEvent", "eventType": "START", "run": {}, "job": {}, "outputs": [output]}
    return {**told, **changes}


def test_an_event_that_every_schema_takes_is_valid(check: Check) -> None:
    check(event())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: event(eventType="BEGUN"), "event.eventType: 'BEGUN'"),
        (lambda: event(schemaURL="https://example.org/spec/9-0-0/OpenLineage.json"), "9-0-0/OpenLineage.json is not published"),
        (lambda: event(facet={"rows": "many"}), "outputs[0].outputFacets.counted"),
        (lambda: event(facet={"_schemaURL": f"{FACET.replace('1-0-0', '2-0-0')}#/$defs/Written"}), "is not published"),
        (lambda: event(name="reckoned"), "outputs[0].outputFacets.reckoned: no OutputDatasetFacet of this name"),
        (lambda: event(holder="facets"), "outputs[0].facets.counted: no DatasetFacet of this name"),
    ],
    ids=["a value", "a version of the event", "a value of a facet", "a version of a facet", "a name", "a place"],
)  # fmt: skip
def test_what_a_schema_refuses_is_told_with_its_place(
    check: Check, wrong: Callable[[], dict[str, Any]], told: str
) -> None:
    with pytest.raises(NotValid) as refused:
        check(wrong())
    assert told in str(refused.value)
