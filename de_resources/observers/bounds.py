"""Between which values does a figure usually lie? Learnt from earlier values that were accepted, and from no others.

The bounds are the mean and a number of standard deviations (3 by default) around it; fewer than 7 values teach nothing. A
history that never moved would make an alarm of any change: the deviation is taken for no smaller than chance alone makes
it, for a count, a share of rows, or (one per cent of the mean) a measurement.

Source: the z-score as Elementary's anomaly tests have it; Poisson's and the binomial distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import fmean, stdev

Z = 3.0
LEAST_POINTS = 7
_RELATIVE = 0.01
_RELATIVE_OF_FEW = 0.25

Chance = Callable[[float], float]
"""The deviation that a figure of this mean has by chance alone."""


def of_count(mean: float) -> float:
    """Of things that happen one by one."""
    return sqrt(max(mean, 1.0))


def of_share(rows: int) -> Chance:
    """Of the share of so many rows, each of which has it or not."""
    return lambda mean: sqrt(max(mean * (1 - mean), 1 / max(rows, 1)) / max(rows, 1))


def of_measurement(mean: float) -> float:
    """Of any other number."""
    return max(_RELATIVE * abs(mean), 1e-9)


@dataclass(frozen=True)
class Bounds:
    """The usual range of a figure: `mean` ± `z` times `deviation`, from so many `points`. It is never less than `least`."""

    mean: float
    deviation: float
    points: int
    z: float = Z
    least: float = -inf

    @property
    def low(self) -> float:
        """The lowest usual value."""
        return max(self.mean - self.z * self.deviation, self.least)

    @property
    def high(self) -> float:
        """The highest usual value."""
        return self.mean + self.z * self.deviation

    def score(self, value: float) -> float:
        """How many deviations a value lies from the mean, above it or (negative) below."""
        return (value - self.mean) / self.deviation

    def hold(self, value: float) -> bool:
        """Whether a value is usual."""
        return abs(self.score(value)) <= self.z


def bounds_of(
    accepted: Sequence[float], by_chance: Chance, *, z: float = Z, least_points: int = LEAST_POINTS, least: float = -inf
) -> Bounds | None:
    """The bounds that these values teach; None where they are too few."""
    known = [value for value in accepted if isfinite(value)]
    if len(known) < max(least_points, 2):
        return None
    mean = fmean(known)
    return Bounds(mean, max(stdev(known), by_chance(mean)), len(known), z, least)


def bounds_of_few(accepted: Sequence[float], by_chance: Chance, *, z: float = Z, least: float = -inf) -> Bounds | None:
    """Wide bounds from a few values, too few to know their deviation: it is taken for a quarter of the mean."""
    known = [value for value in accepted if isfinite(value)]
    if not known:
        return None
    mean = fmean(known)
    return Bounds(mean, max(_RELATIVE_OF_FEW * abs(mean), by_chance(mean)), len(known), z, least)
