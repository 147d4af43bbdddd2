"""Events by the schemas that OpenLineage publishes, where somebody has them: the folder `spec` of its repository.

They are part of no package, and so nobody who tests has them by himself: the environment names the folder
(`OPENLINEAGE_SPEC`). The event is held against the schema that it names, and each facet both against the schema that it names
and against the one that is published for its own name, so that a facet in a wrong place is found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

SPEC = "OPENLINEAGE_SPEC"
_KINDS = ("RunFacet", "JobFacet", "DatasetFacet", "InputDatasetFacet", "OutputDatasetFacet")
Check = Callable[[Mapping[str, Any]], None]


class NotValid(AssertionError):
    """An event that is none, with every place in which it is not."""


def by_published_schemas(folder: Path) -> Check:
    """Raises `NotValid` for an event or a facet that its schema refuses, or whose schema is not published."""
    documents = [json.loads(file.read_text()) for file in (folder / "OpenLineage.json", *folder.glob("facets/*.json"))]
    registry: Registry[Any] = Registry().with_resources(
        (each["$id"], Resource.from_contents(each)) for each in documents
    )
    urls = {each["$id"] for each in documents}
    by_name = {
        (name, kind): f"{each['$id']}{schema['$ref']}"
        for each in documents
        for name, schema in each.get("properties", {}).items()
        if "$ref" in schema
        for kind in _kinds(each["$defs"], schema["$ref"])
    }

    def refused(value: Any, url: str, where: str) -> Iterator[str]:
        if url.partition("#")[0] not in urls:
            yield f"{where}: {url} is not published"
            return
        schema = {"$ref": url}
        found = Draft202012Validator(schema, registry=registry, format_checker=FormatChecker()).iter_errors(value)
        yield from (f"{where}{error.json_path[1:]}: {error.message}" for error in found)

    def check(event: Mapping[str, Any]) -> None:
        told = list(refused(event, event["schemaURL"], "event"))
        for where, kind, name, facet in _facets(event):
            told += refused(facet, facet["_schemaURL"], where)
            if (name, kind) not in by_name:
                told.append(f"{where}: no {kind} of this name is published")
            else:
                told += refused(facet, by_name[name, kind], where)
        if told:
            raise NotValid("\n".join(told))

    return check


def _kinds(definitions: Mapping[str, Any], reference: str) -> Iterator[str]:
    """What a facet may be about: the facets of the base that its definition, or one of its forms, extends."""
    definition = definitions[reference.rpartition("/")[2]]
    for part in (*definition.get("allOf", ()), *definition.get("oneOf", ())):
        target = part.get("$ref", "")
        if target.startswith("#"):
            yield from _kinds(definitions, target)
        elif target.rpartition("/")[2] in _KINDS:
            yield target.rpartition("/")[2]


def _facets(event: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Each facet: where it is, what it is about, its name, and itself."""
    holders = [("run", "RunFacet", event["run"], "facets"), ("job", "JobFacet", event["job"], "facets")]
    for side, own in (("inputs", "inputFacets"), ("outputs", "outputFacets")):
        for number, dataset in enumerate(event.get(side) or []):
            where = f"{side}[{number}]"
            holders += [
                (where, "DatasetFacet", dataset, "facets"),
                (where, "InputDatasetFacet" if side == "inputs" else "OutputDatasetFacet", dataset, own),
            ]
    for where, kind, holder, key in holders:
        for name, facet in (holder.get(key) or {}).items():
            yield f"{where}.{key}.{name}", kind, name, facet
