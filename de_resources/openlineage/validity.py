"""Events held against the published JSON schemas: the event's own by `schemaURL`, each facet's by `_schemaURL`.

The schemas are read from a folder, such as `website/static/spec` (all versions) or `spec` (the newest) of a clone of
OpenLineage's repository: no package that can be installed carries them, and nothing is fetched here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import best_match
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from de_resources.errors import PermanentError

_EVENT = "/OpenLineage.json"
_LONGEST = 300
FORMATS = FormatChecker(["uuid"])


class NoSpecification(PermanentError):
    """A folder that holds no schemas of OpenLineage, or two of one name that differ."""

    def __init__(self, folder: Path, why: str) -> None:
        self.folder = folder
        super().__init__(
            f"{folder} {why}. Name a folder such as `website/static/spec` of a clone of OpenLineage's repository."
        )


@dataclass(frozen=True)
class Specification:
    """The schemas of a folder, each under the address that it says it has (`$id`)."""

    schemas: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Specification:
        """All JSON schemas below the folder. Raises `NoSpecification`."""
        found: dict[str, Mapping[str, Any]] = {}
        for file in sorted(folder.rglob("*.json")):
            schema = _json(file.read_text())
            address = schema.get("$id") if isinstance(schema, dict) else None
            if not isinstance(address, str):
                continue
            if found.setdefault(address, schema) != schema:
                raise NoSpecification(folder, f"holds two schemas {address} that differ")
        if not any(address.endswith(_EVENT) for address in found):
            raise NoSpecification(folder, "holds no schema of OpenLineage's events")
        return cls(found)

    def problems(self, event: Any) -> list[str]:
        """What is wrong with an event, with the place of each; nothing for a valid one."""
        if not isinstance(event, dict):
            return ["event: is no JSON object"]
        address = event.get("schemaURL")
        found = [*self._of(event, address, "event")]
        if not str(address).partition("#")[0].endswith(_EVENT):
            found.append(f"event: `schemaURL` names no schema of an event: {address}")
        for where, name, facet in _facets(event):
            address = facet.get("_schemaURL") if isinstance(facet, dict) else None
            found += self._of(facet, address, where)
            named = self.schemas.get(str(address).partition("#")[0], {}).get("properties", {name})
            if name not in named:
                found.append(f"{where}: is called `{name}`, and by its schema {', '.join(named)}")
        return found

    def _of(self, value: Any, address: Any, where: str) -> Iterator[str]:
        if not isinstance(address, str):
            yield f"{where}: names no schema"
        elif address.partition("#")[0] not in self.schemas:
            yield f"{where}: its schema is not in the folder: {address}"
        else:
            yield from self._against(value, address, where)

    def _against(self, value: Any, address: str, where: str) -> Iterator[str]:
        schema = {"$ref": address}
        validator = Draft202012Validator(schema, registry=self._registry, format_checker=FORMATS)
        try:
            for error in validator.iter_errors(value):
                # Of alternatives that all failed, what the nearest one lacks.
                told = best_match([error])
                place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in told.absolute_path)
                yield f"{where}{place}: {_short(told.message)}"
        except Unresolvable as error:
            yield f"{where}: a schema that {address} needs is not in the folder: {_short(str(error))}"

    @cached_property
    def _registry(self) -> Registry[Any]:
        named = self.schemas.items()
        return Registry().with_resources((address, DRAFT202012.create_resource(schema)) for address, schema in named)


def held(specification: Specification, file: Path) -> Iterator[tuple[int, list[str]]]:
    """Each line of a file with one event a line, by its number, and what is wrong with it."""
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        event = _json(line)
        yield number, ["event: is no JSON"] if event is None else specification.problems(event)


def _facets(event: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Every facet of an event: where it is, its name, itself."""
    holders = [("run", event.get("run")), ("job", event.get("job"))]
    for side in ("inputs", "outputs"):
        datasets = event.get(side)
        holders += [(f"{side}[{i}]", each) for i, each in enumerate(datasets if isinstance(datasets, list) else ())]
    for place, holder in holders:
        for kind in ("facets", "inputFacets", "outputFacets"):
            facets = holder.get(kind) if isinstance(holder, dict) else None
            for name, facet in (facets if isinstance(facets, dict) else {}).items():
                yield f"{place}.{kind}.{name}", name, facet


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


@FORMATS.checks("date-time", raises=ValueError)
def _is_moment(value: object) -> bool:
    """RFC 3339: a moment, and so with its distance from UTC."""
    if not isinstance(value, str):
        return True
    return "T" in value.upper() and datetime.fromisoformat(value).tzinfo is not None


@FORMATS.checks("uri", raises=ValueError)
def _is_address(value: object) -> bool:
    """RFC 3986: a scheme and something behind it, without blanks."""
    if not isinstance(value, str):
        return True
    address = urlsplit(value)
    return bool(address.scheme and (address.netloc or address.path)) and not any(map(str.isspace, value))
