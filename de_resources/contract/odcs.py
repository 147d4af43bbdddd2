"""A contract as a document of the Open Data Contract Standard (ODCS), which other tools than these read.

One document is about one dataset, and says what the contract says: columns with nested ones, types of the standard
(`logicalType`) and of the store (`physicalType`), keys, presence, personal data (`classification`), every rule as a quality
rule that finds no row, promises as service levels. What the standard has no word for is a custom property: `compatibility`,
`readers`, `tableProperties`, `lateFor` (how long after its time a partition takes in late rows).

Nothing in it depends on when it is made: the same contract gives the same document.

Source: Bitol, "Open Data Contract Standard" 3.2.0, and its JSON schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from pyspark.sql import types as T

from de_resources.contract.contract import Column, Contract
from de_resources.contract.rules import Rule
from de_resources.sql.identifiers import type_text

API_VERSION = "v3.2.0"
SUFFIX = ".odcs.yaml"
PERSONAL = "personal"
Document = dict[str, Any]

_STABLE_ID = re.compile(r"[A-Za-z0-9_-]+")
_ELEMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GRAIN = re.compile(r"Grain: (.+?)(?:\.\s|\.$|\n\n|$)", re.DOTALL)
_UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)))
_LOGICAL: Mapping[type[T.DataType], tuple[str, Mapping[str, Any]]] = {
    T.StringType: ("string", {}),
    T.BinaryType: ("string", {"format": "binary"}),
    T.BooleanType: ("boolean", {}),
    T.ByteType: ("integer", {"format": "i8"}),
    T.ShortType: ("integer", {"format": "i16"}),
    T.IntegerType: ("integer", {"format": "i32"}),
    T.LongType: ("integer", {"format": "i64"}),
    T.FloatType: ("number", {"format": "f32"}),
    T.DoubleType: ("number", {"format": "f64"}),
    T.DecimalType: ("number", {}),
    T.DateType: ("date", {}),
    T.TimestampType: ("timestamp", {"timezone": True, "defaultTimezone": "Etc/UTC"}),
    T.TimestampNTZType: ("timestamp", {"timezone": False}),
    T.StructType: ("object", {}),
    T.ArrayType: ("array", {}),
    T.MapType: ("map", {}),
}
"""What the standard calls a type. One that it has no word for is told as text, and by its physical type."""


@dataclass(frozen=True)
class Dialect:
    """How the store that serves a dataset says its types, and the condition of a row that breaks a rule."""

    type_text: Callable[[Column], str]
    violated: Callable[[Rule], str]


SPARK = Dialect(lambda column: type_text(column.type), lambda rule: rule.violated)


@dataclass(frozen=True)
class Promise:
    """A service level by the standard's name for it, such as `latency` or `frequency`."""

    property: str
    value: timedelta
    description: str


@dataclass(frozen=True)
class Surroundings:
    """What a document says beside the contract: which version it is, where the dataset is served, who reads it.

    `physical_type`: `table`, `view` or `topic`. `servers`: as the standard has them, without credentials. `readers`: datasets.
    `promises`: service levels beside those of the contract.
    """

    version: str
    status: str = "active"
    domain: str = ""
    physical_type: str = "table"
    servers: Sequence[Mapping[str, Any]] = ()
    readers: Sequence[str] = ()
    promises: Sequence[Promise] = ()
    dialect: Dialect = field(default=SPARK)


def document(contract: Contract, around: Surroundings) -> Document:
    """The contract as a document of the standard: plain lists, mappings, texts, numbers and truth values."""
    return _said(
        {
            "apiVersion": API_VERSION,
            "kind": "DataContract",
            "id": str(uuid5(NAMESPACE_URL, f"contract:{contract.name}")),
            "name": contract.name,
            "version": around.version,
            "status": around.status,
            "domain": around.domain,
            "description": _said({"purpose": contract.description}),
            "team": _team(contract.owner),
            "servers": [dict(server) for server in around.servers],
            "schema": [_object(contract, around)],
            "slaProperties": list(_service_levels(contract, around.promises)),
            "customProperties": _custom(
                compatibility=str(contract.compatibility),
                readers=list(around.readers),
                tableProperties=dict(contract.properties),
                lateFor=_amount(contract.late_for) if contract.late_for else {},
            ),
        }
    )


def file_name(name: str) -> str:
    """The file of a contract's document, by the ending that the standard recommends."""
    return f"{name}{SUFFIX}"


def element(name: str) -> str:
    """The dataset's own part of its name: `visits` of `silver.visits`."""
    return name.rpartition(".")[2]


def _object(contract: Contract, around: Surroundings) -> Document:
    grain = _GRAIN.search(contract.description)
    return _said(
        {
            **_identity(element(contract.name)),
            "physicalName": contract.name,
            "logicalType": "object",
            "physicalType": around.physical_type,
            "description": contract.description,
            "dataGranularityDescription": " ".join(grain[1].split()) if grain else "",
            "properties": [_column(column, contract, around.dialect) for column in contract.columns],
            "quality": [
                *_uniqueness(contract),
                *(_by_query(rule, around.dialect) for rule in contract.rules if not rule.columns),
            ],
        }
    )


