"""Changes × modes × depth against the table that Confluent publishes, and against readers that really read.

Source: Confluent, "Schema Evolution and Compatibility", table "Compatibility Types". What it calls an optional field is one
with a default, or one that may be null. A rename is a deletion and an addition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from de_resources.contract.compatibility import Mode, Schema, SchemaField, breaks

pytestmark = pytest.mark.pattern("schema_compatibility_enforcer")

ADD, ADD_OPTIONAL, DELETE, DELETE_OPTIONAL = (
    "add fields",
    "add optional fields",
    "delete fields",
    "delete optional fields",
)
# "Changes allowed" by the table; the transitive types allow the same, over all versions.
ALLOWED = {
    "backward": {DELETE, DELETE_OPTIONAL, ADD_OPTIONAL},
    "forward": {ADD, ADD_OPTIONAL, DELETE_OPTIONAL},
    "full": {ADD_OPTIONAL, DELETE_OPTIONAL},
    "none": {ADD, ADD_OPTIONAL, DELETE, DELETE_OPTIONAL},
}
KEPT = ("kept", "long", True)
Fields = list[tuple[str, Any, bool]]
CHANGES: dict[str, tuple[Fields, Fields]] = {
    ADD: ([KEPT], [KEPT, ("own", "string", True)]),
    ADD_OPTIONAL: ([KEPT], [KEPT, ("own", "string", False)]),
    DELETE: ([KEPT, ("own", "string", True)], [KEPT]),
    DELETE_OPTIONAL: ([KEPT, ("own", "string", False)], [KEPT]),
}


def struct(fields: Fields) -> dict[str, Any]:
    told = [{"name": n, "type": t, "nullable": not required, "metadata": {}} for n, t, required in fields]
    return {"type": "struct", "fields": told}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": False}


def map_of(value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": False}


def inside(type_: Any) -> Schema:
    return {"it": SchemaField(type_, required=True)}


DEPTHS: dict[str, Callable[[Fields], Schema]] = {
    "of the row": lambda fields: {n: SchemaField(t, required) for n, t, required in fields},
    "of a struct": lambda fields: inside(struct(fields)),
    "of the structs of a list": lambda fields: inside(array(struct(fields))),
    "of the structs of a map": lambda fields: inside(map_of(struct(fields))),
    "of a struct of lists of structs": lambda fields: inside(struct([("list", array(struct(fields)), True)])),
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", list(Mode))
def test_a_mode_allows_what_the_table_says_at_every_depth(mode: Mode, change: str, depth: str) -> None:
    old, new = (DEPTHS[depth](fields) for fields in CHANGES[change])
    assert (not breaks(new, {1: old}, mode)) == (change in ALLOWED[mode.removesuffix("_transitive")])


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("mode", list(Mode))
def test_a_rename_is_a_deletion_and_an_addition(mode: Mode, depth: str) -> None:
    of = DEPTHS[depth]
    for required, told in ((True, {ADD, DELETE}), (False, {ADD_OPTIONAL, DELETE_OPTIONAL})):
        old, new = of([KEPT, ("own", "string", required)]), of([KEPT, ("renamed", "string", required)])
        assert (not breaks(new, {1: old}, mode)) == (told <= ALLOWED[mode.removesuffix("_transitive")])


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("mode", [m for m in Mode if m != Mode.NONE])
def test_only_a_transitive_mode_looks_behind_the_last_version(mode: Mode, depth: str) -> None:
    """Optional, then gone, then back as another type: the neighbours get along, the first and the third do not."""
    of = DEPTHS[depth]
    history = {1: of([KEPT, ("own", "string", False)]), 2: of([KEPT])}
    found = breaks(of([KEPT, ("own", "long", False)]), history, mode)
    assert {each.version for each in found} == ({1} if mode.transitive else set())


# Readers that read. Of each type its extreme values; a reader has to get every one of them, unchanged.
INTEGERS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
VALUES: dict[str, list[Any]] = {
    **{name: [-(2**bits), 2**bits - 1] for name, bits in INTEGERS.items()},
    "float": [0.5, math.inf],
    "double": [0.1, math.inf],
    "string": ["", "9"],
    "boolean": [True],
}


class Unreadable(Exception):
    """What a reader cannot make sense of."""


def written(type_: Any) -> Iterator[Any]:
    """Values that a writer of the type may write: every extreme of each leaf at least once, and nulls where they may be."""
    if isinstance(type_, str):
        yield from ((type_, value) for value in VALUES[type_])
    elif type_["type"] == "array":
        yield from ([each] for each in written(type_["elementType"]))
        yield []
    else:
        fields = {f["name"]: [*([None] if f["nullable"] else []), *written(f["type"])] for f in type_["fields"]}
        longest = max(map(len, fields.values()))
        yield from ({n: values[i % len(values)] for n, values in fields.items()} for i in range(longest))


def read(type_: Any, value: Any) -> None:
    """Read by name, as Avro and a table's reader do. Raises `Unreadable`."""
    if isinstance(type_, str):
        if not isinstance(value, tuple) or not keeps(type_, *value):
            raise Unreadable
    elif type_["type"] == "array":
        if not isinstance(value, list):
            raise Unreadable
        for each in value:
            read(type_["elementType"], each)
    else:
        if not isinstance(value, dict):
            raise Unreadable
        for field in type_["fields"]:
            found = value.get(field["name"])
            if found is None and not field["nullable"]:
                raise Unreadable
            if found is not None:
                read(field["type"], found)


