"""The verdict on a partition's dead letters, and the limits that make sense."""

import dagster as dg
import pytest

from de_checks.dead_letters import compare, dead_letter_checks, noted_when_nothing_was_understood
from de_checks.per_key import Materialized

pytestmark = pytest.mark.pattern("dead_letter")


def rows(count: int | None) -> Materialized:
    return Materialized(1, "run", 0.0, {} if count is None else {"dagster/partition_row_count": count})


def test_of_a_table_that_grows_only_what_the_run_brought_counts() -> None:
    """A million good rows of yesterday do not hide that nothing is understood today."""
    valid = Materialized(1, "run", 0.0, {"dagster/row_count": 1_000_001, "contract/rows": 1})
    dead = Materialized(1, "run", 0.0, {"dagster/row_count": 9, "contract/rows": 9})
    verdict = compare(valid, dead, (0.5, 5))
    assert not verdict.passed
    assert (verdict.metadata["valid"], verdict.metadata["dead"]) == (1, 9)


@pytest.mark.parametrize(
    ("valid", "dead", "good"), [(95, 5, True), (94, 6, False), (0, 1, False), (0, 0, True), (100, 0, True)]
)
def test_the_share_is_of_all_that_came_and_the_limit_itself_is_accepted(valid: int, dead: int, good: bool) -> None:
    verdict = compare(rows(valid), rows(dead), (0.05, 1))
    assert verdict.passed is good
    assert (verdict.metadata["valid"], verdict.metadata["dead"]) == (valid, dead)


def test_a_bad_line_in_a_quiet_night_is_no_news() -> None:
    assert compare(rows(0), rows(4), (0.05, 5)).passed
    assert not compare(rows(0), rows(5), (0.05, 5)).passed


@pytest.mark.parametrize(("valid", "dead", "warned"), [(0, 1, True), (0, 4, True), (0, 0, False), (1, 4, False)])
def test_an_error_page_in_place_of_an_hour_warns(valid: int, dead: int, warned: bool) -> None:
    verdict = noted_when_nothing_was_understood(compare(rows(valid), rows(dead), (0.05, 5)))
    assert verdict.passed is not warned
    assert (verdict.severity == dg.AssetCheckSeverity.WARN) is warned


@pytest.mark.parametrize(("valid", "dead", "warns"), [(0, 1, True), (1, 1, False), (0, 0, False)])
def test_an_hour_of_one_line_that_is_no_visit_warns_by_the_check_itself(valid: int, dead: int, warns: bool) -> None:
    """As a proxy's error page that landed in place of an hour. The check that holds back says nothing."""

    @dg.asset
    def letters() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"dagster/partition_row_count": dead})

    @dg.asset(deps=[letters])
    def visits() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"dagster/partition_row_count": valid})

    with dg.DagsterInstance.ephemeral() as instance:
        ran = dg.materialize([letters, visits, *dead_letter_checks(visits, letters)], instance=instance)
    told = {each.check_name: each for each in ran.get_asset_check_evaluations()}
    assert {name: verdict.passed for name, verdict in told.items()} == {
        "dead_letters_are_few": not warns,
        "dead_letters_do_not_prevail": True,
    }
    if warns:
        few = told["dead_letters_are_few"]
        assert few.severity == dg.AssetCheckSeverity.WARN
        assert "Nothing of what came was understood" in str(few.description)


def test_what_was_replayed_or_discarded_is_no_longer_held_against_the_partition() -> None:
    """60 of 100 lines were dead: 50 were repaired, and are among the valid rows, 8 discarded, 2 are open."""
    letters = Materialized(1, "run", 0.0, {"dagster/partition_row_count": 60, "dead_letters/open": 2})
    verdict = compare(rows(90), letters, (0.05, 1))
    assert verdict.passed
    assert verdict.metadata == {"valid": 90, "dead": 2, "share": round(2 / 92, 6), "closed": 58}
    assert "58 more are replayed or discarded" in verdict.description


def test_a_persons_reason_lets_it_pass_and_is_recorded() -> None:
    verdict = compare(rows(1), rows(9), (0.5, 5), accepted="the producer's test hour")
    assert verdict.passed
    assert verdict.metadata["accepted"] == "the producer's test hour"
    assert "90.0%" in verdict.description


@pytest.mark.parametrize("pair", [(rows(None), rows(1)), (rows(1), rows(None)), (rows(1), None)])
def test_unknown_numbers_warn(pair: tuple[Materialized, Materialized | None]) -> None:
    verdict = compare(*pair, (0.5, 5))
    assert not verdict.passed
    assert verdict.severity == dg.AssetCheckSeverity.WARN


@pytest.mark.parametrize("limits", [(0.5, 0.1), (-0.1, 0.5), (0.1, 1.1)])
def test_limits_that_are_no_rising_shares_are_refused(limits: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="rising shares"):
        dead_letter_checks(dg.AssetSpec("v"), dg.AssetSpec("d"), red_above=limits[0], block_above=limits[1])


def test_only_the_second_check_blocks() -> None:
    few, prevail = (next(iter(check.check_specs)) for check in dead_letter_checks(dg.AssetSpec("v"), dg.AssetSpec("d")))
    assert (few.name, few.blocking) == ("dead_letters_are_few", False)
    assert (prevail.name, prevail.blocking) == ("dead_letters_do_not_prevail", True)
