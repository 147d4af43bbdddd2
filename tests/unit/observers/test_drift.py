"""What is usual is learnt from accepted points only, and by season where there are enough of them."""

import errno
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import fmean, stdev

import pytest

from de_resources.observers.bounds import bounds_of, of_count, of_measurement, of_share
from de_resources.observers.drift import Drift, judge
from de_resources.observers.measures import Figures
from de_resources.observers.memory import MOST_POINTS, Memory, load, save
from de_resources.observers.profile import HistoryPoint

pytestmark = pytest.mark.pattern("offline_observer")

NOW = datetime(2024, 6, 1, tzinfo=UTC)
MONDAY = date(2024, 1, 1)


def day(n: int, rows: int, refused: str = "", nulls: int = 0) -> HistoryPoint:
    figures = Figures(rows, {"page": {"nulls": nulls, "quantiles": [1.0, 2.0, 3.0, 4.0, 5.0]}})
    return HistoryPoint(str(MONDAY + timedelta(days=n)), n, NOW, figures, refused, (str(MONDAY + timedelta(days=n)),))


def remembered(points: Iterable[HistoryPoint]) -> Memory:
    listed = list(points)
    return Memory().with_points("table", len(listed), listed)


def outside(memory: Memory) -> list[tuple[str, str]]:
    return [(drift.key, drift.figure) for drift in judge(memory).drifts]


def test_bounds_are_three_deviations_around_the_mean() -> None:
    known = [90.0, 110.0, 130.0, 70.0, 100.0, 150.0, 50.0]
    bounds = bounds_of(known, of_count)
    assert bounds is not None
    assert (bounds.low, bounds.high) == pytest.approx((100 - 3 * stdev(known), fmean(known) + 3 * stdev(known)))
    assert bounds.hold(100 + 2.99 * stdev(known))
    assert not bounds.hold(100 + 3.01 * stdev(known))


@pytest.mark.parametrize("points", [[], [5.0], [5.0] * 6, [float("nan")] * 20])
def test_too_few_points_teach_nothing(points: list[float]) -> None:
    assert bounds_of(points, of_count) is None


@pytest.mark.parametrize(
    ("chance", "mean", "usual", "unusual"),
    [
        (of_count, 100.0, 129.0, 131.0),  # three roots of a hundred
        (of_count, 0.0, 3.0, 4.0),
        (of_share(10_000), 0.5, 0.514, 0.516),  # three times 0.005
        (of_share(1_000), 0.0, 0.003, 0.004),
        (of_measurement, 50.0, 51.4, 51.6),
    ],
)
def test_a_history_that_never_moved_leaves_room_for_chance(
    chance: object, mean: float, usual: float, unusual: float
) -> None:
    bounds = bounds_of([mean] * 7, chance)  # type: ignore[arg-type]
    assert bounds is not None
    assert bounds.hold(usual)
    assert not bounds.hold(unusual)


def test_a_bad_day_does_not_become_the_normal_of_the_next() -> None:
    """Forty rows a day instead of a thousand, for a week: the seventh is as bad as the first."""
    usual = [day(n, 1000 + n % 3) for n in range(10)]
    bad = [day(10 + n, 40) for n in range(7)]
    assert outside(remembered([*usual, *bad])) == [(point.key, "rows") for point in bad]


def test_a_day_that_a_check_has_refused_teaches_nothing() -> None:
    week = [day(n, 1000) for n in range(6)]
    assert outside(remembered([*week, day(6, 1000, refused="rows_meet_contract failed"), day(7, 5000)])) == []
    assert outside(remembered([*week, day(6, 1000), day(7, 5000)])) == [(day(7, 0).key, "rows")]


def test_a_level_that_a_person_accepts_is_learnt() -> None:
    memory = remembered([*(day(n, 1000) for n in range(8)), *(day(8 + n, 5000) for n in range(8))])
    assert len(outside(memory)) == 8
    accepted = memory.accepting({drift.key for drift in judge(memory).drifts}, "a campaign")
    assert outside(accepted) == []
    assert outside(accepted.with_points("table", 99, [day(16, 5000)])) == []


def test_a_sunday_is_compared_with_sundays() -> None:
    """Sundays have a tenth of the rows. After seven of them one with as many rows as a Monday is unusual."""

    def rows(n: int) -> int:
        return 100 if (MONDAY + timedelta(days=n)).weekday() == 6 else 1000

    weeks = [day(n, rows(n)) for n in range(8 * 7)]
    assert outside(remembered([*weeks[:-1], day(55, 1000)])) == [(day(55, 0).key, "rows")]
    assert outside(remembered(weeks)) == [], "nor was any Sunday before the seventh"
    assert outside(remembered([*weeks[:20], day(20, 0)])) == [(day(20, 0).key, "rows")], "an outage on the third Sunday"


def test_each_figure_learns_by_itself() -> None:
    """A day with too many nulls has still a usual number of rows."""
    days = [day(n, 1000) for n in range(7)] + [day(7, 1000, nulls=900), day(8, 1000)]
    (drift,) = judge(remembered(days)).drifts
    assert (drift.key, drift.column, drift.figure, drift.value) == (day(7, 0).key, "page", "share of nulls", 0.9)
    assert "page: share of nulls is 0.9, usually 0 to" in str(drift)
    assert isinstance(drift, Drift)


def test_a_history_of_one_and_of_nothing() -> None:
    assert judge(Memory()).drifts == []
    assert judge(remembered([day(0, 0)])).drifts == []


def test_what_is_remembered_is_found_again(tmp_path: Path) -> None:
    memory = remembered(day(n, n) for n in range(3)).accepting([day(1, 0).key], "known")
    save(tmp_path / "memory.json", memory)
    assert load(tmp_path / "memory.json") == memory


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"points": {"x": {}}}'])
def test_a_memory_that_cannot_be_read_is_one_of_nothing(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "memory.json").write_text(content)
    assert load(tmp_path / "memory.json") == Memory()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES], ids=errno.errorcode.get)
def test_a_memory_that_cannot_be_read_now_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As in a process with too many open files: who took it for nothing would look at all again, and forget what it learnt."""
    save(tmp_path / "orders.json", memory := remembered([day(1, 10), day(2, 20)]))

    def fail(*_: object, **__: object) -> str:
        raise OSError(number, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fail)
        with pytest.raises(OSError, match="not now"):
            load(tmp_path / "orders.json")
    assert load(tmp_path / "orders.json") == memory


def test_a_point_takes_the_place_of_its_partitions_last_one_and_its_acceptance() -> None:
    memory = remembered(day(n, 10) for n in range(3)).accepting([day(0, 0).key], "known")
    again = memory.with_points("table", 9, [day(0, 99)])
    assert [point.figures.rows for point in again.points.values()] == [99, 10, 10]
    assert again.accepted == {}
    assert memory.with_points("another table", 0, [day(5, 1)]).points.keys() == {day(5, 1).key}


def test_the_newest_points_are_kept() -> None:
    kept = remembered(day(n, 1) for n in range(MOST_POINTS + 10)).points
    assert len(kept) == MOST_POINTS
    assert min(kept) == day(10, 1).key
