"""The distribution of a slice, held against those of accepted slices before it."""

from collections.abc import Mapping

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest

from de_checks.quantile_audit import REMEMBERED, UsualQuantiles
from de_resources.contract import Contract
from de_resources.delta.publish.audits import Subject
from de_resources.delta.publish.verdicts import AuditFinding, Judged
from de_resources.errors import PermanentError
from de_resources.observers.bounds import of_count

pytestmark = pytest.mark.pattern("audit_write_audit_publish")

AUDIT = UsualQuantiles(column="amount", probabilities=(0.5,))


class Orders(pa.DataFrameModel):
    """Orders."""

    amount: T.DoubleType = pa.Field(nullable=True, metadata={"personal": True})

    class Config:
        name = "silver.orders"


def judged(*values: float | None, audit: UsualQuantiles = AUDIT) -> list[AuditFinding]:
    """The findings on slices with these medians, each published after the one before."""
    findings: list[AuditFinding] = []
    for value in values:
        last = Judged(1, 10, 0, (findings[-1],)) if findings else None
        measured: Mapping[str, float | None] = {"quantiles of amount at 0.5": value}
        findings.append(audit.after(Subject("2024-01-01", None, {}, measured=measured, last=last)))
    return findings


def test_seven_slices_teach_and_the_eighth_is_judged() -> None:
    *learning, usual = judged(10, 11, 9, 10, 11, 9, 10, 10.5)
    assert all(finding.passed and "Still learning" in finding.said for finding in learning)
    assert usual.passed
    assert usual.said == "1 quantiles are what they were in 7 slices before."
    cents = judged(10, 11, 9, 10, 11, 9, 10, 1000)[-1]
    assert not cents.passed
    assert cents.said == "the quantile 0.5 is 1,000, usually 7.55051 to 12.4495."
    assert cents.holds


def test_a_bad_slice_that_was_published_all_the_same_is_not_learnt_from() -> None:
    *_, bad, again, good = judged(*[10.0] * 7, 1000, 1000, 10.05)
    assert (bad.passed, again.passed, good.passed) == (False, False, True)
    assert 1000 not in [value for name, value in good.figures.items() if "/" in name]


def test_a_slice_without_values_forgets_nothing() -> None:
    *_, empty, after = judged(*[10.0] * 7, None, 1000)
    assert (empty.passed, empty.said) == (True, "There are no values.")
    assert not after.passed


def test_what_is_remembered_is_bounded_and_the_newest() -> None:
    last = judged(*map(float, range(100, 140)), audit=UsualQuantiles(column="amount", probabilities=(0.5,), z=1e9))[-1]
    remembered = [value for name, value in last.figures.items() if "/" in name]
    assert remembered == [float(139 - n) for n in range(REMEMBERED)]


def test_a_level_that_never_moved_allows_what_chance_alone_does() -> None:
    counts = UsualQuantiles(column="amount", probabilities=(0.5,), by_chance=of_count)
    assert judged(*[4.0] * 7, 9, audit=counts)[-1].passed
    assert not judged(*[4.0] * 7, 11, audit=counts)[-1].passed


def test_values_of_a_personal_column_are_not_told() -> None:
    subject = Subject("2024-01-01", Contract.of(Orders), {}, measured={"quantiles of amount at 0.5": 7.0})
    with pytest.raises(PermanentError, match="personal"):
        AUDIT.after(subject)
