"""One line of the result: two series of samples, the figure drawn from them, and the bar that it has to meet.

The figure is the median over the rounds of one run; each round's value comes from the two samples that were taken one
right after the other, so that a disturbance hits both or shows in the spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from statistics import median

from benchmarks.measure import Samples


class Kind(Enum):
    """What the figure says, and in which direction it is good."""

    RATIO = "ratio"
    """Our wall seconds per second of the peer; less is better."""
    EXTRA = "extra seconds"
    """Our wall seconds minus the peer's; less is better."""
    RATE = "rate"
    """Units per second, without a peer; more is better."""


class Verdict(Enum):
    """What became of the bar."""

    HOLDS = "holds"
    MISSED = "missed"
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

    @property
    def per_round(self) -> tuple[float, ...]:
        """The figure of each round, in the order of measuring."""
        if self.kind is Kind.RATE:
            return tuple(self.units / sample.wall for sample in self.our_samples)
        pairs = zip(self.our_samples, self.peer_samples, strict=True)
        if self.kind is Kind.RATIO:
            return tuple(ours.wall / peer.wall for ours, peer in pairs)
        return tuple(ours.wall - peer.wall for ours, peer in pairs)

    @property
    def value(self) -> float:
        """The median over the rounds."""
        return median(self.per_round)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest of the rounds."""
        return min(self.per_round), max(self.per_round)

    @property
    def verdict(self) -> Verdict:
        """Whether the median meets the bar."""
        if self.bar is None:
            return Verdict.INFORMATION
        good = self.value >= self.bar if self.kind is Kind.RATE else self.value <= self.bar
        return Verdict.HOLDS if good else Verdict.MISSED

    def share_of_bar(self, value: float) -> float:
        """How much of the bar a value uses up: at most 1 where it holds. Only for figures that have a bar."""
        if self.bar is None:
            raise ValueError(f"{self.case} ({self.what}) has no bar")
        return self.bar / value if self.kind is Kind.RATE else value / self.bar
