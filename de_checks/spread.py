"""How evenly is something spread? The relative standard deviation, and whether chance alone explains it. Knows numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, pstdev
from typing import Any

from de_checks.per_key import Verdict

_CHANCE = 4.0
"""Standard deviations that chance still explains: one of some 16,000 even loads lies farther out."""


@dataclass(frozen=True)
class Bound:
    """What is accepted: a relative standard deviation of at most `most`, and with `events` whatever chance explains."""

    most: float
    events: bool = False


def relative_deviation(rows: Sequence[int]) -> float:
    """Standard deviation over mean; 0 for fewer than two parts and where there are no rows."""
    return pstdev(rows) / fmean(rows) if len(rows) > 1 and any(rows) else 0.0


def is_chance(rows: Sequence[int]) -> bool:
    """Whether things that happen one by one, each in any part alike, are spread like this by chance.

    Fisher's index of dispersion (the squared deviations over their mean) has a chi-square distribution with one degree of
    freedom less than there are parts; its bound is Wilson and Hilferty's. Sources: R. A. Fisher, *Statistical Methods for
    Research Workers*, section 18; E. B. Wilson and M. M. Hilferty, *The distribution of chi-square*, PNAS 17 (1931).
    """
    free = len(rows) - 1
    if free < 1 or not any(rows):
        return True
    mean = fmean(rows)
    dispersion = sum((each - mean) ** 2 for each in rows) / mean
    return dispersion <= free * (1 - 2 / (9 * free) + _CHANCE * sqrt(2 / (9 * free))) ** 3


def judge_spread(load: Mapping[str, int], bound: Bound, absent: int = 0) -> Verdict:
    """The verdict on rows by part; `absent` parts hold nothing. Both directions count: a hot part and a starved one.

    Metadata: `relative_deviation`, `accepted_deviation`, `parts`, `rows`, `largest` and `smallest`, and `largest_share`.
    """
    counts = [*load.values(), *([0] * absent)]
    deviation = relative_deviation(counts)
    figures: dict[str, Any] = {
        "relative_deviation": round(deviation, 4),
        "accepted_deviation": bound.most,
        "parts": len(load),
        "rows": sum(counts),
    }
    if absent:
        figures["absent_parts"] = absent
    if load:
        largest, smallest = max(load, key=load.__getitem__), min(load, key=load.__getitem__)
        figures |= {"largest": f"{largest}: {load[largest]:,} rows", "smallest": f"{smallest}: {load[smallest]:,} rows"}
        figures["largest_share"] = round(load[largest] / max(1, sum(counts)), 4)
    measured = f"Relative standard deviation {deviation:.2f} over {len(counts)} parts"
    if deviation <= bound.most:
        return Verdict(True, f"{measured}, within the accepted {bound.most:g}.", figures)
    if bound.events and is_chance(counts):
        return Verdict(True, f"{measured}: so few rows may be spread like this by chance.", figures)
    hot = f"; most in {figures['largest']}, least in {figures['smallest']}" if load else ""
    return Verdict(False, f"{measured}, above the accepted {bound.most:g}{hot}.", figures)
