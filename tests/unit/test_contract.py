"""One pandera model, compiled: each rule against the truth in the engine, and against pandera itself."""

from __future__ import annotations

from datetime import date
from typing import Any

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from pyspark.sql import DataFrame, SparkSession

from de_resources.contract import AmbiguousRule, Contract
from de_resources.contract.rules import Rule, UnknownRule
from de_resources.delta.write.frames import counters
from de_resources.sql.identifiers import UnquotableName


class Everything(pa.DataFrameModel):
    """One column per kind of rule.

    The second paragraph is kept.
    """

    required: T.LongType = pa.Field(nullable=False, description="Always there")
    equal: T.LongType = pa.Field(nullable=True, eq=1)
    unequal: T.LongType = pa.Field(nullable=True, ne=1)
    above: T.DoubleType = pa.Field(nullable=True, gt=0)
    at_least: T.DoubleType = pa.Field(nullable=True, ge=0)
    below: T.DecimalType(10, 2) = pa.Field(nullable=True, lt=10)  # type: ignore[valid-type]
    at_most: T.DateType = pa.Field(nullable=True, le=date(2024, 12, 31))
    between: T.IntegerType = pa.Field(nullable=True, in_range={"min_value": 0, "max_value": 10, "include_max": False})
    one_of: T.StringType = pa.Field(nullable=True, isin=["a", "it's; --", "back\\slash"])
    none_of: T.StringType = pa.Field(nullable=True, notin=["x", "'"])
    shaped: T.StringType = pa.Field(nullable=True, str_matches=r"^\d{2}-[a-z]+$")
    linked: T.StringType = pa.Field(nullable=True, str_matches=r"https?://")
    holding: T.StringType = pa.Field(nullable=True, str_contains="@")
    holding_one: T.StringType = pa.Field(nullable=True, str_contains=r"[@#]")
    starting: T.StringType = pa.Field(nullable=True, str_startswith="'a")
    ending: T.StringType = pa.Field(nullable=True, str_endswith="z")
    sized: T.StringType = pa.Field(nullable=True, str_length={"min_value": 2, "max_value": 3})
    email: T.StringType = pa.Field(nullable=True, metadata={"personal": True})

    class Config:
        name = "silver.everything"
        metadata = {  # noqa: RUF012
            "owner": "team:web",
            "key": ["required"],
            "partitioned_by": ["at_most"],
            "properties": {"delta.enableChangeDataFeed": "true"},
            "rules": {"ordered": "above <= at_least"},
        }


CONTRACT = Contract.of(Everything)
GOOD: dict[str, list[Any]] = {
    "required": [0],
    "equal": [1],
    "unequal": [2],
    "above": [0.1, float("nan")],
    "at_least": [0.0],
    "below": [9],
    "at_most": [date(2024, 12, 31), date(1, 1, 1)],
    "between": [0, 9],
    "one_of": ["a", "it's; --", "back\\slash"],
    "none_of": ["y"],
    "shaped": ["12-ab"],
    "linked": ["http://a", "https://"],
    "holding": ["a@b"],
    "holding_one": ["a#b", "@"],
    "starting": ["'abc"],
    "ending": ["xyz"],
    "sized": ["ab", "äöü"],
}
BAD: dict[str, list[Any]] = {
    "required": [None],
    "equal": [2],
    "unequal": [1],
    "above": [0.0, -1.0],
    "at_least": [-0.1],
    "below": [10],
    "at_most": [date(2025, 1, 1)],
    "between": [-1, 10],
    "one_of": ["b", ""],
    "none_of": ["x", "'"],
    "shaped": ["x12-ab", "12-ab1", "", "12-"],
    "linked": ["httpss://a", "xhttp://a", "HTTP://a", ""],
    "holding": ["ab"],
    "holding_one": ["ab"],
    "starting": ["abc", "'A"],
    "ending": ["xyZ"],
    "sized": ["a", "abcd", ""],
}


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    types = CONTRACT.struct_type()
    schema = T.StructType([T.StructField(f.name, T.LongType() if f.name == "below" else f.dataType) for f in types])
    made = spark.createDataFrame([tuple(r.get(c) for c in schema.names) for r in rows], schema)
    return made.withColumn("below", made["below"].cast("decimal(10,2)"))


def violations(rows: DataFrame) -> dict[str, int]:
    found = rows.agg(*counters(CONTRACT)).collect()[0].asDict()
    found.pop("rows")
    return {rule: n for rule, n in found.items() if n}


def test_everything_is_compiled() -> None:
    assert CONTRACT.name == "silver.everything"
    assert CONTRACT.description == "One column per kind of rule.\n\nThe second paragraph is kept."
    assert (CONTRACT.owner, CONTRACT.key, CONTRACT.partitioned_by) == ("team:web", ("required",), ("at_most",))
    assert CONTRACT.properties == {"delta.enableChangeDataFeed": "true"}
    assert CONTRACT.column_names == (*GOOD, "email")
    assert CONTRACT.personal == {"email"}
    assert len(CONTRACT.rules) == len(GOOD) + 1
    assert Contract.load(CONTRACT.path) is CONTRACT


def test_the_schema_is_nullable_and_documented() -> None:
    schema = CONTRACT.struct_type()
    assert all(f.nullable for f in schema)
    assert schema["required"].metadata == {"comment": "Always there"}
    assert schema["below"].dataType == T.DecimalType(10, 2)


@pytest.mark.pattern("constraints_enforcer")
def test_a_rule_that_has_no_answer_is_broken(spark: SparkSession) -> None:
    """A comparison with a null is neither true nor false; a store's CHECK would let it pass."""
    good = {c: values[0] for c, values in GOOD.items()}
    assert violations(frame(spark, [{**good, "above": None, "at_least": 1.0}])) == {"ordered": 1}


