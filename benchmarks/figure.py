"""One line of the result: two series of samples, the figure drawn from them, and the bar that it has to meet.

The figure is the median over the rounds of one run; each round's value comes from the two samples that were taken one
right after the other, so that a disturbance hits both or shows in the spread.

A bar is judged by an interval that has the median of all rounds that could be measured in nine cases of ten, whatever their
distribution: it lies between two of the measured rounds. Where it has the bar inside, more rounds have to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import comb, nan
from statistics import median

from benchmarks.measure import Samples

CERTAINTY = 0.9


class Kind(Enum):
    """What the figure says, and in which direction it is good."""

    RATIO = "ratio"
    """Our wall seconds per second of the peer; less is better."""
    EXTRA = "extra seconds"
    """Our wall seconds minus the peer's; less is better."""
    RATE = "rate"
    """Units per second, without a peer; more is better."""
    SECONDS = "seconds"
    """Our wall seconds, without a peer; less is better."""
    MEMORY = "GiB"
    """The greatest memory of a round, without a peer; less is better."""


class Verdict(Enum):
    """What became of the bar."""

    HOLDS = "holds"
    MISSED = "missed"
    UNDECIDED = "undecided"
    INFORMATION = "information"


@dataclass(frozen=True)
class Figure:
    """`ours` and `peer` name the contenders; `peer` is empty for a rate.

    `units` are done by each call of both: what a rate counts, and along what a case with several numbers of units grows.
    """

    case: str
    what: str
    kind: Kind
    ours: str
    our_samples: Samples
    peer: str = ""
    peer_samples: Samples = ()
    bar: float | None = None
    units: int = 0
    note: str = ""
    gib: tuple[float, ...] = ()
    """What a figure of memory is about, of each round."""

    @property
    def per_round(self) -> tuple[float, ...]:
        """The figure of each round, in the order of measuring."""
        if self.kind is Kind.RATE:
            return tuple(self.units / sample.wall for sample in self.our_samples)
        if self.kind is Kind.SECONDS:
            return tuple(sample.wall for sample in self.our_samples)
        if self.kind is Kind.MEMORY:
            return self.gib
        pairs = zip(self.our_samples, self.peer_samples, strict=True)
        if self.kind is Kind.RATIO:
            return tuple(ours.wall / peer.wall for ours, peer in pairs)
        return tuple(ours.wall - peer.wall for ours, peer in pairs)

    @property
    def value(self) -> float:
        """The median over the rounds; not a number where nothing was measured."""
        return median(self.per_round) if self.per_round else nan

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest of the rounds."""
        return min(self.per_round, default=nan), max(self.per_round, default=nan)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the median of the rounds is, however they are distributed; None where they are too few to tell."""
        return median_interval(self.per_round)

    @property
    def verdict(self) -> Verdict:
        """Whether the bar is met: by the interval, or by the median where there are too few rounds for one."""
        if self.bar is None:
            return Verdict.INFORMATION
        if not self.per_round:
            return Verdict.UNDECIDED
        met = [self._meets(self.bar, value) for value in self.interval or (self.value,)]
        if all(met):
            return Verdict.HOLDS
        return Verdict.UNDECIDED if any(met) else Verdict.MISSED

    @property
    def is_decided(self) -> bool:
        """Whether more rounds would be for nothing."""
        return self.bar is None or (self.interval is not None and self.verdict is not Verdict.UNDECIDED)

    def _meets(self, bar: float, value: float) -> bool:
        return value >= bar if self.kind is Kind.RATE else value <= bar

    def share_of_bar(self, value: float) -> float:
        """How much of the bar a value uses up: at most 1 where it holds. Only for figures that have a bar."""
        if self.bar is None:
            raise ValueError(f"{self.case} ({self.what}) has no bar")
        return self.bar / value if self.kind is Kind.RATE else value / self.bar


def median_interval(values: Sequence[float], certainty: float = CERTAINTY) -> tuple[float, float] | None:
    """Two of the values between which the median of their distribution lies with at least this certainty, or None.

    A value is below the median or not, like a coin: the number of those below has a binomial distribution.
    """
    ordered, count = sorted(values), len(values)
    outside, beyond = 0.0, 0
    while beyond < count // 2 and (outside := outside + 2 * comb(count, beyond) / 2**count) <= 1 - certainty:
        beyond += 1
    return (ordered[beyond - 1], ordered[-beyond]) if beyond else None
