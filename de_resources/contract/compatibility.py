"""May a schema change like this? Rules for what a reader makes of data that another version of the schema has written.

The rules are those of Avro's schema resolution, as schema registries publish them per mode: what a registry calls a union with
null is a field that is not required. Two things are stricter, because tables are read without a cast: a type gets wider only
where Delta's type widening changes no value (`long` to `double` does), and text is no binary.

A pure comparison: types are Spark's in their JSON form, and nothing is imported that reads data.

Source: pattern *Schema Compatibility Enforcer*; Apache Avro 1.12, "Schema Resolution"; Confluent, "Schema Evolution and
Compatibility"; Delta's type widening.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
"""How many decimal digits before the point a decimal needs that holds every integer of the type."""
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}


class Mode(StrEnum):
    """Who has to get along: new readers with old data, old readers with new data, or both; with the last version or all."""

    NONE = "none"
    BACKWARD = "backward"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD = "forward"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL = "full"
    FULL_TRANSITIVE = "full_transitive"

    @property
    def backward(self) -> bool:
        """Whether the new schema has to read what the old ones wrote."""
        return self.startswith(("backward", "full"))

    @property
    def forward(self) -> bool:
        """Whether the old schemas have to read what the new one writes."""
        return self.startswith(("forward", "full"))

    @property
    def transitive(self) -> bool:
        """Whether every earlier version counts, and not only the last."""
        return self.endswith("transitive")


@dataclass(frozen=True)
class SchemaField:
    """A column, or a field of a nested one: its type in Spark's JSON, whether it is always there, whether it has a default."""

    type: Any
    required: bool = False
    has_default: bool = False


Schema = Mapping[str, SchemaField]


@dataclass(frozen=True)
class Break:
    """A change that a reader does not survive: the field (nested ones with dots), the rule, and the version it breaks with.

    `writes` and `reads` are what either side makes of the field, each with whose side it is.
    """

    field: str
    rule: str
    version: int = 0
    writes: str = ""
    reads: str = ""

    @property
    def column(self) -> str:
        """The column that the field is, or is inside of."""
        return self.field.split(".", 1)[0]

    def __str__(self) -> str:
        sides = f"{self.writes}, {self.reads}" if self.writes else f"version {self.version}"
        return f"`{self.field}`: {self.rule} ({sides})"


def breaks(new: Schema, history: Mapping[int, Schema], mode: Mode) -> list[Break]:
    """Every way in which the new schema breaks the mode, over the versions of the history that the mode looks at."""
    versions = sorted(history)
    found = []
    for version in versions if mode.transitive else versions[-1:]:
        old = history[version]
        if mode.backward:
            found += [_break(version, _BACKWARD, each) for each in _unreadable(new, old)]
        if mode.forward:
            found += [_break(version, _FORWARD, each) for each in _unreadable(old, new)]
    return found


def _break(version: int, rules: Mapping[str, str], found: _Found) -> Break:
    field, why, *of = found
    writer, reader = f"version {version}", "the contract"
    if rules is _FORWARD:
        writer, reader = reader, writer
    writes, reads = (side.format(*of) for side in _SIDES[why])
    return Break(field, rules[why].format(*of), version, f"{writer} writes {writes}", f"{reader} reads {reads}")


_BACKWARD = {
    "missing": "it is required, has no default, and rows that are there lack it",
    "null": "it became required, and rows that are there may have a null",
    "type": "its type became {0}, which does not hold every {1} that is there",
}
_FORWARD = {
    "missing": "it was removed (or renamed), and readers require it",
    "null": "it is no longer required, and readers expect no null",
    "type": "its type became {1}, and readers expect {0}",
}
_SIDES = {
    "missing": ("no such field", "a required one"),
    "null": ("nulls", "none"),
    "type": ("{1}", "{0}"),
}
"""What the writer makes of the field, and what the reader."""
_Found = tuple[str, ...]
"""Field, kind, and for a type that of the reader and that of the data."""


def _unreadable(reader: Schema, writer: Schema) -> Iterator[_Found]:
    """The fields of the reader that data of the writer do not have as it needs them. Fields that it does not know it skips."""
    for name, field in reader.items():
        written = writer.get(name)
        if written is None:
            if field.required and not field.has_default:
                yield name, "missing"
            continue
        if field.required and not written.required:
            yield name, "null"
        for inside, why, *of in _mismatches(field.type, written.type):
            yield (f"{name}.{inside}" if inside else name, why, *of)


def _mismatches(reader: Any, writer: Any) -> Iterator[_Found]:
    if reader == writer or (isinstance(reader, str) and isinstance(writer, str) and _holds(reader, writer)):
        return
    kind = reader["type"] if isinstance(reader, Mapping) else None
    if kind is None or not isinstance(writer, Mapping) or writer["type"] != kind:
        yield "", "type", _told(reader), _told(writer)
    elif kind == "struct":
        yield from _unreadable(_fields(reader), _fields(writer))
    elif kind == "array":
        element = ("elementType", "containsNull", "element")
        yield from _unreadable(_inner(reader, element), _inner(writer, element))
    elif kind == "map":
        for part in (("keyType", "", "key"), ("valueType", "valueContainsNull", "value")):
            yield from _unreadable(_inner(reader, part), _inner(writer, part))


def _fields(struct: Mapping[str, Any]) -> Schema:
    return {f["name"]: SchemaField(f["type"], not f["nullable"]) for f in struct["fields"]}


def _inner(container: Mapping[str, Any], part: Sequence[str]) -> Schema:
    type_, may_be_null, name = part
    return {name: SchemaField(container[type_], not container.get(may_be_null, False))}


def _holds(reader: str, writer: str) -> bool:
    """Whether the reader's type has every value of the writer's, unchanged."""
    wide = _DECIMAL.fullmatch(reader)
    if wide is None:
        return reader in _WIDER.get(writer, ())
    digits, scale = int(wide[1]) - int(wide[2]), int(wide[2])
    narrow = _DECIMAL.fullmatch(writer)
    if narrow is not None:
        return digits >= int(narrow[1]) - int(narrow[2]) and scale >= int(narrow[2])
    return writer in _INTEGERS and digits >= _DIGITS[writer]


def _told(type_: Any) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])
