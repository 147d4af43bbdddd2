"""Real runs of small assets, and a reader that takes events for what OpenLineage's own models say, and nothing else."""

from __future__ import annotations

import importlib
import pkgutil
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Any
from urllib.parse import urlparse

import attr
import dagster as dg
import pytest
from openlineage.client import generated
from openlineage.client.generated.base import BaseFacet, RunEvent


@pytest.fixture(scope="session")
def validate() -> Callable[[dict[str, Any]], None]:
    """Reads an event, and each of its facets as the one whose schema it names.

    The models are generated from the published schemas by OpenLineage. They check little when they are made, and so
    everything is checked here: that what is required is there, that nothing else is, and the types of all of it.
    """
    modules = [
        importlib.import_module(f"{generated.__name__}.{each.name}")
        for each in pkgutil.iter_modules(generated.__path__)
    ]
    models = {
        kind._get_schema(): kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, BaseFacet)
    }

    def check(event: dict[str, Any]) -> None:
        assert event["schemaURL"] == RunEvent._get_schema()
        _require(event, RunEvent, models, "event")

    return check


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
    if value is None:
        assert NoneType in kinds, where
        return None
    told = []
    for kind in kinds:
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
    required = {name for name, each in fields.items() if each.default is attr.NOTHING}
    assert required <= value.keys(), f"{where}: {required - value.keys()}"
    for name, each in value.items():
        _require(each, types[name], models, f"{where}.{name}")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
