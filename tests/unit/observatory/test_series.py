"""Plots of whatever was told: no figure has to be known before, and no spike is lost."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.observatory_world import NOW, days, judged, written
from de_resources.observatory.model import Check, ObservedDataset, Write
from de_resources.observatory.series import (
    MOST_POINTS,
    FigurePoint,
    series_of_check,
    series_of_observations,
    series_of_writes,
    thinned,
)

DAYS = days(10)
WRITES = written(DAYS)


def test_a_figure_that_nobody_knew_before_is_a_plot() -> None:
    check = Check("new_one", by_partition=True, evaluations=judged(WRITES, p95_of_tomorrow=3.5))
    (found,) = series_of_check(ObservedDataset("x", partitions=DAYS, writes=WRITES), check)
    assert (found.name, len(found.points), found.moves) == ("p95_of_tomorrow", 10, False)


def test_partitions_come_in_their_order_each_with_its_newest_value() -> None:
    again = Write(99, NOW, DAYS[0].key, "backfill", {"dagster/partition_row_count": 5})
    dataset = ObservedDataset("x", partitions=DAYS, writes=(again, *WRITES))
    (rows,) = series_of_writes(dataset)
    assert rows.name == "rows"
    assert [point.label for point in rows.points] == [p.key for p in DAYS]
    assert [point.value for point in rows.points] == [5, 101, 102, 103, 104, 105, 106, 100, 101, 102]


def test_without_partitions_time_goes_by_the_order_of_writing() -> None:
    """The clock was set back between the two."""
    old = Write(1, NOW, None, "a", {"dagster/row_count": 1, "run/x": 9, "duration_seconds": 2})
    new = Write(2, NOW - timedelta(days=9), None, "b", {"dagster/row_count": 2, "delta/version": 9})
    found = {
        each.name: [p.value for p in each.points] for each in series_of_writes(ObservedDataset("x", writes=(new, old)))
    }
    assert found == {"rows": [1, 2], "seconds": [2]}
    (seen,) = series_of_observations(ObservedDataset("x", observations=(new, old)))[:1]
    assert [p.value for p in seen.points] == [1, 2]


@pytest.mark.parametrize("place", [0, 1, 4_321, 8_782, 8_783])
@pytest.mark.parametrize("spike", [-7.0, 99.0])
def test_a_single_spike_in_a_year_of_hours_is_drawn(place: int, spike: float) -> None:
    points = [FigurePoint(str(n), spike if n == place else float(n % 5)) for n in range(8_784)]
    drawn = thinned(points)
    assert FigurePoint(str(place), spike) in drawn
    assert len(drawn) <= MOST_POINTS


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=MOST_POINTS - 5, max_size=MOST_POINTS * 3))
def test_however_many_points_few_are_drawn_and_the_extremes_are_among_them(values: list[float]) -> None:
    points = [FigurePoint(str(n), value) for n, value in enumerate(values)]
    drawn = thinned(points)
    known = [p for p in points if abs(p.value) < float("inf")]
    assert len(drawn) <= MOST_POINTS
    assert [int(p.label) for p in drawn] == sorted(int(p.label) for p in drawn)
    if known:
        assert {min(p.value for p in known), max(p.value for p in known)} <= {p.value for p in drawn}
        assert drawn[-1] is known[-1]
