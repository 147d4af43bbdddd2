"""Calendars of any cadence: each partition has its square, or is counted in one, and the worst is what is seen."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.observatory_world import DAY, NOW, days, hours
from de_resources.observatory.charts import HOURLY_DAYS, LISTED, STRIP, calendar, strip
from de_resources.observatory.health import Cell
from de_resources.observatory.model import HealthVerdict, ObservedPartition

MIDNIGHT = datetime(2024, 12, 31, tzinfo=UTC)
"""So that hours make whole days."""


def cells(partitions: tuple[ObservedPartition, ...], bad: frozenset[int] = frozenset()) -> list[Cell]:
    return [
        Cell(partition, HealthVerdict.FAILED if n in bad else HealthVerdict.PASSED, f"said {n}")
        for n, partition in enumerate(partitions)
    ]


def every(apart: timedelta, count: int) -> tuple[ObservedPartition, ...]:
    return tuple(ObservedPartition(f"p{n}", NOW - apart * (count - n)) for n in range(count))


def squares(drawn: str) -> list[str]:
    return re.findall(r'<g class="q v-\w+"><title>([^<]*)</title>', drawn)


@pytest.mark.parametrize(
    ("partitions", "drawn"),
    [
        (days(1), 1),
        (days(366), 366),
        (days(3_000), 53 * 7 + 1),  # 54 weeks, of which the last one has just begun
        (hours(48, MIDNIGHT), 48),
        (hours(24 * 60, MIDNIGHT), 60 + 24 * HOURLY_DAYS),
        (every(DAY * 7, 80), 80),
        (every(DAY * 30, 24), 24),
        (every(timedelta(minutes=15), 96), 24),
        (tuple(ObservedPartition(f"k{n}") for n in range(9_000)), LISTED),
    ],
    ids=["a day", "a year", "years", "two days by hour", "months by hour", "weeks", "months", "quarters", "keys"],
)
def test_every_cadence_is_drawn_within_bounds(partitions: tuple[ObservedPartition, ...], drawn: int) -> None:
    assert len(squares(calendar("Partitions", cells(partitions)))) == drawn


def test_a_day_of_hours_is_as_good_as_its_worst_hour() -> None:
    drawn = calendar("Partitions", cells(hours(24 * 30, MIDNIGHT), bad=frozenset({5})))
    (day,) = [said for said in squares(drawn) if "failing" in said]
    assert day == f"{MIDNIGHT - DAY * 30:%Y-%m-%d}: failing. 1 failing, 23 healthy"


def test_a_gap_in_the_days_stays_a_gap() -> None:
    partitions = days(10)
    drawn = calendar("Partitions", cells(partitions[:3] + partitions[8:]))
    assert len(squares(drawn)) == 5


@pytest.mark.parametrize("count", [1, STRIP, 9_000])
def test_a_strip_is_a_few_elements_however_long_the_history(count: int) -> None:
    drawn = strip("t", [list(HealthVerdict)[n % 5] for n in range(count)])
    assert drawn.count("<") <= 2 * (2 + 5)
    assert len(re.findall(r"M\d+ ", drawn)) <= 2 * STRIP
