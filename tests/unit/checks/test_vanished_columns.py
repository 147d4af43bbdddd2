"""When a column without a value is no chance any more, and what is told of a record's fields."""

import json

import dagster as dg
import pytest

from de_checks.baselines import NoSeason
from de_checks.per_key import Verdict
from de_checks.schema_drift import Filled, compare, field_names, renamed, schema_drift_check

pytestmark = pytest.mark.pattern("online_observer")


def judged(rows: int, filled: int, *earlier: float) -> Verdict:
    return compare(Filled(rows, {"referral": filled}), [{"referral": share} for share in earlier], 30, 1e-6)


@pytest.mark.parametrize(
    ("rows", "filled", "share", "good"),
    [
        (1_000, 0, 0.6, False),
        (1_000, 1, 0.6, True),  # one record has it still
        (29, 0, 1.0, True),  # too few
        (30, 0, 1.0, False),
        # 0.871^100 is 1.0e-6: a little more often, and it was no chance.
        (100, 0, 0.128, True),
        (100, 0, 0.130, False),
        (1_000, 0, 0.0, True),  # never had one
    ],
)
def test_a_column_has_vanished_where_chance_is_excluded(rows: int, filled: int, share: float, good: bool) -> None:
    assert judged(rows, filled, share).passed is good


def test_the_lowest_earlier_share_is_the_measure_because_visitors_differ_by_the_hour() -> None:
    assert judged(100, 0, 0.9, 0.05, 0.9).passed
    assert not judged(100, 0, 0.9, 0.5, 0.9).passed


def test_without_a_measure_it_passes_and_too_few_rows_are_no_measure() -> None:
    first = judged(1_000, 0)
    assert first.passed
    assert first.metadata["shares"] == {"referral": 0.0}
    assert "shares" not in judged(29, 29).metadata


def test_a_new_column_of_the_contract_is_not_compared() -> None:
    assert compare(Filled(100, {"a": 100, "b": 0}), [{"a": 1.0}], 30, 1e-6).passed


def test_files_without_statistics_warn() -> None:
    verdict = compare(Filled(100, None), [{"a": 1.0}], 30, 1e-6)
    assert (verdict.passed, verdict.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_fields_are_paths_and_what_is_no_record_is_passed_over() -> None:
    records = [json.dumps({"a": {"b": [{"c": 1}]}}), '{"d": null}', "half a rec", "[" * 100_000, None, "7"]
    assert field_names(records) == {"a", "a.b", "d"}


def test_only_names_are_told_and_not_too_many() -> None:
    many = {f"f{n}" for n in range(9)}
    verdict = renamed(Verdict(False, "It.", {}), {"ann@example.org", *many}, {"old"}, "noon")
    told = "It. Gone since noon: `old`. New: `f0`, `f1`, `f2`, `f3`, `f4` and 5 more. Was it renamed?"
    assert verdict.description == told
    assert renamed(Verdict(False, "It.", {}), {"a"}, {"a"}, "noon").description == "It."


def test_data_without_a_calendar_is_refused() -> None:
    with pytest.raises(NoSeason):
        schema_drift_check(dg.AssetSpec("a"), record="raw")
