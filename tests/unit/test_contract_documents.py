"""Contracts as documents of the Open Data Contract Standard: valid by its published schema, and read back by other readers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft201909Validator
from open_data_contract_standard.model import OpenDataContractStandard
from pyspark.sql import types as T
from typer.testing import CliRunner

from de_assets.cli.application import application
from de_assets.contract_documents import Documents, stale, text_of, version_of, write
from de_assets.contract_versions import contracts_of
from de_assets.graph_assets import assets
from de_resources.contract import Contract
from de_resources.contract.compatibility import Mode, SchemaField
from de_resources.contract.contract import Column
from de_resources.contract.freshness import Freshness
from de_resources.contract.odcs import Promise, Surroundings, document
from de_resources.contract.rules import Rule
from de_resources.contract.versions import ContractHistory, schema_of
from de_resources.settings import Settings

pytestmark = pytest.mark.pattern("schema_compatibility_enforcer")

CONTRACTS = {contract.name: contract for contract in contracts_of(assets).values()}
Document = Mapping[str, Any]


@cache
def published() -> Draft201909Validator:
    """The standard's own JSON schema, as the package of its other tools carries it."""
    schema = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text())
    Draft201909Validator.check_schema(schema)
    return Draft201909Validator(schema)


def faults(document: Document) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in published().iter_errors(document)]


def custom(document: Document) -> dict[str, Any]:
    return {each["property"]: each["value"] for each in document["customProperties"]}


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Documents:
    monkeypatch.setenv("DE_HOME", str(tmp_path / "home"))
    return Documents(assets, Settings.from_environment())


def test_the_published_schema_refuses_what_is_no_document() -> None:
    """Or else the others here would prove nothing."""
    good = document(CONTRACTS["silver.visits"], Surroundings("1.0.0"))
    assert faults(good) == []
    assert faults({**good, "owner": "web"})
    assert faults({**good, "version": 1})
    (shape,) = good["schema"]
    first = {**shape["properties"][0], "logicalType": "varchar"}
    assert faults({**good, "schema": [{**shape, "properties": [first]}]})


@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_another_reader_finds_the_contract_in_its_document(documents: Documents, name: str) -> None:
    contract, text = CONTRACTS[name], text_of(documents.of(name))
    read = yaml.safe_load(text)
    assert faults(read) == []
    (shape,) = read["schema"]
    columns = shape["properties"]
    assert (read["name"], shape["physicalName"], read["team"]) == (name, name, {"name": contract.owner.split(":")[1]})
    assert read["status"] == "active"
    assert [c["name"] for c in columns] == list(contract.column_names)
    assert {c["name"] for c in columns if c.get("classification") == "personal"} == contract.personal
    assert [c["name"] for c in columns if c.get("required")] == [c.name for c in contract.columns if not c.nullable]
    by_place = sorted((c["primaryKeyPosition"], c["name"]) for c in columns if c.get("primaryKey"))
    assert tuple(column for _, column in by_place) == contract.key
    rules = [*shape.get("quality", []), *(rule for c in columns for rule in c.get("quality", []))]
    assert {r["name"] for r in rules} == {r.name for r in contract.rules} | (
        {"key_is_unique"} if contract.key else set()
    )
    assert all(r["mustBe"] == 0 for r in rules)
    assert custom(read)["compatibility"] == contract.compatibility

    model = OpenDataContractStandard.from_string(text)
    assert model.schema_ is not None
    found = {p.name: p.logicalType for p in model.schema_[0].properties or ()}
    plain = {"string": "string", "long": "integer", "boolean": "boolean", "date": "date", "timestamp": "timestamp"}
    for column in contract.columns:
        kind = column.type.jsonValue()
        if isinstance(kind, str) and kind in plain:
            assert found[column.name] == plain[kind], column.name


def test_who_reads_it_and_what_is_promised(documents: Documents) -> None:
    visits = documents.of("silver.visits")
    # By the graph as its modules say it.
    assert "silver/visits_enriched" in custom(visits)["readers"]
    latency, ready, frequency = visits["slaProperties"]
    assert (latency["property"], latency["value"], latency["unit"]) == ("latency", 3, "h")
    assert latency["element"] == "visits.event_time"
    assert (ready["property"], ready["element"]) == ("latency", "visits")
    assert (frequency["property"], frequency["value"], frequency["unit"]) == ("frequency", 1, "h")
    silence, cadence = documents.of("bronze.devices")["slaProperties"]
    for each, what in ((silence, "newest record"), (cadence, "brought up to date")):
        assert (each["property"], each["value"], each["unit"]) == ("latency", 30, "h")
        assert what in each["description"]


