"""Rows that nobody can keep are warned of, and hold nothing back."""

import dagster as dg
import pytest

from de_checks.rejections import judged, rejection_check

pytestmark = pytest.mark.pattern("filter_interceptor")


def account(**first: int) -> dict[str, object]:
    return {"filter/conditions": {c: {"first": n, "alone": n, "unknown": 0} for c, n in first.items()}}


def test_a_source_whose_rows_all_can_be_kept_passes() -> None:
    assert judged(account(conceivable=0, known=0)).passed


def test_one_rejected_row_is_a_warning_that_names_the_condition_until_a_person_accepts_it() -> None:
    verdict = judged(account(conceivable=1, known=0))
    assert (verdict.passed, verdict.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "1 row(s) of the source were left out: 1 by `conceivable`." in verdict.description
    assert verdict.accepted_for("the year 1 was a test").passed


def test_a_materialisation_without_an_account_warns() -> None:
    verdict = judged({"dagster/row_count": 3})
    assert (verdict.passed, verdict.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_it_holds_nothing_back() -> None:
    partitions = dg.DailyPartitionsDefinition("2024-01-01")
    (spec,) = rejection_check(dg.AssetSpec("a", partitions_def=partitions)).check_specs
    assert (spec.blocking, spec.partitions_def) == (False, partitions)
