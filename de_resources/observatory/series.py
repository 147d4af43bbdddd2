"""Numbers over time, from whatever writes, observations and checks have told. Pure, and generic: a new figure is a new plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite

from de_resources.observatory.health import ROWS, newest_evaluations, newest_writes
from de_resources.observatory.model import Check, Evaluation, ObservedDataset, Write

MOST_POINTS = 90
"""Of more the lowest and the highest of each stretch are drawn, so that no spike is lost."""

SECONDS = ("duration_seconds", "run/duration_seconds")
_OF_RUN = "run/"
_NAMES = {ROWS[0]: "rows", ROWS[1]: "rows", SECONDS[0]: "seconds", SECONDS[1]: "seconds of the run"}
_FIRST = ("rows", "seconds", "seconds of the run")
_LEFT_OUT = frozenset({"delta/version"})
_LAGS = ("lag", "skew", "delay", "late", "dead_letters")


@dataclass(frozen=True)
class FigurePoint:
    """A value, and what it is of: a partition, or a moment."""

    label: str
    value: float


@dataclass(frozen=True)
class FigureSeries:
    """One figure, in the order of the partitions, or of time."""

    name: str
    points: tuple[FigurePoint, ...]

    @property
    def moves(self) -> bool:
        """Whether there is something to draw: a number that never changed is told, not drawn."""
        return len({point.value for point in self.points}) > 1


def series_of_writes(dataset: ObservedDataset) -> tuple[FigureSeries, ...]:
    """The figures of the writes: by partition where there are partitions of time, the newest write of each; else by time."""
    return _series(_in_order(dataset, list(dataset.writes), newest_writes(dataset)))


def series_of_observations(dataset: ObservedDataset) -> tuple[FigureSeries, ...]:
    """The figures of observations, by time: what jobs on tables and sensors have told."""
    return _series([(_when(each.at), each) for each in reversed(dataset.observations)])


def series_of_check(dataset: ObservedDataset, check: Check) -> tuple[FigureSeries, ...]:
    """The figures of a check: by partition where it judges partitions of time, the newest verdict on each; else by time."""
    newest = newest_evaluations(check) if check.by_partition else {}
    return _series(_in_order(dataset, list(check.evaluations), newest))


def thinned(points: Sequence[FigurePoint], most: int = MOST_POINTS) -> list[FigurePoint]:
    """At most so many points: the lowest and the highest of each stretch, in their order, and the last one."""
    known = [point for point in points if isfinite(point.value)]
    if len(known) <= most:
        return known
    stretches = (most - 1) // 2
    found: list[FigurePoint] = []
    for n in range(stretches):
        part = known[n * len(known) // stretches : (n + 1) * len(known) // stretches]
        low, high = (choose(range(len(part)), key=lambda place: part[place].value) for choose in (min, max))
        found += [part[place] for place in sorted({low, high})]
    return found if found[-1] is known[-1] else [*found, known[-1]]


Told = Sequence[tuple[str, Write | Evaluation]]
"""What has figures, and its label."""


def _in_order(
    dataset: ObservedDataset,
    all_: Sequence[Write | Evaluation],
    newest: dict[str | None, Write] | dict[str | None, Evaluation],
) -> Told:
    by_time = dataset.partitions is not None and any(partition.start for partition in dataset.partitions)
    if by_time and any(key is not None for key in newest):
        return [(p.key, newest[p.key]) for p in dataset.partitions or () if p.key in newest]
    return [(each.partition or _when(each.at), each) for each in sorted(all_, key=lambda each: each.id)]


def _series(told: Told) -> tuple[FigureSeries, ...]:
    found: dict[str, list[FigurePoint]] = {}
    for label, each in told:
        for name, value in each.figures.items():
            if name in _LEFT_OUT or (name.startswith(_OF_RUN) and name not in SECONDS):
                continue
            found.setdefault(_NAMES.get(name, name), []).append(FigurePoint(label, value))
    return tuple(
        FigureSeries(name, tuple(points)) for name, points in sorted(found.items(), key=lambda each: _rank(each[0]))
    )


def _rank(name: str) -> tuple[int, str]:
    if name in _FIRST:
        return _FIRST.index(name), name
    return (len(_FIRST) if any(word in name for word in _LAGS) else len(_FIRST) + 1), name


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def moving(series: Iterable[FigureSeries]) -> list[FigureSeries]:
    """Those that are worth a plot."""
    return [each for each in series if each.moves]
