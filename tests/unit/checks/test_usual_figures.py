"""The verdict on figures that a write has measured, from the accepted partitions before."""

from datetime import date, timedelta

import dagster as dg
import pytest

from de_checks.usual_figures import History, compare

pytestmark = pytest.mark.pattern("online_observer")


def history(*rows: float, first: date = date(2024, 1, 1)) -> History:
    return [(str(first + timedelta(days=n)), {"rows": value}) for n, value in enumerate(rows)]


def test_a_value_among_those_before_is_usual() -> None:
    verdict = compare("2024-01-08", {"rows": 120.0}, history(100, 110, 90, 105, 95, 100, 100))
    assert verdict.passed
    assert verdict.metadata["outside"] == 0


def test_a_value_three_deviations_away_is_a_warning_that_names_it() -> None:
    verdict = compare("2024-01-08", {"rows": 131.0}, history(*[100] * 7))
    assert (verdict.passed, verdict.severity, verdict.metadata["outside"]) == (False, dg.AssetCheckSeverity.WARN, 1)
    assert verdict.description == "`rows` is 131, usually 70 to 130."


@pytest.mark.parametrize("count", [0, 1, 6])
def test_fewer_than_seven_partitions_teach_nothing(count: int) -> None:
    verdict = compare("2024-01-08", {"rows": 1e9}, history(*[1.0] * count))
    assert verdict.passed
    assert f"{count} accepted partitions" in verdict.description


def test_what_was_not_measured_is_not_judged() -> None:
    assert compare("2024-01-08", {}, history(*[1.0] * 9)).passed
    assert compare("2024-01-08", {"amount/median": 5.0}, history(*[1.0] * 9)).passed, "a new figure"


def test_an_unpartitioned_asset_is_compared_with_its_loads() -> None:
    loads = [("", {"rows": 100.0})] * 8
    assert not compare("", {"rows": 10.0}, loads).passed