def keeps(reader: str, writer: str, value: Any) -> bool:
    if reader == writer:
        return True
    if writer in INTEGERS and reader in INTEGERS:
        return bool(-(2 ** INTEGERS[reader]) <= value < 2 ** INTEGERS[reader])
    if reader == "double" and writer in INTEGERS:
        return int(float(value)) == value
    return (writer, reader) == ("float", "double")


def reads_all(reader: Any, writer: Any) -> bool:
    try:
        for value in written(writer):
            read(reader, value)
    except Unreadable:
        return False
    return True


@pytest.mark.parametrize("new", sorted(VALUES))
@pytest.mark.parametrize("old", sorted(VALUES))
def test_a_type_may_become_another_one_that_keeps_its_every_value(old: str, new: str) -> None:
    changed = breaks({"own": SchemaField(new, True)}, {1: {"own": SchemaField(old, True)}}, Mode.BACKWARD)
    assert (not changed) == reads_all(new, old)


LEAVES = st.sampled_from(sorted(VALUES))


def structs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(
        st.tuples(st.sampled_from("abc"), inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda f: f[0]
    )
    return fields.map(struct)


TYPES = st.recursive(LEAVES, lambda inner: structs(inner) | inner.map(array), max_leaves=4)


@settings(max_examples=400)
@given(structs(TYPES), structs(TYPES), st.randoms(use_true_random=False))
def test_what_is_allowed_is_what_readers_can_read(old: Any, new: Any, random: Any) -> None:
    # Two that have nothing in common break nearly always: half of the time the new one is the old one with a field changed.
    if random.random() < 0.5:
        kept = [f for f in old["fields"] if random.random() < 0.8]
        new = {
            "type": "struct",
            "fields": [*kept, *(f for f in new["fields"] if f["name"] not in {k["name"] for k in kept})],
        }
    schemas = [{f["name"]: SchemaField(f["type"], not f["nullable"]) for f in each["fields"]} for each in (new, old)]
    backward, forward = reads_all(new, old), reads_all(old, new)
    assert (not breaks(schemas[0], {1: schemas[1]}, Mode.BACKWARD)) == backward
    assert (not breaks(schemas[0], {1: schemas[1]}, Mode.FORWARD)) == forward
    assert (not breaks(schemas[0], {1: schemas[1]}, Mode.FULL)) == (backward and forward)
