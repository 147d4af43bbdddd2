"""A reader that takes OpenLineage's events for what its own models say, and nothing else.

The models are generated from the published schemas by OpenLineage. They check little when they are made, and so everything is
checked here: that what is required is there, that nothing else is, the types of all of it, formats and constants.
`unit/openlineage/test_validity.py` shows, where the schemas are at hand, that what they refuse is refused here.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any
from urllib.parse import urlparse
from uuid import UUID

import attr
from openlineage.client import generated
from openlineage.client.generated.base import BaseFacet, RunEvent

from de_resources.lineage.recorded import RecordedLineage


def _is_moment(text: str) -> bool:
    return datetime.fromisoformat(text).tzinfo is not None


def _is_address(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text) is not None


def _is_uuid(text: str) -> bool:
    return str(UUID(text)) == text


FORMATS: dict[str, Callable[[str], bool]] = {
    "eventTime": _is_moment,
    "runId": _is_uuid,
    **dict.fromkeys(("producer", "_producer", "schemaURL", "_schemaURL"), _is_address),
}
"""What the published schemas say beyond types of the names that the platform writes, and the models do not check."""


def require_valid(event: dict[str, Any]) -> None:
    """Read an event, and each of its facets as the one whose schema it names. Raises for what is none."""
    assert event["schemaURL"] == RunEvent._get_schema()
    _require(event, RunEvent, _models(), "event")


def require_told(events: Iterable[dict[str, Any]], recorded: Mapping[str, RecordedLineage | None]) -> None:
    """Events of whole runs are valid, tell of these datasets as written and of no others, and lead where the lineage leads."""
    written: dict[str, dict[str, Any]] = {}
    for event in events:
        require_valid(event)
        written |= {output["name"]: output.get("facets", {}) for output in event["outputs"]}
    assert set(written) == set(recorded)
    for name, lineage in recorded.items():
        told = written[name].get("columnLineage", {"fields": {}, "dataset": []})
        columns = {c: _fields(of["inputFields"]) for c, of in told["fields"].items()}
        expected = {c: set(fields) for c, fields in lineage.columns.items()} if lineage else {}
        assert (name, columns) == (name, expected)
        assert (name, _fields(told.get("dataset", ()))) == (name, set(lineage.conditions) if lineage else set())


def _fields(said: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["name"], each["field"]) for each in said}


@cache
def _models() -> dict[str, type]:
    modules = [
        importlib.import_module(f"{generated.__name__}.{each.name}")
        for each in pkgutil.iter_modules(generated.__path__)
    ]
    return {
        kind._get_schema(): kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, BaseFacet)
    }


def _require(value: Any, kind: Any, models: dict[str, type], where: str) -> None:
    if kind is Any:
        return
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, UnionType):
        _require_one(value, arguments, models, where)
    elif origin is list:
        assert isinstance(value, list), where
        for number, each in enumerate(value):
            _require(each, arguments[0], models, f"{where}[{number}]")
    elif origin is dict:
        assert isinstance(value, dict), where
        for name, each in value.items():
            assert isinstance(name, str), where
            _require(each, arguments[1], models, f"{where}.{name}")
    elif attr.has(kind):
        _require_model(value, kind, models, where)
    elif issubclass(kind, Enum):
        kind(value)
    else:
        expected = (int, float) if kind is float else kind
        assert isinstance(value, expected), f"{where}: {value!r}"
        assert kind is bool or not isinstance(value, bool), f"{where}: {value!r}"


def _require_one(value: Any, kinds: tuple[Any, ...], models: dict[str, type], where: str) -> None:
    told = []
    for kind in kinds:
        if kind is NoneType:  # may be absent, and never null
            continue
        try:
            return _require(value, kind, models, where)
        except (AssertionError, ValueError) as error:
            told.append(error)
    raise AssertionError(f"{where} is none of {kinds}: {told}")


def _require_model(value: Any, kind: Any, models: dict[str, type], where: str) -> None:
    assert isinstance(value, dict), where
    if issubclass(kind, BaseFacet):
        assert urlparse(value["_producer"]).scheme, where
        kind = models[value["_schemaURL"]]
    types = typing.get_type_hints(kind)
    fields = {each.name: each for each in attr.fields(kind)}
    assert value.keys() <= fields.keys(), f"{where}: {value.keys() - fields.keys()}"
    # What has a value that cannot be absent is filled in by the model: a constant of the schema, or who produced it.
    required = {name for name in fields if NoneType not in typing.get_args(types[name])}
    assert required <= value.keys(), f"{where}: {required - value.keys()}"
    for name, each in value.items():
        _require(each, types[name], models, f"{where}.{name}")
        if name in FORMATS:
            assert FORMATS[name](each), f"{where}.{name}: {each!r}"
        elif name in required and isinstance(fields[name].default, str):
            assert each == fields[name].default, f"{where}.{name}: {each!r}"
