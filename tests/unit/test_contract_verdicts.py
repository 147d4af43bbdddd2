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
from pyspark.sql import SparkSession

from de_resources.contract import Contract
from de_resources.delta.write.frames import counters

pytestmark = pytest.mark.pattern("constraints_enforcer")

NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)


class Anything(pa.DataFrameModel):
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
        metadata = {"key": ["day"]}  # noqa: RUF012


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


@settings(max_examples=4)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_both_find_fault_with_the_same_columns(spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    # Half of the columns are valid, so that the verdict is not always that all are at fault.
    mixed = [tuple(v if (n + i) % 2 else VALID[n] for n, v in enumerate(row)) for i, row in enumerate(rows)]
    frame = spark.createDataFrame(mixed, CONTRACT.struct_type())
    counted = frame.agg(*counters(CONTRACT)).collect()[0].asDict()
    ours = {r.columns[0] for r in CONTRACT.rules if counted[r.name]}
    validate: Any = Anything.validate
    errors = validate(frame).pandera.errors
    theirs = {e["column"] for kinds in errors.values() for found in kinds.values() for e in found}
    assert ours == theirs, f"rules: {sorted(ours)}, pandera: {sorted(theirs)}"


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
    for rule in contract.rules:
        row = frame.selectExpr(
            f"count_if(({rule.constraint}) IS NULL) AS nulls",
            f"count_if(({rule.constraint}) = ({rule.violated})) AS differ",
        ).collect()[0]
        assert (row.nulls, row.differ) == (0, 0), rule.name
