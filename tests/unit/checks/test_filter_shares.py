"""The verdict on a filter's shares: each condition against its own past, in both directions."""

import dagster as dg
import pytest

from de_checks.filter_shares import compare, filter_check, shares

pytestmark = pytest.mark.pattern("filter_interceptor")

USUAL = [{"late": 0.05, "copy": 0.04}, {"late": 0.07, "copy": 0.05}, {"late": 0.9, "copy": 0.05}]


def account(rows: int, **first: int) -> dict[str, object]:
    return {"filter/rows_in": rows, "filter/conditions": {c: {"first": n, "alone": n} for c, n in first.items()}}


def test_a_share_is_of_all_rows_that_came_in() -> None:
    assert shares(account(200, late=10, copy=0)) == {"late": 0.05, "copy": 0.0}
    assert shares(account(0, late=0)) == {}
    assert shares({"dagster/row_count": 3}) is None


@pytest.mark.parametrize(("late", "good"), [(0.07, True), (0.16, True), (0.18, False), (1.0, False)])
def test_the_median_is_the_measure_so_that_one_odd_partition_is_not(late: float, good: bool) -> None:
    verdict = compare({"late": late, "copy": 0.05}, USUAL, 0.1)
    assert verdict.passed is good
    assert verdict.metadata["usual_shares"] == {"late": 0.07, "copy": 0.05}
    assert ("`copy`" in verdict.description) is good, "only what is odd is named"


def test_a_condition_that_stops_removing_is_odd_as_well() -> None:
    verdict = compare({"late": 0.0}, [{"late": 0.4}], 0.1)
    assert not verdict.passed
    assert "removed 0.0%, usually 40.0%" in verdict.description


def test_without_a_past_without_rows_and_for_a_new_condition_it_passes_and_says_so() -> None:
    assert "no good earlier" in compare({"late": 0.5}, [], 0.1).description
    assert compare({}, USUAL, 0.1).passed
    assert compare({"late": 0.07, "robot": 0.8}, USUAL, 0.1).passed


def test_a_materialisation_without_an_account_warns() -> None:
    verdict = compare(None, USUAL, 0.1)
    assert not verdict.passed
    assert verdict.severity == dg.AssetCheckSeverity.WARN


@pytest.mark.parametrize("tolerance", [0, 1, -0.1])
def test_a_tolerance_that_is_no_difference_of_shares_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        filter_check(dg.AssetSpec("a"), tolerance=tolerance)
