"""What each audit says about one key, on figures written by hand: no table."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_resources.contract import Contract
from de_resources.delta.log.table_log import Stored
from de_resources.delta.publish import (
    Audit,
    InputRows,
    InputSize,
    KeepsContract,
    Measured,
    NullShare,
    ReconcilesWithInput,
    Rows,
    Within,
)
from de_resources.delta.publish.audits import NoAudits, Subject, audits_of
from de_resources.delta.publish.staging import AUDIT, PASSED, REJECTED, StagedFile, StagedSlice
from de_resources.delta.publish.verdicts import Judged, markdown
from de_resources.errors import PermanentError

pytestmark = pytest.mark.pattern("audit_write_audit_publish")


class Orders(pa.DataFrameModel):
    """Orders of a shop."""

    id: T.LongType = pa.Field(nullable=False)
    amount: T.DoubleType = pa.Field(nullable=True, ge=0)
    email: T.StringType = pa.Field(nullable=True, metadata={"personal": True})

    class Config:
        """The dataset as a whole."""

        name = "silver.orders"


CONTRACT = Contract.of(Orders)
RULE = "amount_greater_than_or_equal_to"
NAMED = [Rows(), Measured(what="mean", sql="avg(amount)")]
TWICE = [Rows(), Rows(at_least=1)]
NO_LIST = Rows()


def staged(*files: tuple[int, dict[str, int]], rejected: int = 0) -> StagedSlice:
    """Files with rows, and nulls by column, and one of rows that were sorted out."""
    found = [
        StagedFile(f"part-{n}", 1, {}, json.dumps({"numRecords": rows, "nullCount": nulls}), passed=True)
        for n, (rows, nulls) in enumerate(files)
    ]
    sorted_out = [StagedFile("bad", 1, {}, json.dumps({"numRecords": rejected}), passed=False)] if rejected else []
    return StagedSlice((*found, *sorted_out))


SLICE = staged((6, {"amount": 1}), (4, {"amount": 2}))


def subject(**told: Any) -> Subject:
    return Subject(**{"key": "2024-01-02", "contract": CONTRACT, "inputs": {}, "staged": SLICE, **told})


def last(audit: Audit, **figures: float) -> Judged:
    """A published slice of which this audit had told these figures."""
    return Judged(1, 10, 0, (audit.finding(True, "It was good.", **figures),))


@pytest.mark.parametrize(
    ("audit", "given", "passed", "said"),
    [
        (Rows(at_least=10), {}, True, "10 rows, at least 10"),
        (Rows(at_least=11), {}, False, "10 rows, at least 11"),
        (Rows(ratio=(0.5, 2)), {}, True, "10 rows"),  # nothing to compare with yet
        (Rows(ratio=(0.5, 2)), {"last": last(Rows(), rows=5)}, True, "2.00x of the last"),
        (Rows(ratio=(0.5, 2)), {"last": last(Rows(), rows=4)}, False, "2.50x of the last"),
        (Rows(ratio=(0.5, 2)), {"last": last(Rows(), rows=21)}, False, "0.48x of the last"),
        (NullShare(column="amount", at_most=0.3), {}, True, "3 of 10 are null"),
        (NullShare(column="amount", at_most=0.29), {}, False, "3 of 10 are null"),
        (NullShare(column="amount", at_most=0.0), {"staged": StagedSlice()}, True, "0 of 0"),
        (NullShare(column="email", at_most=1.0), {}, False, "nobody knows"),
        (Within(column="amount", low=0, high=9), {"measured": {"range of amount": 0}}, True, "outside of 0 to 9"),
        (Within(column="amount", low=1), {"measured": {"range of amount": 2}}, False, "2 of 10 rows"),
        (Within(column="amount", high=8), {"measured": {"range of amount": 2}}, False, "outside of any to 8"),
        (Within(column="amount", low=1), {}, False, "Nobody counted"),
        (Within(column="amount", low=1), {"staged": StagedSlice()}, True, "Nobody counted"),
        (Measured(what="mean", sql="", low=2, high=4), {"measured": {"mean": 4}}, True, "It is 4, accepted is 2 to 4"),
        (Measured(what="mean", sql="", low=2), {"measured": {"mean": 1.5}}, False, "accepted is 2 to any"),
        (Measured(what="mean", sql=""), {"measured": {"mean": None}}, False, "It has no value."),
        (Measured(what="mean", sql=""), {"measured": {"mean": float("nan")}}, False, "It has no value."),
        (Measured(what="mean", sql=""), {"measured": {}, "staged": StagedSlice()}, True, "It has no value."),
        (ReconcilesWithInput(table="in", sql=""), {"inputs": {"in": Stored(7)}}, False, "0 were counted from 7 rows."),
        (ReconcilesWithInput(table="in", sql=""), {"inputs": {"in": None}}, True, "does not tell"),
        (
            ReconcilesWithInput(table="in", sql=""),
            {"inputs": {"in": Stored(7)}, "measured": {"reconciles with in": 7}},
            True,
            "7 were counted from 7 rows.",
        ),
        (KeepsContract(), {"violations": {RULE: 0}}, True, "All 10 rows keep it."),
        (KeepsContract(), {"violations": {RULE: 2}}, False, f"break 1 rule(s) ({RULE}: 2)"),
        (KeepsContract(only=("id_present",)), {"violations": {RULE: 2, "id_present": 0}}, True, "All 10 rows"),
        (
            KeepsContract(reaction="dispatch"),
            {"violations": {RULE: 2}, "staged": staged((8, {}), rejected=2)},
            False,
            "2 of 10 rows are sorted out",
        ),
    ],
)
def test_what_an_audit_says_of_what_is_staged(audit: Audit, given: dict[str, Any], passed: bool, said: str) -> None:
    finding = audit.after(subject(**given))
    assert finding is not None
    assert (finding.passed, said in finding.said) == (passed, True), finding.said


@pytest.mark.parametrize(
    ("audit", "stored", "before", "passed"),
    [
        (InputRows(table="in"), Stored(0, 1, 900), {}, False),
        (InputRows(table="in"), Stored(1, 1, 900), {}, True),
        (InputRows(table="in"), None, {}, False),  # nobody knows
        (InputRows(table="in", ratio=(0.5, 2)), Stored(8), {"rows": 4}, True),
        (InputRows(table="in", ratio=(0.5, 2)), Stored(9), {"rows": 4}, False),
        (InputRows(table="in", ratio=(0.5, 2)), Stored(1), {"rows": 4}, False),
        (InputRows(table="in", ratio=(0.5, 2)), Stored(9), {}, True),  # nothing to compare with yet
        (InputSize(table="in"), Stored(5, 1, 0), {}, False),
        (InputSize(table="in"), None, {}, False),
        (InputSize(table="in", ratio=(0.5, 2)), Stored(5, 1, 800), {"bytes": 400}, True),
        # As many rows as ever, and nothing in them.
        (InputSize(table="in", ratio=(0.5, 2)), Stored(5, 1, 100), {"bytes": 400, "rows": 5}, False),
    ],
)
def test_what_an_audit_says_of_an_input_before_anything_is_computed(
    audit: InputRows | InputSize, stored: Stored | None, before: dict[str, float], passed: bool
) -> None:
    compared = last(audit, **before) if before else None
    finding = audit.before(subject(inputs={"in": stored}, last=compared))
    assert finding.passed is passed, finding.said
    assert ("nobody knows" in finding.said) is (stored is None)
    assert not stored or set(finding.figures.values()) == {
        stored.rows if isinstance(audit, InputRows) else stored.bytes
    }
    assert audit.after(subject()) is None


def test_an_input_that_nobody_reads_is_not_passed_in_silence() -> None:
    finding = InputRows(table="a name with a slip").before(subject(inputs={"in": Stored(7)}))
    assert finding.holds


NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("audit", "type_", "values", "outside"),
    [
        (Within(column="v", low=0, high=9), "double", [0.0, 9.0, None], 0),
        (Within(column="v", low=0, high=9), "double", [-0.1, 9.1, math.inf, -math.inf, math.nan, 5.0], 5),
        (Within(column="v", low=0), "double", [math.nan, math.inf, 1.0], 1),  # NaN lies nowhere
        (Within(column="v", high=0), "int", [1, 0, None], 1),
        (Within(column="v", low=date(2024, 1, 2)), "date", [date(2024, 1, 1), date(2024, 1, 2)], 1),
        (Within(column="v", high=NOON), "timestamp", [NOON, NOON + timedelta(microseconds=1)], 1),
        (Within(column="v", low="b", high="b" * 40), "string", ["a", "b" * 40, "b" * 41], 2),
    ],
)
def test_a_value_outside_is_counted_whatever_the_statistics_know(
    spark: SparkSession, audit: Within, type_: str, values: list[Any], outside: int
) -> None:
    frame = spark.createDataFrame([(v, PASSED) for v in values], f"v {type_}, {AUDIT} string")
    # What was sorted out is not shown, and not counted.
    both = frame.unionAll(frame.withColumn(AUDIT, F.lit(REJECTED)))
    ((counted,),) = both.agg(*map(F.expr, audit.measures().values())).collect()
    assert counted == outside


@pytest.mark.parametrize(("reaction", "held"), [("fail", True), ("annotate", False), ("dispatch", False)])
def test_only_the_reaction_fail_holds(reaction: Any, held: bool) -> None:
    audit = KeepsContract(reaction=reaction)
    judged = Judged(3, 10, 0, (Rows().after(subject()), audit.after(subject(violations={RULE: 1}))))
    assert judged.held is held
    assert judged.told().startswith("contract: ")
    assert Judged.from_json(json.loads(json.dumps(judged.as_json()))) == judged
    shown = markdown(judged.findings)
    assert [line.split(" | ")[1] for line in shown.splitlines()[2:]] == ["passed", reaction]


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(PermanentError, match="no bad row to dispatch"):
        Rows(reaction="dispatch")
    with pytest.raises(PermanentError, match="no rule nothing"):
        KeepsContract(only=("nothing",)).rules(CONTRACT)
    with pytest.raises(PermanentError, match="without a `contract`"):
        KeepsContract().rules(None)
    with pytest.raises(PermanentError, match="no bound"):
        Within(column="amount")
    for bound in (datetime(2024, 1, 2), math.inf):
        with pytest.raises(PermanentError, match="cannot compare"):
            Within(column="amount", low=bound)


def test_the_audits_that_an_asset_names() -> None:
    assert audits_of("a", {}, CONTRACT) == (KeepsContract(),)
    assert audits_of("a", {"audits": f"{__name__}:NAMED"}, None) == tuple(NAMED)
    for path, why in (
        (None, "no contract either"),
        ("nowhere:AUDITS", "nowhere"),
        (f"{__name__}:NO_LIST", "no list of audits"),
        (f"{__name__}:TWICE", "one name"),
    ):
        with pytest.raises(NoAudits, match=why):
            audits_of("a", {"audits": path} if path else {}, None)
