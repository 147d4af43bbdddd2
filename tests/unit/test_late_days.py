"""The planner against the definition: every day that any window covers once, and no other."""

from datetime import date, timedelta
from random import Random

import pytest

from de_assets.late_days import Late, plan

pytestmark = pytest.mark.pattern("static_late_data_integrator")

OCTOBER = [date(2024, 10, day) for day in range(1, 32)]


def october(*days: int) -> list[date]:
    return [date(2024, 10, day) for day in days]


def covered(ranges: list[tuple[date, date]]) -> list[date]:
    return [first + timedelta(days=n) for first, last in ranges for n in range((last - first).days + 1)]


def test_three_days_in_a_row_are_what_the_last_covers_and_what_it_does_not() -> None:
    found = plan(october(10, 11, 12), 4, OCTOBER)
    assert found.ranges() == [(date(2024, 10, 6), date(2024, 10, 12))]
    assert found.asked == tuple(october(10, 11, 12))
    assert found.look_back == tuple(october(6, 7, 8, 9))


def test_late_days_may_come_before_or_after_the_asked_ones() -> None:
    found = plan(october(10, 12), 1, OCTOBER)
    asked = [(d, d) for d in october(10, 12)]
    before = [(d, d) for d in october(9, 11)]
    assert found.ranges(Late.BEFORE) == before + asked
    assert found.ranges(Late.AFTER) == asked + before
    assert found.ranges(Late.BESIDE) == [(date(2024, 10, 9), date(2024, 10, 12))]


def test_days_that_do_not_exist_are_left_out() -> None:
    assert plan([date(2024, 9, 30), *october(2)], 15, OCTOBER).ranges() == [(date(2024, 10, 1), date(2024, 10, 2))]
    assert plan([], 15, OCTOBER).ranges() == []
    assert plan([date(2023, 1, 1)], 15, OCTOBER).ranges() == []


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("late", list(Late))
def test_whatever_is_asked_each_day_is_computed_once(seed: int, late: Late) -> None:
    rng = Random(seed)  # noqa: S311 - any spread will do
    asked, window = rng.sample(OCTOBER, rng.randint(1, 12)), rng.randint(0, 6)
    wanted = {d for day in asked for d in (day - timedelta(days=n) for n in range(window + 1)) if d in OCTOBER}
    days = covered(plan(asked, window, OCTOBER).ranges(late))
    assert len(days) == len(set(days))
    assert set(days) == wanted
