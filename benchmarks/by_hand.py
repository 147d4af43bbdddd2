"""A transform of the platform beside what somebody would write for it in PySpark, on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.in_duckdb import NAME as DUCKDB
from benchmarks.in_duckdb import InDuckDB
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench

BAR = 1.1
OURS, BY_HAND = "the platform's", "PySpark by hand"


@dataclass(frozen=True)
class Pair:
    """Two frames of the same rows. `what` is the job, for readers; DuckDB, which finds these rows too, has no bar."""

    case: str
    what: str
    ours: DataFrame
    by_hand: DataFrame
    in_duckdb: InDuckDB

    def figures(self, bench: Workbench, *, at_most: int, rounds: int = 5) -> list[Figure]:
        """How long ours takes beside the other one, in at most so many rounds.

        Both are computed to the last value, and kept nowhere: a disk would only make them more alike. To compare what they
        find is the warm-up of both. Raises `ResultsDiffer`.
        """
        samples = alternate(
            {
                OURS: partial(compute, self.ours),
                BY_HAND: partial(compute, self.by_hand),
                DUCKDB: self.in_duckdb.compute,
            },
            verify=partial(self.require_equal, bench.folder("duckdb") / self.case),
            rounds=bench.pick(small=1, full=rounds),
            at_most=bench.pick(small=1, full=at_most),
            enough=lambda taken: self.figure(taken).is_decided,
            warm_ups=0,
        )
        return [self.figure(samples), self.orientation(samples)]

    def figure(self, samples: Mapping[str, Samples]) -> Figure:
        """The ratio of the rounds."""
        return Figure(self.case, self.what, Kind.RATIO, OURS, samples[OURS], BY_HAND, samples[BY_HAND], BAR)

    def orientation(self, samples: Mapping[str, Samples]) -> Figure:
        """The same beside DuckDB, for information."""
        return Figure(self.case, self.what, Kind.RATIO, OURS, samples[OURS], DUCKDB, samples[DUCKDB])

    def require_equal(self, folder: Path) -> None:
        """Raise `ResultsDiffer` unless all have the same columns, and the same rows in them.

        DuckDB's are written to the folder, which must not be there.
        """
        frames = self.ours, self.by_hand, self.in_duckdb.rows(self.ours.sparkSession, folder)
        require_equal(f"{self.case} (columns)", *(sorted(frame.columns) for frame in frames))
        require_equal(f"{self.case} (rows)", *map(fingerprint, frames))


def compute(frame: DataFrame) -> None:
    """All rows, and every value of them."""
    frame.write.format("noop").mode("overwrite").save()


def fingerprint(frame: DataFrame) -> tuple[int, int | None]:
    """How many rows, and the sum of the hashes of all their values, whatever the order of rows and columns."""
    hashes = F.xxhash64(*sorted(frame.columns)).cast("decimal(38,0)")
    (row,) = frame.agg(F.count(F.lit(1)), F.sum(hashes)).collect()
    return int(row[0]), None if row[1] is None else int(row[1])
