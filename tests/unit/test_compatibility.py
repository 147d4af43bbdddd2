"""Changes of a schema against the rules that schema registries publish, and against all accepted versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest

from de_assets.contract_versions import VERSIONS, accept, contracts_of, require_accepted
from de_assets.graph_assets import assets
from de_resources.contract import Contract
from de_resources.contract.compatibility import Mode, Schema, SchemaField, breaks
from de_resources.contract.contract import UnknownMode
from de_resources.contract.versions import BreakingChange, ContractHistory, schema_of
from de_resources.lineage.readers import recorded_readers

pytestmark = pytest.mark.pattern("schema_compatibility_enforcer")


def required(type_: Any = "string", **options: Any) -> SchemaField:
    return SchemaField(type_, required=True, **options)


def struct(**fields: tuple[Any, bool]) -> dict[str, Any]:
    listed = [{"name": n, "type": t, "nullable": nullable, "metadata": {}} for n, (t, nullable) in fields.items()]
    return {"type": "struct", "fields": listed}


def array(element: Any, nulls: bool = False) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def map_(value: Any, nulls: bool = False) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": nulls}


ID = required("long")
# What changes, whether new readers read old data (backward), and whether old readers read new data (forward). The first
# block is Confluent's table "Compatibility Types" and Avro's "Schema Resolution", the second says where ours is stricter.
CHANGES: dict[str, tuple[Schema, Schema, bool, bool]] = {
    "nothing": ({"a": ID}, {"a": ID}, True, True),
    "another order": ({"a": ID, "b": ID}, {"b": ID, "a": ID}, True, True),
    "an optional field is added": ({"a": ID}, {"a": ID, "b": SchemaField("string")}, True, True),
    "a field with a default is added": ({"a": ID}, {"a": ID, "b": required(has_default=True)}, True, True),
    "a required field is added": ({"a": ID}, {"a": ID, "b": required()}, False, True),
    "an optional field is removed": ({"a": ID, "b": SchemaField("string")}, {"a": ID}, True, True),
    "a field with a default is removed": ({"a": ID, "b": required(has_default=True)}, {"a": ID}, True, True),
    "a required field is removed": ({"a": ID, "b": required()}, {"a": ID}, True, False),
    "a required field is renamed": ({"a": ID, "b": required()}, {"a": ID, "c": required()}, False, False),
    "only the case of a name changes": ({"a": ID}, {"A": ID}, False, False),
    "a field becomes optional": ({"a": ID}, {"a": SchemaField("long")}, True, False),
    "a field becomes required": ({"a": SchemaField("long")}, {"a": ID}, False, True),
    "int to long": ({"a": required("integer")}, {"a": ID}, True, False),
    "long to int": ({"a": ID}, {"a": required("integer")}, False, True),
    "float to double": ({"a": required("float")}, {"a": required("double")}, True, False),
    "int to double": ({"a": required("integer")}, {"a": required("double")}, True, False),
    "long to text": ({"a": ID}, {"a": required()}, False, False),
    "a nested optional field is added": (
        {"a": required(struct(x=("long", False)))},
        {"a": required(struct(x=("long", False), y=("string", True)))},
        True,
        True,
    ),
    "a nested required field is added": (
        {"a": required(struct(x=("long", False)))},
        {"a": required(struct(x=("long", False), y=("string", False)))},
        False,
        True,
    ),
    "elements get wider": ({"a": required(array("integer"))}, {"a": required(array("long"))}, True, False),
    "elements may be null": ({"a": required(array("long"))}, {"a": required(array("long", True))}, True, False),
    "values of a map get wider": ({"a": required(map_("integer"))}, {"a": required(map_("long"))}, True, False),
    "a list in place of a value": ({"a": ID}, {"a": required(array("long"))}, False, False),
    "a decimal with more digits": ({"a": required("decimal(10,2)")}, {"a": required("decimal(12,2)")}, True, False),
    "a decimal with more places, fewer digits": (
        {"a": required("decimal(10,2)")},
        {"a": required("decimal(10,4)")},
        False,
        False,
    ),
    "int to a decimal that holds it": ({"a": required("integer")}, {"a": required("decimal(10,0)")}, True, False),
    # Avro promotes these, at the price of another value or of another kind of it.
    "long to double": ({"a": ID}, {"a": required("double")}, False, False),
    "int to float": ({"a": required("integer")}, {"a": required("float")}, False, False),
    "text to binary": ({"a": required()}, {"a": required("binary")}, False, False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_judged_as_registries_do(change: str) -> None:
    old, new, backward, forward = CHANGES[change]
    allowed = {mode: not breaks(new, {1: old}, mode) for mode in Mode}
    assert allowed == {
        Mode.NONE: True,
        Mode.BACKWARD: backward,
        Mode.BACKWARD_TRANSITIVE: backward,
        Mode.FORWARD: forward,
        Mode.FORWARD_TRANSITIVE: forward,
        Mode.FULL: backward and forward,
        Mode.FULL_TRANSITIVE: backward and forward,
    }


@pytest.mark.parametrize("direction", ["backward", "forward", "full"])
def test_two_harmless_steps_can_be_one_that_breaks(direction: str) -> None:
    """A field goes, and comes back as something else: each version gets along with the one before."""
    history = {1: {"a": ID, "b": SchemaField("long")}, 2: {"a": ID}}
    new = {"a": ID, "b": SchemaField("string")}
    assert breaks(new, history, Mode(direction)) == []
    (found, *_) = breaks(new, history, Mode(f"{direction}_transitive"))
    assert (found.field, found.version) == ("b", 1)


def test_a_break_names_the_nested_field_and_the_rule() -> None:
    old = {"a": required(array(struct(x=("long", False))))}
    new = {"a": required(array(struct(x=("integer", False))))}
    (found,) = breaks(new, {3: old}, Mode.BACKWARD)
    assert (found.field, found.column, found.version) == ("a.element.x", "a", 3)
    assert found.rule == "its type became integer, which does not hold every long that is there"


@pytest.mark.parametrize(
    ("old", "new", "mode", "sides"),
    [
        ("long", "integer", Mode.BACKWARD, "version 3 writes long, the contract reads integer"),
        ("integer", "long", Mode.FORWARD, "the contract writes long, version 3 reads integer"),
        (None, "long", Mode.BACKWARD, "version 3 writes no such field, the contract reads a required one"),
        ("long", None, Mode.FORWARD, "the contract writes no such field, version 3 reads a required one"),
    ],
)
def test_a_break_names_the_side_that_writes_and_the_side_that_reads(
    old: str | None, new: str | None, mode: Mode, sides: str
) -> None:
    before, after = ({"id": ID} | ({"a": required(each)} if each else {}) for each in (old, new))
    (found,) = breaks(after, {3: before}, mode)
    assert str(found).startswith("`a`: ")
    assert str(found).endswith(f"({sides})")


class Sales(pa.DataFrameModel):
    """One row per sale."""

    number: T.LongType = pa.Field(nullable=False)
    country: T.StringType = pa.Field(nullable=True)
    parts: T.ArrayType(T.LongType(), True) = pa.Field(nullable=True)  # type: ignore[valid-type]

    class Config:
        name = "silver.sales"
        metadata = {"owner": "team:shop"}  # noqa: RUF012


class Narrower(Sales):
    """The same sales, whose numbers are smaller now."""

    number: T.IntegerType = pa.Field(nullable=False)

    class Config:
        name = "silver.sales"


def readers(column: str) -> list[str]:
    return [f"gold/report.{column}"]


def test_a_break_is_accepted_with_a_reason_only_and_then_counts_no_more(tmp_path: Path) -> None:
    first, second = Contract.of(Sales), Contract.of(Narrower)
    assert accept(first, readers, folder=tmp_path) == 1
    assert accept(first, readers, folder=tmp_path) is None, "a rerun adds nothing"
    with pytest.raises(BreakingChange, match=r"`number`: its type became integer.*gold/report\.number.*--breaking"):
        accept(second, readers, folder=tmp_path)
    assert len(ContractHistory.read(tmp_path, "silver.sales").versions) == 1
    assert accept(second, readers, breaking="nobody reads it", folder=tmp_path) == 2
    kept = ContractHistory.read(tmp_path, "silver.sales")
    assert [v.breaking for v in kept.versions] == ["", "nobody reads it"]
    assert kept.newest == schema_of(second), "what was written is read again"
    assert kept.breaks(schema_of(second), Mode.FULL_TRANSITIVE) == []


def test_the_mode_is_the_contracts_own() -> None:
    assert Contract.of(Sales).compatibility == Mode.FULL_TRANSITIVE

    class Loose(Sales):
        """A contract with a mode that is none."""

        class Config:
            name = "silver.loose"
            metadata = {"compatibility": "sideways"}  # noqa: RUF012

    with pytest.raises(UnknownMode, match="sideways"):
        Contract.of(Loose)


def test_every_contract_of_the_graph_is_accepted_as_it_is() -> None:
    """Where this fails: `de contracts accept`."""
    for contract in contracts_of(assets).values():
        assert ContractHistory.read(VERSIONS, contract.name).newest == schema_of(contract), contract.name


def test_a_contract_that_breaks_readers_does_not_load(tmp_path: Path) -> None:
    """As if `silver.visits` had lost a column that its first version required."""
    shutil.copytree(VERSIONS, tmp_path / "versions")
    path = tmp_path / "versions" / "silver.visits.json"
    kept = json.loads(path.read_text())
    kept["versions"][0]["fields"]["visitor"] = {"type": "string", "required": True}
    path.write_text(json.dumps(kept))
    with pytest.raises(BreakingChange, match="`visitor`: it was removed") as refused:
        require_accepted(assets, tmp_path / "versions")
    (found,) = refused.value.readers.values()
    assert any(reader.startswith("silver/visits_enriched") for reader in found)
    # An optional column more is no break: it waits to be accepted.
    kept["versions"][0]["fields"]["visitor"] = {"type": "string"}
    path.write_text(json.dumps(kept))
    require_accepted(assets, tmp_path / "versions")


def test_the_code_location_asks_before_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    import de_assets.contract_versions as versions
    import de_assets.definitions as location

    def refuse(_: object) -> None:
        raise RuntimeError("refused")

    monkeypatch.setattr(versions, "require_accepted", refuse)
    with pytest.raises(RuntimeError, match="refused"):
        importlib.reload(location)


def test_readers_are_those_of_the_recorded_lineage() -> None:
    instance = dg.DagsterInstance.ephemeral()
    sales, report, other = (dg.AssetKey(["gold", name]) for name in ("sales", "report", "other"))
    assert recorded_readers(instance, [report, other], sales, "number") is None
    lineage = dg.TableColumnLineage(
        {"total": [dg.TableColumnDep(sales, "number")], "where": [dg.TableColumnDep(sales, "country")]}
    )
    instance.report_runless_asset_event(
        dg.AssetMaterialization(report, metadata={"dagster/column_lineage": dg.MetadataValue.column_lineage(lineage)})
    )
    assert recorded_readers(instance, [report, other], sales, "number") == ["gold/report.total"]
    assert recorded_readers(instance, [report, other], sales, "parts") == []


def test_records_of_topics_have_versions_as_tables_have(tmp_path: Path) -> None:
    """A producer's announced rename of a nested field is refused when definitions load, by the names of the readers."""
    topics = {c.name: c for c in contracts_of(assets).values() if c.name.startswith("sources.")}
    assert sorted(topics) == [
        "sources.ads_topic",
        "sources.features_topic",
        "sources.users_topic",
        "sources.visits_topic",
    ]
    shutil.copytree(VERSIONS, tmp_path / "versions")
    path = tmp_path / "versions" / "sources.visits_topic.json"
    kept = json.loads(path.read_text())
    context = kept["versions"][0]["fields"]["context"]["type"]["fields"]
    context.append({"name": "campaign", "type": "string", "nullable": False, "metadata": {}})
    path.write_text(json.dumps(kept))
    with pytest.raises(BreakingChange, match=r"`context\.campaign`: it was removed \(or renamed\)") as refused:
        require_accepted(assets, tmp_path / "versions")
    assert any(reader.startswith("bronze/visits_stream") for reader in refused.value.readers["context"])


def test_who_reads_outside_of_the_graph_is_named_too(tmp_path: Path) -> None:
    shutil.copytree(VERSIONS, tmp_path / "versions")
    path = tmp_path / "versions" / "serving.daily_traffic.json"
    path.write_text(path.read_text().replace('"visits"', '"views"'))
    with pytest.raises(BreakingChange, match="`views`: team:product"):
        require_accepted(assets, tmp_path / "versions")


def test_what_is_promised_of_a_topic_is_what_its_reader_demands() -> None:
    """Release notifications are read by a model of their own: both say the same of each field."""
    from de_assets.contracts.topics import ReleaseRecord
    from de_assets.sources.releases import Release, ReleaseEvent

    contract = Contract.of(ReleaseRecord)
    assert [(c.name, not c.nullable) for c in contract.columns] == [
        (name, field.is_required()) for name, field in ReleaseEvent.model_fields.items()
    ]
    (data,) = (c.type for c in contract.columns if c.name == "data")
    assert isinstance(data, T.StructType)
    assert [(f.name, not f.nullable) for f in data] == [
        (name, field.is_required()) for name, field in Release.model_fields.items()
    ]
