"""A transform of the platform beside what somebody would write for it in PySpark, on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench

BAR = 1.1
OURS, BY_HAND = "the platform's", "PySpark by hand"


@dataclass(frozen=True)
class Pair:
    """Two frames of the same rows. `what` is the job, for readers."""

    case: str
    what: str
    ours: DataFrame
    by_hand: DataFrame

    def figures(self, bench: Workbench, *, at_most: int, rounds: int = 5) -> list[Figure]:
        """How long ours takes beside the other one, in at most so many rounds.

        Both are computed to the last value, and kept nowhere: a disk would only make them more alike. To compare what they
        find is the warm-up of both. Raises `ResultsDiffer`.
        """
        contenders = {OURS: self.ours, BY_HAND: self.by_hand}
        samples = alternate(
            {name: partial(compute, frame) for name, frame in contenders.items()},
            verify=self.require_equal,
            rounds=bench.pick(small=1, full=rounds),
            at_most=bench.pick(small=1, full=at_most),
            enough=lambda taken: self.figure(taken).is_decided,
            warm_ups=0,
        )
        return [self.figure(samples)]

    def figure(self, samples: Mapping[str, Samples]) -> Figure:
        """The ratio of the rounds."""
        return Figure(self.case, self.what, Kind.RATIO, OURS, samples[OURS], BY_HAND, samples[BY_HAND], BAR)

    def require_equal(self) -> None:
        """Raise `ResultsDiffer` unless both have the same columns, and the same rows in them."""
        require_equal(f"{self.case} (columns)", *(sorted(frame.columns) for frame in (self.ours, self.by_hand)))
        require_equal(f"{self.case} (rows)", *map(fingerprint, (self.ours, self.by_hand)))


def compute(frame: DataFrame) -> None:
    """All rows, and every value of them."""
    frame.write.format("noop").mode("overwrite").save()


def fingerprint(frame: DataFrame) -> tuple[int, int | None]:
    """How many rows, and the sum of the hashes of all their values, whatever the order of rows and columns."""
    hashes = F.xxhash64(*sorted(frame.columns)).cast("decimal(38,0)")
    (row,) = frame.agg(F.count(F.lit(1)), F.sum(hashes)).collect()
    return int(row[0]), None if row[1] is None else int(row[1])