def test_places_are_told_without_what_opens_them(
    documents: Documents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lake,) = documents.of("gold.sessions")["servers"]
    assert lake == {
        "server": "lake",
        "type": "local",
        "path": f"{tmp_path}/home/lake/gold/sessions",
        "format": "delta",
    }
    assert "servers" not in documents.of("serving.daily_traffic"), "no database runs here"
    by_id = "serving.daily_traffic.odcs.yaml#/schema/daily_traffic/properties/event_date"
    (shape,) = documents.of("serving.daily_traffic_by_country")["schema"]
    assert shape["properties"][0]["relationships"] == [{"type": "foreignKey", "to": by_id}]
    # The database reads its own dialect.
    visits = next(c for c in shape["properties"] if c["name"] == "visits")
    query = 'SELECT count(*) FROM {object} WHERE NOT coalesce(("visits" IS NULL OR "visits" > 0), FALSE)'
    assert visits["quality"][1]["query"] == query


SCALARS = st.sampled_from(
    [
        T.StringType(),
        T.BinaryType(),
        T.BooleanType(),
        T.ByteType(),
        T.ShortType(),
        T.IntegerType(),
        T.LongType(),
        T.FloatType(),
        T.DoubleType(),
        T.DateType(),
        T.TimestampType(),
        T.TimestampNTZType(),
        T.DayTimeIntervalType(),
        T.VarcharType(7),
    ]
) | st.integers(1, 38).flatmap(lambda p: st.builds(T.DecimalType, st.just(p), st.integers(0, p)))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda name: "${" not in name)


