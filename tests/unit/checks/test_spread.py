"""How even a load is, what chance explains, and which times have a tolerance of their own. Numbers and calendars only."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from de_checks.seasons import NIGHT, WEEKEND, SeasonTimes, Tolerance, UnusableBand
from de_checks.spread import Bound, is_chance, judge_spread, relative_deviation

pytestmark = pytest.mark.pattern("skew_detector")

MONDAY = datetime(2024, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def test_the_measure_is_that_of_the_book() -> None:
    """4, 12 and 4 rows over three partitions, 5 and 2 records in two: the values that PostgreSQL's STDDEV_POP/AVG gives."""
    assert relative_deviation([4, 12, 4]) == pytest.approx(0.5657, abs=1e-4)
    assert relative_deviation([5, 2]) == pytest.approx(0.4286, abs=1e-4)


@pytest.mark.parametrize(("load", "hot"), [({"0": 100, "1": 100, "2": 700}, "2"), ({"0": 400, "1": 400, "2": 0}, "0")])
def test_a_hot_part_and_a_starved_one_are_both_told(load: dict[str, int], hot: str) -> None:
    verdict = judge_spread(load, Bound(0.4, events=True))
    assert not verdict.passed
    assert verdict.metadata["largest"].startswith(f"{hot}: ")
    assert verdict.metadata["largest_share"] == pytest.approx(max(load.values()) / sum(load.values()), abs=1e-4)


@pytest.mark.parametrize("load", [{}, {"0": 0}, {"0": 7}, {"0": 0, "1": 0, "2": 0}])
def test_one_part_and_no_rows_are_balanced_and_say_how_many_there_are(load: dict[str, int]) -> None:
    verdict = judge_spread(load, Bound(0.1))
    assert verdict.passed
    assert (verdict.metadata["parts"], verdict.metadata["rows"]) == (len(load), sum(load.values()))


def test_parts_that_hold_nothing_count() -> None:
    assert judge_spread({"0": 50, "1": 50}, Bound(0.5)).passed
    verdict = judge_spread({"0": 50, "1": 50}, Bound(0.5), absent=2)
    assert (verdict.passed, verdict.metadata["relative_deviation"]) == (False, 1.0)


def test_what_chance_does_is_no_skew_and_what_a_producer_does_is() -> None:
    """Thousands of even loads of few records, and loads in which one of three partitions gets twice what the others get."""
    random_ = Random(7)  # noqa: S311 - a world, not a secret

    def load(records: int, *weights: int) -> list[int]:
        drawn = Counter(random_.choices(range(len(weights)), weights, k=records))
        return [drawn[n] for n in range(len(weights))]

    even = [load(random_.randint(1, 60), 1, 1, 1) for _ in range(3000)]
    assert sum(not is_chance(rows) for rows in even) <= 2
    assert sum(relative_deviation(rows) > 0.5 for rows in even) > 300, "the bound alone would have been red for these"
    skewed = [load(600, 4, 1, 1) for _ in range(100)]
    assert not any(is_chance(rows) for rows in skewed)


def test_special_times_have_a_tolerance_of_their_own_and_the_first_that_fits_decides() -> None:
    tolerance = Tolerance(
        (0.5, 2.0), [(WEEKEND, (0.1, 3.0)), (NIGHT, (0.2, 5.0)), (SeasonTimes(months=[12]), (0.5, 9.0))]
    )
    assert tolerance.at(MONDAY) == (0.5, 2.0)
    assert tolerance.at(MONDAY + 5 * DAY) == (0.1, 3.0)
    assert tolerance.at(MONDAY.replace(hour=5)) == (0.2, 5.0)
    assert tolerance.at(MONDAY.replace(month=12, day=3)) == (0.5, 9.0)
    assert tolerance.at((MONDAY + 5 * DAY).replace(hour=5)) == (0.1, 3.0)
    assert tolerance.at(None) == (0.5, 2.0)


@pytest.mark.parametrize("band", [(1.1, 2.0), (0.5, 0.9), (-0.1, 2.0)])
def test_a_tolerance_that_refuses_what_did_not_change_is_refused_in_special_times_too(
    band: tuple[float, float],
) -> None:
    with pytest.raises(UnusableBand, match="must include the ratio 1"):
        Tolerance(band)
    with pytest.raises(UnusableBand):
        Tolerance((0.5, 2.0), [(WEEKEND, band)])
