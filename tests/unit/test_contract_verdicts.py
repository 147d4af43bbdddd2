"""pandera's own `validate`, for notebooks and tests, and the compiled rules, for writes: the same verdict on any rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from de_assets.contract_versions import contracts_of
from de_assets.graph_assets import assets
from de_resources.contract import Contract, ContractModel
from de_resources.delta.write.frames import counters

pytestmark = pytest.mark.pattern("constraints_enforcer")

NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)


class Anything(ContractModel):
    """The types at whose edges two implementations part: NaN, null, instants, texts beyond ASCII, and what is nested."""

    share: T.DoubleType = pa.Field(nullable=True, ge=0)
    ratio: T.DoubleType = pa.Field(nullable=False, lt=1)
    price: T.DecimalType(10, 2) = pa.Field(nullable=True, gt=0)  # type: ignore[valid-type]
    seen: T.TimestampType = pa.Field(nullable=True, le=NOON)
    day: T.DateType = pa.Field(nullable=False, ge=date(2024, 1, 1))
    kind: T.StringType = pa.Field(nullable=True, isin=["a", "", "ä"])
    name: T.StringType = pa.Field(nullable=True, str_length={"min_value": 1, "max_value": 2})
    places: T.ArrayType(T.DoubleType(), True) = pa.Field(nullable=False)  # type: ignore[valid-type]

    class Config:
        name = "silver.anything"
        metadata = {  # noqa: RUF012
            "key": ["day"],
            # True, false, or null where a column is: what a null makes of a rule both have to say alike.
            "rules": {
                "less": "share <= ratio",
                "told_or_named": "kind IS NULL OR kind <> name",
                "by_then": "to_date(seen) <= day",
            },
        }


class Related(ContractModel):
    """The columns that two rules on rows are about, and no other rule: pandera takes jobs for each."""

    share: T.DoubleType = pa.Field(nullable=True)
    ratio: T.DoubleType = pa.Field(nullable=True)
    seen: T.TimestampType = pa.Field(nullable=True)
    day: T.DateType = pa.Field(nullable=True)

    class Config:
        name = "silver.related"
        metadata = {"rules": {"less": "share <= ratio", "by_then": "to_date(seen) <= day"}}  # noqa: RUF012


CONTRACT = Contract.of(Anything)
NUMBERS = st.sampled_from([None, float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 0.5, 1.0, -5e-324])
ROWS = st.tuples(
    NUMBERS,
    NUMBERS,
    st.sampled_from([None, Decimal("0.01"), Decimal("0.00"), Decimal("-99999999.99")]),
    st.sampled_from([None, NOON, NOON.replace(microsecond=1), datetime(1970, 1, 1, tzinfo=UTC)]),
    st.sampled_from([None, date(2024, 1, 1), date(2023, 12, 31), date(1, 1, 1)]),
    st.sampled_from([None, "a", "", "ä", "A", " a"]),
    st.sampled_from([None, "", "x", "äö", "👩‍🚀", "abc"]),
    st.sampled_from([None, [], [None, float("nan")]]),
)
VALID = (0.5, 0.5, Decimal("1.00"), NOON, date(2024, 1, 1), "a", "x", [1.0])
VALID_ON_ITS_DAY = (*VALID[:4], date(2024, 1, 2), *VALID[5:])


@settings(max_examples=4)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_both_find_fault_with_the_same_columns(spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    # Half of the columns are valid, so that the verdict is not always that all are at fault.
    mixed = [tuple(v if (n + i) % 2 else VALID_ON_ITS_DAY[n] for n, v in enumerate(row)) for i, row in enumerate(rows)]
    frame = spark.createDataFrame(mixed, CONTRACT.struct_type())
    ours = of_rules(CONTRACT, frame)
    theirs = of_pandera(Anything, frame)
    assert ours == theirs, f"rules: {sorted(ours)}, pandera: {sorted(theirs)}"


def of_rules(contract: Contract, frame: DataFrame) -> set[str]:
    """The columns and the rules on rows that the write's own counters find broken."""
    counted = frame.agg(*counters(contract)).collect()[0].asDict()
    return {r.columns[0] if r.columns else r.name for r in contract.rules if counted[r.name]}


def of_pandera(model: type[ContractModel], frame: DataFrame) -> set[str]:
    """The same by pandera's own `validate`: a check of the whole frame is known by its name, which is the rule's."""
    validate: Any = model.validate
    errors = validate(frame).pandera.errors
    found = [e for kinds in errors.values() for each in kinds.values() for e in each]
    rules = {r.name for r in Contract.of(model).rules if not r.columns}
    return {e["check"] if e["check"] in rules else e["column"] for e in found}


@pytest.mark.parametrize(
    ("share", "seen", "day", "broken"),
    [
        (0.5, NOON, date(2024, 1, 2), set()),
        (0.6, NOON, date(2024, 1, 2), {"less"}),
        (None, NOON, date(2024, 1, 2), {"less"}),
        (None, None, date(2024, 1, 2), {"less", "by_then"}),
        (0.5, NOON, date(2024, 1, 1), {"by_then"}),
    ],
)
def test_a_rule_on_rows_is_broken_by_what_is_false_and_by_what_nobody_knows(
    spark: SparkSession, share: float | None, seen: datetime | None, day: date, broken: set[str]
) -> None:
    contract = Contract.of(Related)
    frame = spark.createDataFrame(
        [(0.5, 0.5, NOON, date(2024, 1, 2)), (share, 0.5, seen, day)], contract.struct_type()
    ).coalesce(1)
    assert of_pandera(Related, frame) == broken
    assert of_rules(contract, frame) == broken


def test_every_rule_of_every_contract_is_known_to_its_model() -> None:
    for contract in contracts_of(assets).values():
        assert contract.model is not None
        schema: Any = contract.model.to_schema()
        own = [check.name for check in schema.checks]
        assert own == [rule.name for rule in contract.rules if not rule.columns], contract.name


def test_a_constraint_judges_as_the_counter_does(spark: SparkSession) -> None:
    """What the store lets in is what the write would count as valid, row by row, nulls included."""

    class Ruled(Anything):
        """With a rule on rows."""

        class Config:
            name = "silver.ruled"
            metadata = {"rules": {"less": "share <= ratio"}}  # noqa: RUF012

    contract = Contract.of(Ruled)
    pool = [float("nan"), None, 0.0, 2.0]
    rows = [(a, b, *VALID[2:]) for a in pool for b in pool]
    frame = spark.createDataFrame(rows, contract.struct_type())
    asked = [
        expression
        for n, rule in enumerate(contract.rules)
        for expression in (
            f"count_if(({rule.constraint}) IS NULL) AS nulls_{n}",
            f"count_if(({rule.constraint}) = ({rule.violated})) AS differ_{n}",
        )
    ]
    (row,) = frame.selectExpr(*asked).collect()
    found = {rule.name: (row[f"nulls_{n}"], row[f"differ_{n}"]) for n, rule in enumerate(contract.rules)}
    assert found == dict.fromkeys(found, (0, 0))