@pytest.mark.pattern("constraints_enforcer")
def test_rules_in_the_engine_are_true_to_their_meaning(spark: SparkSession) -> None:
    """Rows that break one rule each, in one frame; nulls break `…_present` alone."""
    good = {c: values[0] for c, values in GOOD.items()}
    valid = [{**good, c: v} for c, values in GOOD.items() for v in values if c not in ("above", "at_least")]
    assert violations(frame(spark, [{**v, "above": 1.0, "at_least": 1.0} for v in valid])) == {}
    ordered = {"above": 1.0, "at_least": 1.0}
    broken = [{**good, **ordered, c: v} for c, values in BAD.items() for v in values]
    found = violations(frame(spark, broken))
    by_column = {r.columns[0]: found.get(r.name, 0) for r in CONTRACT.rules if r.columns}
    assert by_column == {c: len(values) for c, values in BAD.items()}
    empty = {"above": 1.0, "at_least": 1.0}
    assert violations(frame(spark, [empty])) == {"required_present": 1}, "a null is counted once"


def test_a_row_rule_without_an_answer_is_broken(spark: SparkSession) -> None:
    rows = [{"required": 1, "above": a, "at_least": b} for a, b in [(1.0, 2.0), (2.0, 1.0), (None, 1.0), (1.0, None)]]
    assert violations(frame(spark, rows)) == {"ordered": 3}


def test_pandera_agrees_on_the_same_frames(spark: SparkSession) -> None:
    good = {c: values[0] for c, values in GOOD.items()} | {"above": 1.0, "at_least": 1.0}
    validate: Any = Everything.validate
    assert not validate(frame(spark, [good])).pandera.errors
    bad = {c: values[0] for c, values in BAD.items()}
    rows = frame(spark, [good, bad])
    reported = validate(rows).pandera.errors
    columns = {e["column"] for kinds in reported.values() for found in kinds.values() for e in found}
    ours = violations(rows)
    assert {c for r in CONTRACT.rules if r.name in ours for c in r.columns} == columns == set(BAD)


def test_the_ui_schema_has_documentation_constraints_and_personal_data() -> None:
    columns = {c.name: c for c in CONTRACT.table_schema().columns}
    assert columns["required"].description == "Always there"
    assert not columns["required"].constraints.unique
    assert columns["required"].constraints.other == ["unique within at_most"], "what a run can look at, and no more"
    assert not columns["required"].constraints.nullable
    assert columns["equal"].constraints.nullable
    assert columns["equal"].constraints.other == ["= 1"]
    assert columns["below"].type == "decimal(10,2)"
    assert dict(columns["email"].tags) == {"personal": ""}


def test_redaction_masks_values_and_keeps_nulls() -> None:
    assert CONTRACT.redact({"email": "a@b", "equal": 1}) == {"email": "•••", "equal": 1}
    assert CONTRACT.redact({"email": None}) == {"email": None}


def test_a_check_without_sql_is_refused() -> None:
    class Odd(pa.DataFrameModel):
        x: T.LongType = pa.Field(unique_values_eq=[1, 2])

        class Config:
            name = "odd"

    with pytest.raises(UnknownRule, match="`unique_values_eq` on `x`") as caught:
        Contract.of(Odd)
    assert (caught.value.contract, caught.value.column) == ("odd", "x")


@pytest.mark.parametrize("rule", ["x_present", "rows"])
def test_rules_whose_counts_would_run_together_are_refused(rule: str) -> None:
    class Twice(pa.DataFrameModel):
        x: T.LongType = pa.Field(nullable=False)

        class Config:
            name = "twice"
            metadata = {"rules": {rule: "x > 0"}}  # noqa: RUF012

    with pytest.raises(AmbiguousRule, match=rule):
        Contract.of(Twice)


def test_a_column_of_any_name_is_judged_by_its_rules(spark: SparkSession) -> None:
    name = "x` IS NULL OR `y; --"

    class Hostile(pa.DataFrameModel):
        x: T.LongType = pa.Field(alias=name, ge=0, nullable=False)

        class Config:
            name = "hostile"

    rows = spark.createDataFrame([(1,), (-1,), (None,)], T.StructType([T.StructField(name, T.LongType())]))
    broken = {r.name: rows.where(r.violated).count() for r in Contract.of(Hostile).rules}
    assert broken == {f"{name}_present": 1, f"{name}_greater_than_or_equal_to": 1}


def test_a_column_whose_name_the_engine_would_change_is_refused() -> None:
    class Unquotable(pa.DataFrameModel):
        x: T.LongType = pa.Field(alias="${spark.app.name}", ge=0)

        class Config:
            name = "unquotable"

    with pytest.raises(UnquotableName):
        Contract.of(Unquotable)


@pytest.mark.pattern("constraints_enforcer")
@pytest.mark.parametrize(
    ("predicate", "columns"),
    [
        ("above <= at_least", ("above", "at_least")),
        ("`above` <= 1 OR one_of = 'between below'", ("above", "one_of")),
        ("holding.email = sized AND length(ending) > 1", ("holding", "ending", "sized")),
        ("below(ABOVE) IS NOT NULL", ("above",)),
    ],
)
def test_a_rule_on_rows_names_every_column_that_it_is_about(predicate: str, columns: tuple[str, ...]) -> None:
    """Names in a text, of a field inside a column, and of a function are no columns."""
    found = Rule("r", (), predicate).about(CONTRACT.column_names)
    assert sorted(found) == sorted(columns)