def nested(inner: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.DataType]:
    fields = st.lists(st.tuples(NAMES, inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda f: f[0])
    return (
        st.builds(T.ArrayType, inner, st.booleans())
        | st.builds(T.MapType, SCALARS, inner, st.booleans())
        | fields.map(lambda found: T.StructType([T.StructField(*f) for f in found]))
    )


LENGTHS = st.timedeltas(timedelta(seconds=1), timedelta(days=99))


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    types = st.recursive(SCALARS, nested, max_leaves=4)
    columns = tuple(Column(n, draw(types), draw(TEXTS), draw(st.booleans()), draw(st.booleans())) for n in names)
    rules = draw(st.lists(st.builds(Rule, NAMES, st.just(()) | st.just((names[0],)), TEXTS, TEXTS), max_size=2))
    return Contract(
        name=draw(st.sampled_from(["silver.visits", "silver.größe"])),
        description=draw(TEXTS),
        owner=draw(st.sampled_from(["", "team:web", "team:a b", "someone@example.org"])),
        columns=columns,
        rules=tuple(rules),
        key=tuple(draw(st.lists(st.sampled_from(names), unique=True))),
        partitioned_by=tuple(draw(st.lists(st.sampled_from(names), unique=True))),
        properties=draw(st.dictionaries(TEXTS, TEXTS, max_size=2)),
        deleted_days=draw(st.none() | st.floats(0.001, 400)),
        references=draw(st.dictionaries(st.sampled_from(names), st.sampled_from(["a.b.c", "ä.b.c", "x y.z.q", "a"]))),
        compatibility=draw(st.sampled_from(list(Mode))),
        freshness=draw(st.none() | st.builds(Freshness, st.sampled_from(["", *names]), silence=LENGTHS, delay=LENGTHS)),
        late_for=draw(st.none() | LENGTHS),
    )


def readable(type_: T.DataType, told: Document) -> Any:
    """The type again, from the document alone, with the names and nullability of what is inside."""
    kind = told["logicalType"]
    if kind == "object":
        return {p["name"]: (p.get("required", False), readable(type_, p)) for p in told["properties"]}
    if kind == "array":
        return [told["items"].get("required", False), readable(type_, told["items"])]
    if kind == "map":
        return (
            readable(type_, told["map"]["key"]),
            told["map"]["value"].get("required"),
            readable(type_, told["map"]["value"]),
        )
    return told["physicalType"]


def expected(type_: T.DataType) -> Any:
    match type_:
        case T.StructType():
            return {f.name: (not f.nullable, expected(f.dataType)) for f in type_.fields}
        case T.ArrayType():
            return [not type_.containsNull, expected(type_.elementType)]
        case T.MapType():
            return expected(type_.keyType), not type_.valueContainsNull or None, expected(type_.valueType)
    return type_.simpleString()


@settings(max_examples=25)
@given(contracts())
@example(Contract("silver.bare", "", "", (), ()))
@example(Contract("silver.long", "very long " * 5_000, "", (), ()))
@example(Contract("silver.lines", "\x85\u2028\u2029", "", (), ()))
@example(Contract("silver.nel", "a\x85b\u2028c\x00d\ufeff: - #", "team:x", (), (Rule("r", (), "a = 'yes'"),)))
def test_every_contract_there_can_be_is_a_valid_document_and_loses_nothing(contract: Contract) -> None:
    made = document(contract, Surroundings("1.0.0", promises=[Promise("frequency", timedelta(hours=36), "…")]))
    assert faults(made) == []
    read = yaml.safe_load(text_of(made))
    assert read == made, "YAML changes no sign of it"
    (shape,) = read["schema"]
    properties = shape.get("properties", [])
    assert [p["name"] for p in properties] == list(contract.column_names)
    for column, told in zip(contract.columns, properties, strict=True):
        assert readable(column.type, told) == expected(column.type)
        assert told.get("description", "") == column.description
    queries = [
        q["query"]
        for q in [*shape.get("quality", []), *(q for p in properties for q in p.get("quality", []))]
        if "query" in q
    ]
    assert sorted(queries) == sorted(f"SELECT count(*) FROM {{object}} WHERE {r.violated}" for r in contract.rules)


def test_a_version_says_whether_readers_had_to_follow(tmp_path: Path) -> None:
    contract = CONTRACTS["gold.sessions"]
    assert version_of(contract, tmp_path) == ("1.0.0", "draft"), "nothing is accepted yet"
    history = (
        ContractHistory(contract.name)
        .accepted({"a": SchemaField("long")})
        .accepted({"a": SchemaField("long"), "b": SchemaField("long")})
    )
    history.write(tmp_path)
    assert version_of(contract, tmp_path) == ("1.2.0", "draft")
    history.accepted(schema_of(contract), "nobody reads it").write(tmp_path)
    assert version_of(contract, tmp_path) == ("2.0.0", "active")


def test_a_folder_that_lies_is_told_by_file_and_path(documents: Documents, tmp_path: Path) -> None:
    folder = tmp_path / "contracts"
    write(documents, documents.names, folder)
    assert stale(documents, documents.names, folder) == {}

    def changed(name: str, edit: Any) -> None:
        kept = yaml.safe_load((folder / name).read_text())
        edit(kept)
        (folder / name).write_text(yaml.dump(kept))

    changed("silver.visits.odcs.yaml", lambda d: d["schema"][0]["properties"][7].pop("classification"))
    changed("gold.sessions.odcs.yaml", lambda d: d["servers"][0].update(path="/elsewhere"))
    changed("silver.users.odcs.yaml", lambda d: d["schema"][0]["properties"].pop())
    (folder / "silver.devices.odcs.yaml").unlink()
    (folder / "gold.users_snapshot.odcs.yaml").write_text("{")
    shutil.copy(folder / "gold.sessions.odcs.yaml", folder / "gold.forgotten.odcs.yaml")
    assert stale(documents, documents.names, folder) == {
        "gold.forgotten.odcs.yaml": ["no dataset has this contract"],
        "gold.users_snapshot.odcs.yaml": ["it is no YAML"],
        "silver.devices.odcs.yaml": ["there is no such file"],
        "silver.users.odcs.yaml": ["schema.users.properties.is_current: not in the file"],
        "silver.visits.odcs.yaml": ["schema.visits.properties.ip.classification: not in the file"],
    }
    write(documents, documents.names, folder)
    assert stale(documents, documents.names, folder) == {"gold.forgotten.odcs.yaml": ["no dataset has this contract"]}


def test_the_command_writes_prints_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path / "home"))

    def de(*arguments: str) -> Any:
        return CliRunner().invoke(application(), ["contracts", "export", *arguments])

    printed = de("silver.users")
    assert printed.exit_code == 0
    assert faults(yaml.safe_load(printed.stdout)) == []
    assert not (tmp_path / "home" / "contracts").exists(), "a single one is printed"
    assert de("--check").exit_code == 1, "nothing is there"
    assert de().exit_code == 0
    assert len(list((tmp_path / "home" / "contracts").glob("*.odcs.yaml"))) == len(CONTRACTS)
    assert de("--check").exit_code == 0
    path = tmp_path / "home" / "contracts" / "silver.users.odcs.yaml"
    path.write_text(path.read_text().replace("classification: personal", "classification: public"))
    told = de("--check")
    assert told.exit_code == 1
    assert "schema.users.properties.email.classification: 'public' in the file, 'personal' now" in told.stdout
    assert de("silver.nothing").exit_code == 1


def test_two_contracts_that_differ_only_in_time_are_one_document() -> None:
    contract = CONTRACTS["silver.users"]
    around = Surroundings("1.0.0")
    assert text_of(document(contract, around)) == text_of(document(replace(contract), around))
