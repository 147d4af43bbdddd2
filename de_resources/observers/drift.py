"""Which figures of a point lie outside of what its own accepted history makes usual? Pure.

A point is compared with the accepted ones before it: of the same weekday and hour where there are enough of them, else of the
same hour, else with the last 28. While there are few of a weekday, a value that is like theirs is usual as well: the second
quiet Sunday is no news. A value outside the bounds is not learnt from, and neither is a point that a check has
refused, so that a bad day does not become tomorrow's normal. A person who takes a point for usual says so once
(`Memory.accepted`), and it counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import inf

from de_resources.observers.bounds import (
    LEAST_POINTS,
    Bounds,
    bounds_of,
    bounds_of_few,
    of_count,
    of_measurement,
    of_share,
)
from de_resources.observers.measures import DISTINCT, NOT_FINITE, NULLS, QUANTILES, ROWS, TRUE, Figures
from de_resources.observers.memory import Memory

LAST = 28
"""As many points before are looked at where there is no season."""

Judged = Mapping[str, Mapping[str, float]]
_SHARE = "share of "
_SHARES = (NULLS, TRUE, NOT_FINITE)


@dataclass(frozen=True)
class Drift:
    """A value outside its bounds. `column` is empty for the rows of the whole."""

    key: str
    column: str
    figure: str
    value: float
    bounds: Bounds

    def __str__(self) -> str:
        """One sentence for people."""
        what = f"{self.column}: {self.figure}" if self.column else self.figure
        return (
            f"{what} is {self.value:,.6g}, usually {self.bounds.low:,.6g} to {self.bounds.high:,.6g} "
            f"({self.bounds.score(self.value):+.1f} deviations)"
        )


@dataclass(frozen=True)
class Judgement:
    """What became of all points: the values outside; by column and figure the bounds that the newest one was held against,
    and all values with the keys of their points."""

    drifts: Sequence[Drift]
    bounds: Mapping[tuple[str, str], Bounds]
    series: Mapping[tuple[str, str], Sequence[tuple[str, float]]]

    def of(self, key: str) -> list[Drift]:
        """Those of one point, the farthest first."""
        own = [drift for drift in self.drifts if drift.key == key]
        return sorted(own, key=lambda drift: -abs(drift.bounds.score(drift.value)))


def series_of(found: Figures) -> Iterator[tuple[str, str, float]]:
    """What is compared from point to point: rows, and by column shares of rows, distinct values and the median."""
    yield "", ROWS, float(found.rows)
    if not found.rows:
        return
    for column, own in found.columns.items():
        for name in _SHARES:
            value = own.get(name)
            if isinstance(value, int | float):
                yield column, f"{_SHARE}{name.replace('_', ' ')}", value / found.rows
        count = own.get(DISTINCT)
        if isinstance(count, int | float):
            yield column, DISTINCT, float(count)
        quantiles = own.get(QUANTILES)
        if isinstance(quantiles, list) and len(quantiles) > 2:
            yield column, "median", float(quantiles[len(quantiles) // 2])


def judge(memory: Memory) -> Judgement:
    """Every point against the accepted ones before it, in order."""
    series: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    accepted: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    drifts: list[Drift] = []
    bounds: dict[tuple[str, str], Bounds] = {}
    for key in sorted(memory.points):
        point = memory.points[key]
        bounds = {}
        for column, figure, value in series_of(point.figures):
            known = accepted[column, figure]
            usual, like_its_season = usual_bounds(figure, point.figures.rows, key, known)
            outside = usual is not None and not is_usual(value, usual, like_its_season)
            if usual is not None:
                bounds[column, figure] = usual
                if outside and key not in memory.accepted:
                    drifts.append(Drift(key, column, figure, value, usual))
            if key in memory.accepted or not (outside or point.refused):
                known.append((key, value))
            series[column, figure].append((key, value))
    return Judgement(drifts, bounds, series)


def usual_bounds(
    figure: str, rows: int, key: str, known: Sequence[tuple[str, float]]
) -> tuple[Bounds | None, Bounds | None]:
    """The bounds of a figure, from accepted values by the keys of their points, oldest first.

    And where they are not those of the weekday and hour, wide ones of the few points that there are of it.
    """
    is_share, is_count = figure.startswith(_SHARE), figure in (ROWS, DISTINCT)
    chance = of_share(rows) if is_share else of_count if is_count else of_measurement
    least = 0.0 if is_share or is_count else -inf
    same = _of_season(_weekday_and_hour, key, known)
    if len(same) >= LEAST_POINTS:
        return bounds_of(same, chance, least=least), None
    by_hour = _of_season(_hour, key, known)
    rest = by_hour if len(by_hour) >= LEAST_POINTS else [value for _, value in known[-LAST:]]
    return bounds_of(rest, chance, least=least), bounds_of_few(same, chance, least=least)


Season = Callable[[str], object]


def is_usual(value: float, usual: Bounds, like_its_season: Bounds | None) -> bool:
    """Whether the bounds hold a value; or those of its weekday, where the other days say nothing about that one."""
    if usual.hold(value):
        return True
    return like_its_season is not None and not usual.hold(like_its_season.mean) and like_its_season.hold(value)


def _of_season(season: Season, key: str, known: Sequence[tuple[str, float]]) -> list[float]:
    own = season(key)
    return [value for earlier, value in known if own is not None and season(earlier) == own][-LAST:]


def _weekday_and_hour(key: str) -> object:
    at = _moment(key)
    return None if at is None else (at.weekday(), at.hour)


def _hour(key: str) -> object:
    at = _moment(key)
    return None if at is None else at.hour


@lru_cache(maxsize=4096)
def _moment(key: str) -> datetime | None:
    """The time of a key, by its beginning: a partition of a day or an hour, or the moment of a version."""
    for length, form in ((19, "%Y-%m-%d %H:%M:%S"), (10, "%Y-%m-%d")):
        try:
            return datetime.strptime(key[:length], form)
        except ValueError:
            continue
    return None