def _column(column: Column, contract: Contract, dialect: Dialect) -> Document:
    rules = [rule for rule in contract.rules if rule.columns == (column.name,)]
    return _said(
        {
            **_type(column.name, column.type, required=not column.nullable, description=column.description),
            "physicalType": dialect.type_text(column),
            "unique": contract.key == (column.name,) and not contract.unique_within,
            **_position(column.name, contract.key, "primaryKey", "primaryKeyPosition"),
            **_position(column.name, contract.partitioned_by, "partitioned", "partitionKeyPosition"),
            "classification": PERSONAL if column.personal else "",
            "relationships": list(_relationships(contract.references.get(column.name))),
            "quality": [_presence(rule) if rule.check == "present" else _by_query(rule, dialect) for rule in rules],
        }
    )


def _type(name: str, type_: T.DataType, *, required: bool, description: str = "") -> Document:
    """Name, type and what is inside of it, down to the leaves."""
    kind, options = _LOGICAL.get(type(type_), ("string", {}))
    described = {
        **_identity(name),
        "logicalType": kind,
        "physicalType": type_text(type_),
        "logicalTypeOptions": {**options, **_length(type_)},
        "description": description,
        "required": required,
    }
    match type_:
        case T.StructType():
            told = ((f, str((f.metadata or {}).get("comment", ""))) for f in type_.fields)
            described["properties"] = [
                _type(f.name, f.dataType, required=not f.nullable, description=d) for f, d in told
            ]
        case T.ArrayType():
            described["items"] = _type("element", type_.elementType, required=not type_.containsNull)
        case T.MapType():
            described["map"] = {
                "key": _type("key", type_.keyType, required=True),
                "value": _type("value", type_.valueType, required=not type_.valueContainsNull),
            }
    return _said(described)


def _length(type_: T.DataType) -> Mapping[str, int]:
    return {"maxLength": type_.length} if isinstance(type_, (T.CharType, T.VarcharType)) else {}


def _identity(name: str) -> Document:
    """The name, and where it can be one, the `id` that other documents refer to."""
    return {"id": name, "name": name} if _STABLE_ID.fullmatch(name) else {"name": name}


def _position(name: str, among: Sequence[str], said: str, position: str) -> Document:
    return {said: True, position: among.index(name) + 1} if name in among else {}


def _relationships(to: str | None) -> Iterator[Document]:
    if to is None:
        return
    dataset, _, column = to.rpartition(".")
    if (
        _ELEMENT.fullmatch(element(dataset))
        and _STABLE_ID.fullmatch(column)
        and re.fullmatch(r"[\w.-]+", dataset, re.A)
    ):
        yield {"type": "foreignKey", "to": f"{file_name(dataset)}#/schema/{element(dataset)}/properties/{column}"}


def _uniqueness(contract: Contract) -> Iterator[Document]:
    """The key as a rule; within the partitions in which it is unique."""
    if contract.key:
        columns = list(dict.fromkeys([*contract.unique_within, *contract.key]))
        yield {
            "name": "key_is_unique",
            "type": "library",
            "metric": "duplicateValues",
            "dimension": "uniqueness",
            "arguments": {"properties": columns},
            "mustBe": 0,
            "unit": "rows",
        }


def _presence(rule: Rule) -> Document:
    return {
        "name": rule.name,
        "type": "library",
        "metric": "nullValues",
        "dimension": "completeness",
        "mustBe": 0,
        "unit": "rows",
    }


def _by_query(rule: Rule, dialect: Dialect) -> Document:
    """A rule as the number of rows that break it. The standard puts the table's name for `{object}`."""
    return _said(
        {
            "name": rule.name,
            "description": rule.label,
            "type": "sql",
            "dimension": "conformity" if rule.columns else "consistency",
            "query": f"SELECT count(*) FROM {{object}} WHERE {dialect.violated(rule)}",
            "mustBe": 0,
            "unit": "rows",
        }
    )


def _service_levels(contract: Contract, promises: Sequence[Promise]) -> Iterator[Document]:
    of = element(contract.name)
    if (fresh := contract.freshness) is not None:
        yield _level(
            Promise("latency", fresh.oldest, "The newest record is at most this old."),
            f"{of}.{fresh.column}" if fresh.column else of,
        )
    if contract.sla is not None and contract.sla.ready_within is not None:
        yield _level(
            Promise("latency", contract.sla.ready_within, "A partition is there so soon after its window."), of
        )
    if contract.deleted_days is not None:
        kept = timedelta(days=contract.deleted_days)
        yield _level(Promise("retention", kept, "A deleted row is kept for so long."), of)
    for promise in promises:
        yield _level(promise, of)


def _level(promise: Promise, of: str) -> Document:
    return {
        "property": promise.property,
        **_amount(promise.value),
        "element": of,
        "description": promise.description,
    }


def _amount(length: timedelta) -> Document:
    """In the largest unit of which it is a whole number; else in seconds."""
    unit, one = next(((unit, one) for unit, one in _UNITS if not length % one), ("s", timedelta(seconds=1)))
    number = length / one
    return {"value": int(number) if number.is_integer() else number, "unit": unit}


def _team(owner: str) -> Document:
    """Dagster's owners are teams (`team:web`) or addresses."""
    if owner.startswith("team:"):
        return {"name": owner.removeprefix("team:")}
    return {"members": [{"username": owner, "role": "owner"}]} if owner else {}


def _custom(**values: Any) -> list[Document]:
    return [{"property": name, "value": value} for name, value in values.items() if value not in ([], {})]


def _said(document: Document) -> Document:
    """Without what is not said: empty texts, lists and mappings, and what is false by the standard's own default."""
    return {name: value for name, value in document.items() if value not in ("", [], {}) and value is not False}
